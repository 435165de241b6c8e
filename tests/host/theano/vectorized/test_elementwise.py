"""Elementwise nodes that are computed on whole arrays: layouts, blocks, in-place ops, shapes and errors."""

from __future__ import annotations

import numpy as np
import pytest
import theano.tensor as tt
from hypothesis import given, settings
from hypothesis import strategies as st
from theano import scalar as ts
from theano.tensor import TensorType
from theano.tensor.elemwise import Elemwise, mul_without_zeros

from optdb.host.theano.vectorized import elementwise
from tests.effort import examples
from tests.host.theano.vectorized.nodes import by_perform, by_whole_arrays, numbers


def fused(dtype="float64"):
    """Return a Composite with values used twice, a constant, and an output that is an input of a step."""
    x, y, z = (ts.get_scalar_type(dtype)() for _ in range(3))
    product = x * y
    total = ts.tanh(product) + product * z
    return ts.Composite([x, y, z], [total * np.asarray(0.5, dtype), total - x])


def node_of(op, arrays, broadcast=()):
    """Return a node for arrays; those with indexes in `broadcast` have broadcastable axes wherever the length is 1."""
    types = [
        TensorType(str(array.dtype), [length == 1 and index in broadcast for length in array.shape])
        for index, array in enumerate(arrays)
    ]
    return op.make_node(*(kind() for kind in types))


def assert_same(results, expected):
    for result, other in zip(results, expected, strict=True):
        assert type(result) is np.ndarray and result.dtype == other.dtype
        np.testing.assert_allclose(result, other, rtol=1e-12)


LAYOUTS = {
    "C": lambda shape, seed: numbers(shape, seed),
    "Fortran": lambda shape, seed: np.asfortranarray(numbers(shape, seed)),
    "reversed": lambda shape, seed: numbers(shape, seed)[..., ::-1],
    "strided": lambda shape, seed: numbers((*shape[:-1], 2 * shape[-1]), seed)[..., ::2],
}
LARGE = 3 * elementwise.BLOCK_ITEMS // 100 + 7


@pytest.mark.parametrize("shape", [(4, 5), (LARGE, 100), (2, 3, LARGE * 40), (0, 3)], ids=str)
@pytest.mark.parametrize("layouts", [("C",) * 3, ("Fortran",) * 3, ("reversed", "strided", "Fortran")], ids="-".join)
def test_layouts(layouts, shape):
    arrays = [LAYOUTS[layout](shape, seed) for seed, layout in enumerate(layouts)]
    node = node_of(Elemwise(fused()), arrays)
    x, y, z = arrays
    total = np.tanh(x * y) + x * y * z
    assert_same(by_whole_arrays(node, arrays), [total * 0.5, total - x])


@pytest.mark.parametrize("shapes", [((LARGE, 100), (1, 100), (1, 1)), ((70, 1), (1, 700), (70, 700)), ((1, 1),) * 3])
def test_broadcasting(shapes):
    arrays = [numbers(shape, seed) for seed, shape in enumerate(shapes)]
    node = node_of(Elemwise(fused()), arrays, broadcast={0, 1, 2})
    x, y, z = arrays
    total = np.tanh(x * y) + x * y * z
    assert_same(by_whole_arrays(node, arrays), np.broadcast_arrays(total * 0.5, total - x))


@pytest.mark.parametrize("shapes", [((2, 1, 4), (2, 3, 1), (2, 1, 4)), ((1, 1), (1, 1), (3, 2)), ((), (), ())])
def test_bounds_that_are_broadcast(shapes):
    """If a lower bound is above the upper bound, elements of x below the lower bound become the lower bound."""
    arrays = [numbers(shape, seed) for seed, shape in enumerate(shapes)]
    (result,) = by_whole_arrays(node_of(Elemwise(ts.clip), arrays, broadcast={0, 1, 2}), arrays)
    x, low, high = arrays
    assert_same([result], [np.asarray(np.where(x < low, low, np.where(x > high, high, x)))])


def test_a_product_without_zeros_of_no_dimensions():
    for x, y in ((0.0, 3.0), (3.0, 0.0), (2.0, 3.0), (0.0, 0.0)):
        arrays = [np.asarray(x), np.asarray(y)]
        assert_same(by_whole_arrays(node_of(Elemwise(mul_without_zeros), arrays), arrays), [np.asarray(x * y or x + y)])


def test_an_outer_product_has_no_input_of_its_shape():
    arrays = [numbers((300, 1)), numbers((1, 200), 1)]
    node = node_of(Elemwise(ts.Composite(*_product_and_sum())), arrays, broadcast={0, 1})
    assert_same(by_whole_arrays(node, arrays), [arrays[0] * arrays[1] + arrays[0]])


def _product_and_sum():
    x, y = ts.float64(), ts.float64()
    return [x, y], [x * y + x]


def test_numbers_of_no_dimensions():
    arrays = [numbers((), seed) for seed in range(3)]
    node = node_of(Elemwise(fused()), arrays)
    x, y, z = arrays
    total = np.tanh(x * y) + x * y * z
    assert_same(by_whole_arrays(node, arrays), [np.asarray(total * 0.5), np.asarray(total - x)])


@pytest.mark.parametrize("size", [7, 3 * elementwise.BLOCK_ITEMS + 1])
@pytest.mark.parametrize("overwritten", [0, 1, 2])
def test_in_place(overwritten, size):
    """The first output overwrites an input that is still needed for the second output."""
    arrays = [numbers(size, seed) for seed in range(3)]
    x, y, z = (array.copy() for array in arrays)
    total = np.tanh(x * y) + x * y * z
    node = node_of(Elemwise(fused(), {0: overwritten}), arrays)
    results = by_whole_arrays(node, arrays)
    assert results[0] is arrays[overwritten]
    assert_same(results, [total * 0.5, total - x])
    for index, value in enumerate((x, y, z)):
        if index != overwritten:
            np.testing.assert_array_equal(arrays[index], value)


def test_in_place_on_a_variable_that_comes_twice():
    x, y = ts.float64(), ts.float64()
    op = Elemwise(ts.Composite([x, y], [ts.exp(x), y + 1]), {0: 0})
    var = tt.dvector()
    node = op.make_node(var, var)
    array = numbers(20)
    before = array.copy()
    assert_same(by_whole_arrays(node, [array, array]), [np.exp(before), before + 1])


def test_an_output_that_is_an_input_is_a_copy():
    x = ts.float64()
    array = numbers(5)
    node = node_of(Elemwise(ts.Composite([x], [ts.identity(x)])), [array])
    (result,) = by_whole_arrays(node, [array])
    assert not np.shares_memory(result, array)
    np.testing.assert_array_equal(result, array)


@pytest.mark.parametrize("op", [ts.identity, ts.real, ts.conj, ts.second])
def test_no_output_is_a_view(op):
    arrays = [numbers(5, seed) for seed in range(op.nin)]
    (result,) = by_whole_arrays(node_of(Elemwise(op), arrays), arrays)
    assert not any(np.shares_memory(result, array) for array in arrays)


@pytest.mark.parametrize(
    "shapes", [((3,), (4,)), ((1,), (4,)), ((4,), (1,)), ((2, 3), (2, 4)), ((0,), (1,)), ((0,), (2,))]
)
@pytest.mark.parametrize("op", [ts.add, ts.Composite(*_product_and_sum())], ids=["add", "composite"])
def test_lengths_that_differ(op, shapes):
    arrays = [numbers(shape) for shape in shapes]
    node = node_of(Elemwise(op), arrays)
    with pytest.raises(ValueError, match="Dimension mismatch"):
        by_whole_arrays(node, arrays)


@pytest.mark.parametrize("op, words", [(ts.int_div, "division"), (ts.mod, "modulo")])
def test_integers_divided_by_zero(op, words):
    arrays = [np.array([1, 2]), np.array([1, 0])]
    with pytest.raises(ZeroDivisionError, match=f"integer {words} by zero"):
        by_whole_arrays(node_of(Elemwise(op), arrays), arrays)


def test_nothing_warns(recwarn):
    arrays = [np.array([0.0, -1, 1e300])]
    for op in (ts.log, ts.inv, ts.exp, ts.sqrt, ts.sqr):
        by_whole_arrays(node_of(Elemwise(op), arrays), arrays)
    assert not recwarn.list


class Doubled(ts.UnaryScalarOp):
    """A user's op."""

    def impl(self, x):
        return 2 * x


def test_an_unknown_op_is_computed_element_by_element():
    x = ts.float32()
    op = ts.Composite([x], [Doubled(ts.same_out)(ts.exp(x)) + x])
    array = numbers((3, 4), dtype="float32")
    (result,) = by_whole_arrays(node_of(Elemwise(op), [array]), [array])
    np.testing.assert_allclose(result, 2 * np.exp(array) + array, rtol=1e-6)


def test_an_op_within_an_op_has_registers_of_its_own():
    """A user's op may itself call a Theano function, which then computes in the same thread."""
    inner = by_whole_arrays
    arrays = [numbers(6, seed) for seed in range(3)]
    inner_node = node_of(Elemwise(fused()), arrays)

    class Calling(ts.UnaryScalarOp):
        def impl(self, x):
            inner(inner_node, [numbers(6, 9)] * 3)
            return x

    x, y = ts.float64(), ts.float64()
    op = ts.Composite([x, y], [Calling(ts.same_out)(x * y) + ts.exp(x * y)])
    (result,) = by_whole_arrays(node_of(Elemwise(op), arrays[:2]), arrays[:2])
    product = arrays[0] * arrays[1]
    np.testing.assert_allclose(result, product + np.exp(product), rtol=1e-12)


def test_more_inputs_than_a_ufunc_takes():
    inputs = [ts.float64() for _ in range(40)]
    arrays = [numbers(5, seed) for seed in range(40)]
    op = Elemwise(ts.Composite(inputs, [ts.add(*inputs)]))
    (result,) = by_whole_arrays(node_of(op, arrays), arrays)
    np.testing.assert_allclose(result, sum(arrays), rtol=1e-12)


def test_float16_is_computed_as_perform_does():
    x, y = ts.float16(), ts.float16()
    op = Elemwise(ts.Composite([x, y], [ts.exp(x) * y + x]))
    arrays = [numbers(50, seed, "float16") for seed in range(2)]
    node = node_of(op, arrays)
    (result,), (expected,) = by_whole_arrays(node, arrays), by_perform(node, arrays)
    assert result.dtype == "float16"
    np.testing.assert_allclose(result, expected, rtol=2e-3)


_INTS = ["int8", "uint8", "int32", "int64", "bool"]
_DTYPES = [*_INTS, "float32", "float64"]
_UNARY = [ts.tanh, ts.sqr, ts.abs_, ts.identity, ts.exp]
_BINARY = [ts.add, ts.mul, ts.maximum, ts.lt, ts.eq, ts.true_div, ts.second]


@st.composite
def composites(draw):
    """Draw a Composite with values that are used several times, and some outputs that are written in place."""
    dtypes = draw(st.lists(st.sampled_from(_DTYPES), min_size=1, max_size=4))
    inputs = [ts.get_scalar_type(dtype)() for dtype in dtypes]
    values = list(inputs)
    for _ in range(draw(st.integers(1, 8))):
        op = draw(st.sampled_from(_UNARY + _BINARY + [ts.switch]))
        values.append(op(*(draw(st.sampled_from(values)) for _ in range(op.nin if op.nin > 0 else 2))))
    results = [value for value in values if value.owner]
    outputs = draw(st.lists(st.sampled_from(results), min_size=1, max_size=3, unique=True))
    pattern = {}
    for index, out in enumerate(outputs):
        same = [i for i, var in enumerate(inputs) if var.type == out.type and i not in pattern.values()]
        if same and draw(st.booleans()):
            pattern[index] = draw(st.sampled_from(same))
    return ts.Composite(inputs, outputs), dtypes, pattern


def step_by_step(op, arrays):
    """Compute each step of a Composite with a separate node."""
    values = dict(zip(op.fgraph.inputs, arrays, strict=True))
    for node in op.fgraph.toposort():
        operands = [values[var] for var in node.inputs]
        (values[node.outputs[0]],) = by_whole_arrays(node_of(Elemwise(node.op), operands), operands)
    return [values[var] for var in op.fgraph.outputs]


@pytest.mark.slow
@settings(max_examples=examples(200), deadline=None)
@given(composites(), st.sampled_from([(), (3,), (0, 2), (4, 5)]), st.integers(0, 5))
def test_random_composites(case, shape, seed):
    op, dtypes, pattern = case
    rng = np.random.RandomState(seed)
    arrays = [np.asarray(rng.standard_normal(shape) * 2).astype(dtype) for dtype in dtypes]
    results = by_whole_arrays(node_of(Elemwise(op, pattern), arrays), [array.copy() for array in arrays])
    for result, expected in zip(results, step_by_step(op, arrays), strict=True):
        assert result.dtype == expected.dtype
        np.testing.assert_array_equal(result, expected)
