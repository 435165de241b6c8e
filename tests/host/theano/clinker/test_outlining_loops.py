"""The outlined C code of elementwise ops and reductions is short, raises the right errors, and handles any layout."""

import itertools
import random
import re

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given, settings
from hypothesis import strategies as st
from theano.gof.cc import CLinker
from theano.gof.fg import FunctionGraph
from theano.tensor.elemwise import Elemwise

import optdb
from optdb.host.theano.clinker.outlining import outline
from optdb.host.theano.clinker.outlining_loops import outline_loops
from optdb.host.theano.clinker.units import module_of, unit_text
from tests.effort import examples

MODE = theano.Mode("c|py", "fast_compile")
DTYPES = ["float64", "float32", "int8", "uint16", "int64", "complex64", "complex128"]


def translation(op, *variables):
    node = op.make_node(*variables)
    node.op.prepare_node(node, None, None, "c")
    return module_of(CLinker().accept(FunctionGraph(node.inputs, node.outputs)))


def added(count, ndim=2):
    return translation(tt.add, *[tt.TensorType("float32", (False,) * ndim)() for _ in range(count)])


def test_theano_s_patterns_are_found():
    text = added(3).body
    assert not re.search(r"std::|PyArray_Resize|mis-match|Not enough dimensions", text)
    for name in ("set_rank_error", "set_length_error", "resized", "sort_axes"):
        assert name in text
    # One call of the outlined function compares the first input with both other inputs, along both axes.
    assert "set_length_error(4, axes, lengths)" in text


def test_a_reduction_is_outlined():
    text = translation(tt.Sum(axis=[1]), tt.dmatrix()).body
    assert not re.search("PyArray_Resize|Not enough dimensions", text)


def test_other_code_stays():
    code = "if (a_n0 != b_n0)\n{ fail(); }\nPyArray_Resize(x, &dims, 0, NPY_CORDER);"
    assert outline_loops(code) == code


def test_comparisons_that_fail_elsewhere_stay_apart():
    comparisons = re.search(
        r"if \(V3_n0 != V5_n0\).*?(?=npy_float32\* V1_iter)", outline(added(2).own_code), re.DOTALL
    )[0]
    other = re.sub(r"goto \w+", "goto elsewhere", comparisons)
    text = outline_loops(comparisons + other)
    assert text.count("set_length_error(2, ") == 2


def test_a_module_of_31_inputs_shares_a_unit():
    module = added(31)
    assert module.can_share
    assert len(module.body) < len(module.own_code) / 2
    # Fewer than 80 lines remain for each input: mostly type checks, reference counts, and loops.
    assert (module.body.count("\n") - added(2).body.count("\n")) / 29 < 80
    assert "set_length_error" in unit_text([module])


@pytest.fixture(scope="module")
def add3():
    with optdb.enable():
        return theano.function([x := tt.dmatrix(), y := tt.dmatrix(), z := tt.drow()], tt.add(x, y, z), mode=MODE)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((2, 3), (2, 4), (1, 3)), "input[0].shape[1] = 3, input[1].shape[1] = 4"),
        (((2, 3), (3, 3), (1, 3)), "input[0].shape[0] = 2, input[1].shape[0] = 3"),
        (((2, 3), (2, 3), (1, 5)), "input[0].shape[1] = 3, input[2].shape[1] = 5"),
        (((2, 3), (4, 5), (1, 6)), "input[0].shape[0] = 2, input[1].shape[0] = 4"),
        (((0, 3), (2, 3), (1, 3)), "input[0].shape[0] = 0, input[1].shape[0] = 2"),
    ],
)
def test_the_first_pair_of_lengths_that_differ_is_the_error(add3, shapes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        add3(*map(np.ones, shapes))
    assert add3(*map(np.ones, ((2, 3), (2, 3), (1, 3)))).sum() == 18


def laid_out(draw, array):
    """Return an equal array in another layout: with reversed, spread or permuted axes, or in Fortran order."""
    if not array.ndim:
        return array
    layout = draw(st.sampled_from(["C", "F", "reversed", "spread", "permuted"]))
    if layout == "reversed":
        return np.ascontiguousarray(array[(slice(None, None, -1),) * array.ndim])[(slice(None, None, -1),) * array.ndim]
    if layout == "spread":
        wide = np.zeros([2 * n for n in array.shape], array.dtype)
        view = wide[(slice(None, None, 2),) * array.ndim]
        view[...] = array
        return view
    if layout == "permuted":
        order = draw(st.permutations(range(array.ndim)))
        return np.ascontiguousarray(array.transpose(order)).transpose(np.argsort(order))
    return np.array(array, order=layout)


def drawn_operations(count):
    """Draw operations; each has broadcast patterns of one rank, a dtype, and a flag to overwrite its first input."""
    rng = random.Random(0)
    operations = []
    for _ in range(count):
        ndim, width = rng.randint(0, 3), rng.randint(1, 5)
        patterns = [tuple(rng.random() < 0.3 for _ in range(ndim)) for _ in range(width)]
        overwrites = rng.random() < 0.4
        if overwrites:
            patterns[0] = tuple(all(axis) for axis in zip(*patterns, strict=True))
        operations.append((patterns, rng.choice(DTYPES), overwrites))
    return operations


OPERATIONS = drawn_operations(24)
#: Sums, each with a dtype, a rank and axes.
SUMS = [(dtype, ndim, axes) for dtype in ("float32", "int8") for ndim, axes in ((1, (0,)), (3, (1,)), (3, (0, 2)))]


def expected(values):
    """Return the square of the first term plus the other terms, which are arrays or scalar variables."""
    total = values[0] * values[0]
    for value in values[1:]:
        total = total + value
    return total


@pytest.fixture(scope="module")
def functions():
    """Return one function that computes all operations, and one that computes all sums."""
    ways, outputs = [], []
    for patterns, dtype, overwrites in OPERATIONS:
        inputs = [tt.TensorType(dtype, pattern)() for pattern in patterns]
        scalars = [theano.scalar.get_scalar_type(dtype)() for _ in inputs]
        op = Elemwise(theano.scalar.Composite(scalars, [expected(scalars)]), {0: 0} if overwrites else {})
        outputs.append(op(*inputs))
        ways += [theano.In(var, borrow=overwrites, mutable=overwrites) for var in inputs]
    # Without rewriters, an op overwrites the caller's arrays.
    mode = theano.Mode("c|py", None)
    with optdb.enable():
        elementwise = theano.function(ways, outputs, mode=mode, accept_inplace=True)
        inputs = [tt.TensorType(dtype, (False,) * ndim)() for dtype, ndim, _ in SUMS]
        results = [x.sum(axis=axes) for x, (_, _, axes) in zip(inputs, SUMS, strict=True)]
        return elementwise, theano.function(inputs, results, mode=mode)


def arrays(draw, patterns, dtype):
    lengths = draw(st.tuples(*[st.sampled_from([0, 1, 2, 5])] * len(patterns[0])))
    shapes = [[1 if one else n for one, n in zip(pattern, lengths, strict=True)] for pattern in patterns]
    numbers = np.random.RandomState(draw(st.integers(0, 99)))
    values = [numbers.uniform(0, 3, shape) + (0.5j if dtype.startswith("complex") else 0) for shape in shapes]
    return [laid_out(draw, np.asarray(value, dtype)) for value in values]


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_values(functions, data):
    values = [arrays(data.draw, patterns, dtype) for patterns, dtype, _ in OPERATIONS]
    wanted = [expected([np.array(value) for value in inputs]) for inputs in values]
    results = functions[0](*itertools.chain(*values))
    for inputs, result, value, (_, dtype, overwrites) in zip(values, results, wanted, OPERATIONS, strict=True):
        assert result.shape == np.broadcast_shapes(*[array.shape for array in inputs])
        assert result.dtype == value.dtype == dtype
        np.testing.assert_allclose(result, value, rtol=1e-5)
        if overwrites:
            np.testing.assert_array_equal(inputs[0], result)


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_sums(functions, data):
    values = [arrays(data.draw, [(False,) * ndim], dtype)[0] for dtype, ndim, _ in SUMS]
    for value, result, (_, _, axes) in zip(values, functions[1](*values), SUMS, strict=True):
        np.testing.assert_allclose(result, value.sum(axis=axes, dtype=result.dtype), rtol=1e-5)


@pytest.mark.slow
def test_outputs_are_reused_as_before():
    """An output is resized and overwritten only if there are no other references to it."""
    with optdb.enable():
        x, y = tt.dmatrices("xy")
        f = theano.function([x, y], x + y, mode=theano.Mode("c|py", None))
    a = np.arange(6.0).reshape(2, 3)
    for value in (a, a.T, a[:, ::-1], a[:1], a[:0], np.asfortranarray(a)):
        np.testing.assert_array_equal(f(value, value), 2 * value)
    held = f(a, a)
    np.testing.assert_array_equal(f(a.T, a.T), 2 * a.T)
    np.testing.assert_array_equal(held, 2 * a)
