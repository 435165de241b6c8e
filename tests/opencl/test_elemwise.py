"""OpenCLElemwise against NumPy, over shapes, layouts, dtypes, and written in place."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given, settings
from hypothesis import strategies as st
from theano.scalar import basic as scalar

from optdb.codegen.elementwise_programs import program_elements
from optdb.codegen.layout import chunks, collapse
from optdb.opencl import OpenCLArrayType, get_context
from optdb.opencl.kernels import compile_kernels
from optdb.opencl.ops.elemwise import OpenCLElemwise, cast
from optdb.opencl.scalar_programs import program_of
from tests.opencl.layouts import STEPS, device_array, laid_out, run, shapes, variable
from tests.opencl.lifted import both, lifted_function, ops_of
from tests.opencl.test_scalar_programs import Odd

ODD = Odd(scalar.same_out, name="odd")

DTYPES = ["bool", "int8", "uint16", "int32", "int64", "uint64", "float16", "float32", "float64"]


def check(op, pairs, patterns=None):
    """Compare an op on the device with the host's Elemwise; `pairs` are values and device arrays."""
    hosts, arrays = zip(*pairs)
    patterns = patterns or [tuple(length == 1 for length in value.shape) for value in hosts]
    node = OpenCLElemwise(op)(*[variable(v, p) for v, p in zip(hosts, patterns)], return_list=True)[0].owner
    inputs = [tt.TensorType(v.dtype, p)() for v, p in zip(hosts, patterns)]
    reference = theano.tensor.Elemwise(op).make_node(*inputs)
    storage = [[None] for _ in reference.outputs]
    with np.errstate(all="ignore"):
        reference.op.prepare_node(reference, None, None, "py")
        reference.op.perform(reference, list(hosts), storage)
    for got, (want,) in zip(run(node, list(arrays)), storage, strict=True):
        assert got.dtype == want.dtype and got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-3 if got.dtype == "float16" else 1e-5)


@st.composite
def broadcast_pair(draw, dtypes):
    shape = draw(shapes())
    small = tuple(1 if draw(st.booleans()) else length for length in shape)
    first, second = draw(st.sampled_from([(shape, small), (small, shape), (small, small)]))
    return [draw(laid_out(dtypes[0], first)), draw(laid_out(dtypes[1], second))]


@given(st.data())
@settings(max_examples=40)
def test_adds_arrays_of_any_layout_that_broadcast(data):
    dtypes = data.draw(st.sampled_from([("float32", "float32"), ("int32", "float32"), ("float64", "int8")]))
    check(scalar.add, data.draw(broadcast_pair(dtypes)))


@given(st.data(), st.sampled_from(DTYPES))
@settings(max_examples=30)
def test_dtypes_come_and_go_as_on_the_host(data, dtype):
    pair = [data.draw(laid_out(dtype, (3, 2))), data.draw(laid_out(dtype, (3, 2)))]
    check(scalar.maximum, pair)
    check(scalar.second, pair)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_casts_to_every_other(each_device_kind, dtype):
    value = np.array([[0, 1, 5], [100, 3, 1]]).astype(dtype)
    x = variable(value)
    node = cast(x, "float16" if dtype != "float16" else "float64").owner
    np.testing.assert_array_equal(run(node, [device_array(value, [1, -2])])[0], value)
    for target in ("int16", "bool", "float32"):
        if target != dtype:
            (got,) = run(cast(x, target).owner, [device_array(value)])
            np.testing.assert_array_equal(got, value.astype(target))


def test_halves_are_rounded_once_at_the_end_and_at_casts(each_device_kind):
    x = scalar.float16("x")
    op = scalar.Composite([x], [scalar.mul(scalar.add(x, x), x)])
    value = np.array([0.1, 300.0, 1e-3, -7.3], np.float16)
    wide = value.astype(np.float64)
    node = OpenCLElemwise(op)(variable(value)).owner
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(run(node, [device_array(value)])[0], (2 * wide * wide).astype(np.float16))


def test_several_outputs(each_device_kind):
    x, y = scalar.float32("x"), scalar.int64("y")
    op = scalar.Composite([x, y], [scalar.add(x, y), scalar.mul(y, 3), scalar.lt(x, y)])
    a, b = np.linspace(-2, 2, 5).astype("float32"), np.arange(5)
    node = OpenCLElemwise(op)(variable(a), variable(b), return_list=True)[0].owner
    first, second, third = run(node, [device_array(a), device_array(b, [-2])])
    np.testing.assert_array_equal(first, a + b.astype("float64"))
    np.testing.assert_array_equal(second, 3 * b)
    np.testing.assert_array_equal(third, a < b)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1, 1), (5,)])
@pytest.mark.parametrize("known", [True, False])
def test_empty_and_single_arrays(each_device_kind, shape, known):
    value = np.ones(shape, "float32")
    pattern = tuple(known and length == 1 for length in shape)
    check(scalar.exp, [(value, device_array(value))], [pattern])


def test_large_arrays_are_shared_by_many_items(each_device_kind):
    n = 70_001
    a, b = np.arange(n, dtype="float32"), np.arange(7, dtype="float32")
    check(scalar.mul, [(a, device_array(a)), (a[::-1].copy(), device_array(a[::-1], [-1]))])
    m = np.tile(a[:10_003], (7, 1))
    check(scalar.sub, [(m, device_array(m, [2, 1])), (b[:, None], device_array(b[:, None]))])


@pytest.mark.parametrize("steps", [[1, 1], [-1, 2]])
def test_in_place(each_device_kind, steps):
    a, b = np.arange(6, dtype="float32").reshape(2, 3), np.array([[1, 10, 100]], dtype="float32")
    x, y = device_array(a, steps), device_array(b)
    op = OpenCLElemwise(scalar.add, {0: 0})
    assert op.destroy_map == {0: [0]}
    node = op(variable(a), variable(b, (True, False))).owner
    storage = [[None]]
    node.op.perform(node, [x, y], storage)
    assert storage[0][0] is x
    np.testing.assert_array_equal(x.get(), a + b)


def test_one_array_several_times():
    a = np.arange(6, dtype="float32")
    x, array = variable(a), device_array(a, [-1])
    np.testing.assert_array_equal(run(OpenCLElemwise(scalar.mul)(x, x, x).owner, [array] * 3)[0], a**3)


def test_lengths_that_differ_are_refused():
    a, b = np.ones((2, 3), "float32"), np.ones((1, 3), "float32")
    node = OpenCLElemwise(scalar.add)(variable(a), variable(b)).owner
    with pytest.raises(ValueError, match=r"Dimension mismatch at axis 0.*\(2, 3\), \(1, 3\)"):
        run(node, [device_array(a), device_array(b)])


def test_what_has_no_code_is_refused_by_name():
    x = OpenCLArrayType("complex64", (False,), "dev0")()
    with pytest.raises(TypeError, match="Erf of complex numbers"):
        OpenCLElemwise(theano.scalar.erf)(x)
    with pytest.raises(TypeError, match="Odd"):
        OpenCLElemwise(ODD)(variable(np.ones(2, "float32")))


def test_inputs_of_fewer_dimensions_come_from_the_host():
    x = variable(np.ones((2, 3), "float32"))
    y = OpenCLElemwise(scalar.add)(x, tt.fvector(), 2.5)
    assert y.type == OpenCLArrayType("float32", (False, False), "dev0")


def test_an_op_is_pickled_and_equal():
    op = OpenCLElemwise(scalar.add, {0: 0})
    again = pickle.loads(pickle.dumps(op))
    assert again == op and hash(again) == hash(op) and again != theano.tensor.Elemwise(scalar.add, {0: 0})


def test_lifted_with_what_it_cannot_do_left_on_the_host():
    x, z = tt.fmatrix(), tt.cvector()
    a = np.arange(6, dtype="float32").reshape(2, 3)
    c = np.array([1 + 2j, 3], "complex64")
    got, want, ops = both([x, z], [tt.exp(x) * 2 + x[0], tt.Elemwise(ODD)(x + 1)], [a, c])
    for mine, theirs in zip(got, want):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)
    assert OpenCLElemwise in ops and tt.Elemwise in ops
    ops = ops_of(lifted_function([z], [tt.erf(z)]))
    assert ops == [tt.Elemwise]


def test_gradients():
    x = variable(np.ones((2, 3), "float32"))
    y = OpenCLElemwise(scalar.mul)(x, x, np.float32(3))
    gradient = theano.grad(y.sum(), x)
    f = theano.function([x], gradient, mode=theano.Mode("py", None))
    a = np.arange(6, dtype="float32").reshape(2, 3)
    np.testing.assert_allclose(np.asarray(f(device_array(a))), 6 * a)


@given(st.lists(st.tuples(st.integers(1, 3), STEPS), max_size=4))
def test_collapsed_dimensions_name_the_same_elements(axes):
    shape = [length for length, _ in axes]
    base = np.arange(np.prod([length * abs(step) for length, step in axes], dtype=int))
    base = base.reshape([length * abs(step) for length, step in axes])
    view = base[tuple(slice(None, None, step) for _, step in axes)]
    assert view.shape == tuple(shape)
    lengths, (steps,) = collapse(shape, [[stride // view.itemsize for stride in view.strides]])
    again = np.lib.stride_tricks.as_strided(view, lengths, [step * view.itemsize for step in steps])
    np.testing.assert_array_equal(again.ravel(), view.ravel())
    assert all(length > 1 for length in lengths)
    if all(step == 1 for _, step in axes):
        assert len(lengths) <= 1


def test_chunks_cover_all_elements():
    context = get_context("dev0")
    for n in (1, 5, 2048, 2049, 100_000, 10**9):
        items, chunk = chunks(context, n)
        assert (items - 1) * chunk < n <= items * chunk


def test_nodes_that_are_alike_share_their_code_and_not_their_launches():
    def elements(op=scalar.add, dtype="float32", single=(False, False), device_kind="cpu"):
        return program_elements(program_of(op, [dtype] * 2), single, 2, device_kind=device_kind)

    one, two = elements(), elements()
    assert one.kernels() == two.kernels()
    one.kernels().clear()
    assert len(one.kernels()) == 1
    context = get_context("dev0")
    kernels = compile_kernels(one.kernels(), context)
    for these, shape in ((one, (2, 3)), (two, (4, 5)), (one, (2, 3))):
        a, b, c = (device_array(np.full(shape, value, "float32")) for value in (1, 2, 0))
        these.launch(kernels, context, shape, [a, b, c])
        np.testing.assert_array_equal(np.asarray(c), 3)
    others = (elements(scalar.mul), elements(dtype="float64"), elements(single=(False, True)))
    others += (elements(device_kind="gpu"),)
    assert len({other.kernels()[0].code for other in (one, *others)}) == 5
