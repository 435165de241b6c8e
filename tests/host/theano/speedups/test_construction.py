"""Ops and nodes made during an optimization equal the ops and nodes that Theano makes at other times."""

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given
from hypothesis import strategies as st
from theano.gof import op as op_module
from theano.gof.op import COp
from theano.scalar import Composite, get_scalar_type
from theano.scalar import basic as scalar_basic
from theano.tensor.elemwise import DimShuffle, Elemwise

from optdb.host.api.session import optimizing, remove_all

DTYPES = ("bool", "int8", "uint16", "int64", "float32", "float64", "complex64")
BINARY = (tt.add, tt.mul, tt.sub, tt.true_div, tt.int_div, tt.pow, tt.lt, tt.eq, tt.maximum)


def description(node):
    """Return the ops and types that distinguish elementwise nodes."""
    return (
        node.op,
        [var.type for var in node.inputs],
        [var.owner.op if var.owner else None for var in node.inputs],
        [out.type for out in node.outputs],
    )


def made(make):
    """Return the description of the node that `make` returns, or the class of the error that it raises."""
    try:
        return description(make())
    except Exception as error:
        return type(error)


@given(
    op=st.sampled_from(BINARY),
    dtypes=st.tuples(st.sampled_from(DTYPES), st.sampled_from(DTYPES)),
    patterns=st.tuples(*[st.lists(st.booleans(), max_size=3)] * 2),
)
def test_elementwise_nodes_are_theanos(op, dtypes, patterns):
    inputs = [tt.TensorType(dtype, pattern)() for dtype, pattern in zip(dtypes, patterns, strict=True)]
    stock = made(lambda: op.make_node(*inputs))
    with optimizing():
        first = made(lambda: op.make_node(*inputs))
        again = made(lambda: op.make_node(*inputs))
    assert first == stock
    assert again == stock


def test_plain_numbers_become_constants():
    x = tt.fmatrix()
    with optimizing():
        node = tt.add.make_node(x, 2)
    assert node.outputs[0].type == tt.fmatrix
    assert node.inputs[1].owner.inputs[0].data == 2


def test_a_composite_keeps_its_outputs_apart():
    x, y = (get_scalar_type("float64")() for _ in range(2))
    op = Elemwise(Composite([x, y], [x + y, x < y]))
    with optimizing():
        node = op.make_node(tt.dvector(), tt.dvector())
    assert [out.dtype for out in node.outputs] == ["float64", "bool"]


@pytest.mark.parametrize(
    ("inputs", "error"),
    [
        ((tt.drow(), tt.dmatrix()), ValueError),  # a broadcast dimension cannot hold the result
        ((tt.fvector(), tt.dvector()), TypeError),  # a smaller dtype cannot hold the result
    ],
)
def test_impossible_in_place_is_refused_as_by_theano(inputs, error):
    op = Elemwise(theano.scalar.Add(theano.scalar.upcast_out), {0: 0})
    with pytest.raises(error):
        op.make_node(*inputs)
    with optimizing(), pytest.raises(error):
        op.make_node(*inputs)


def test_dimshuffle_has_its_code_and_parameters():
    stock = DimShuffle((False, True), (1, "x", 0))
    with optimizing():
        ours = [DimShuffle((False, True), (1, "x", 0)) for _ in range(2)]
    for op in ours:
        assert op == stock
        assert op.func_codes == stock.func_codes
        assert op.code_sections == stock.code_sections
        assert op.params_type == stock.params_type
    assert ours[0].code_sections is not ours[1].code_sections


class Scaled(COp):
    """An op whose C code is in a file."""

    def __init__(self, path, **options):
        super().__init__([str(path)], **options)


def test_c_files_are_read_again_after_they_change(tmp_path):
    path = tmp_path / "scaled.c"

    def written(factor):
        path.write_text(f"#section support_code\n#define FACTOR {factor}\n")
        return Scaled(path).code_sections

    with optimizing():
        for factor in (2, 2, 30):
            assert written(factor)["support_code"].strip() == f"#define FACTOR {factor}"
        Scaled(path).code_sections.clear()
        assert Scaled(path).code_sections
        path.unlink()
        with pytest.raises(OSError, match=r"scaled\.c"):
            Scaled(path)


def test_c_files_are_read_once_while_the_engine_is_enabled(monkeypatch):
    opened, open_file = [], op_module._open_u
    monkeypatch.setattr(op_module, "_open_u", lambda path: opened.append(path) or open_file(path))
    remove_all()
    for _ in range(2):
        DimShuffle((False,), ("x", 0))
    assert len(opened) == 2
    with optimizing():
        DimShuffle((False,), ("x", 0))
    opened.clear()
    DimShuffle((False,), (0, "x"))
    assert not opened
    remove_all()
    DimShuffle((False,), (0, "x"))
    assert len(opened) == 1


def test_what_was_remembered_follows_the_flags():
    x = tt.bscalar()

    def quotient():
        with optimizing():
            return tt.true_div(x, x).dtype

    with theano.change_flags(floatX="float32"):
        single = quotient()
    with theano.change_flags(floatX="float64"):
        double = quotient()
    assert (single, double) == ("float32", "float64")


def test_values():
    x = tt.matrix()
    f = theano.function([x], (x.dimshuffle(1, 0, "x") * 2).sum(axis=0), mode="TOPO")
    data = np.arange(6, dtype=theano.config.floatX).reshape(2, 3)
    np.testing.assert_allclose(f(data), (data.T[:, :, None] * 2).sum(axis=0))


@pytest.fixture
def no_kept_constants():
    """Disable Theano's cache of constants, as Theano does while it optimizes a graph."""
    tt.basic.constant.enable = False
    yield
    tt.basic.constant.enable = True


@pytest.mark.usefixtures("no_kept_constants")
@pytest.mark.parametrize("number", [0, -1, 127, 128, -128, -129, 2**40, 0.0, -0.0, 1.5, np.int8(3), np.float32(0.1)])
@pytest.mark.parametrize("cast_policy", ["custom", "numpy+floatX"])
def test_numbers_become_theanos_constants(number, cast_policy):
    x = tt.fscalar()
    with theano.change_flags(cast_policy=cast_policy):
        stock = tt.add.make_node(x, number).inputs[1]
        with optimizing():
            made = [tt.add.make_node(x, number).inputs[1] for _ in range(3)]
    for ours in made:
        assert ours.type == stock.type
        assert ours.data.tobytes() == stock.data.tobytes()
    assert len(set(made)) == len({id(var.data) for var in made}) == 3


@pytest.mark.usefixtures("no_kept_constants")
def test_dtypes_of_numbers_follow_the_caster():
    x = tt.fscalar()
    small = theano.scalar.basic.autocast_int.dtypes
    with optimizing():
        assert tt.add.make_node(x, 5).inputs[1].dtype == "int8"
        try:
            theano.scalar.basic.autocast_int.dtypes = ("int32", "int64")
            assert tt.add.make_node(x, 5).inputs[1].dtype == "int32"
        finally:
            theano.scalar.basic.autocast_int.dtypes = small


def test_ranks_are_completed_again():
    matrix, vector, tensor = tt.fmatrix(), tt.dvector(), tt.ftensor3()
    with optimizing():
        nodes = [tt.switch.make_node(matrix, vector, tensor) for _ in range(2)]
    stock = tt.switch.make_node(matrix, vector, tensor)
    for node in nodes:
        assert description(node) == description(stock)
        assert [var.owner and var.owner.inputs for var in node.inputs] == [[matrix], [vector], None]


def test_a_truth_value_is_refused():
    with optimizing():
        for _ in range(2):
            with pytest.raises(tt.basic.AsTensorError):
                tt.add.make_node(tt.fscalar(), True)


@pytest.mark.parametrize(
    ("pattern", "order"),
    [
        ((), ()),
        ((), ("x",)),
        ((False,), (0,)),
        ((True,), ("x", 0)),
        ((True, False), (1, "x", 0)),
        ((True, False), (1,)),
        ((False, False), (1, 0)),
    ],
)
def test_dimshuffles_are_theanos(pattern, order):
    op, x = DimShuffle(pattern, order), tt.TensorType("int8", pattern)()
    stock = made(lambda: op.make_node(x))
    with optimizing():
        assert [made(lambda: op.make_node(x)) for _ in range(2)] == [stock, stock]


@pytest.mark.parametrize("pattern", [(), (True, False), (False, True)])
def test_dimshuffles_check_the_pattern(pattern):
    op, x = DimShuffle((False, True), (0, "x", 1)), tt.TensorType("int8", pattern)()
    stock = made(lambda: op.make_node(x))
    with optimizing():
        assert made(lambda: op.make_node(x)) == stock


@given(
    dtypes=st.lists(st.sampled_from(DTYPES), min_size=1, max_size=4),
    float_dtype=st.sampled_from(["float32", "float64"]),
    cast_policy=st.sampled_from(["custom", "numpy+floatX"]),
)
def test_dtypes_of_arithmetic_are_theanos(dtypes, float_dtype, cast_policy):
    with theano.change_flags(floatX=float_dtype, cast_policy=cast_policy):
        stock = theano.scalar.upcast(*dtypes), theano.scalar.upcast(*map(np.dtype, dtypes))
        with optimizing():
            assert (theano.scalar.upcast(*dtypes), theano.scalar.upcast(*map(np.dtype, dtypes))) == stock


def test_a_wrong_number_of_operands_is_refused():
    with optimizing(), pytest.raises(TypeError):
        tt.sub.make_node(tt.fscalar())


@pytest.mark.parametrize("openmp", [False, True])
def test_versions_of_c_code_are_theanos(openmp):
    op, kinds = Elemwise(theano.scalar.add, openmp=openmp), (tt.fvector, tt.dvector)
    nodes = [op.make_node(*[kind() for _ in range(count)]) for kind in kinds for count in (1, 2)]
    stock = [op.c_code_cache_version_apply(node) for node in nodes]
    with optimizing():
        for _ in range(2):
            assert [op.c_code_cache_version_apply(node) for node in nodes] == stock


def test_a_composite_is_copied_as_theano_does_it():
    x, y = theano.scalar.float32(), theano.scalar.float64()
    op = Composite([x, y], [x * y + theano.scalar.exp(x), x - 1])

    def described(copy):
        kept = ("name", "nin", "nout", "inputs_type", "outputs_type")
        preference = getattr(copy, "output_types_preference", None)
        computed = copy.c_code_cache_version(), str(copy.fgraph)
        return [getattr(copy, name) for name in kept], preference, hash(copy), copy == op, computed

    arguments = [(), (None, "named"), (scalar_basic.same_out, None)]
    by_theano = [described(op.make_new_inplace(*each)) for each in arguments]
    with optimizing():
        copies = [op.make_new_inplace(*each) for each in arguments]
    assert all(type(copy) is Composite and copy is not op for copy in copies)
    assert [described(copy) for copy in copies] == by_theano
