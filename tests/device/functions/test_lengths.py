"""Numbers that depend on lengths are kernel arguments, so calls with other lengths use the same programs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optdb.codegen.kernels import programs
from optdb.codegen.loops import kernel as loop_kernel
from optdb.codegen.loops import sizes
from optdb.device.expressions import applied, cast, folded, joined, replaced, scattered, strided, transposed, view
from optdb.device.functions.function import TracedFunction
from optdb.device.iterations import Carried, Iteration, StepRow
from optdb.device.tensors import Constant, Coordinate, Iota, Lookup, MatrixVector, Scanned, ScatterSet, Stripe
from optdb.runtime.device_profiles import DEVICE_KINDS
from tests.effort import examples
from tests.opencl_device import new_context

F = "float64"
#: Lists of the shapes with which functions are called. All lengths are too large to be constants in kernels. In the
#: second list, rows consist of quads.
SHAPES = [(110, 39), (111, 39), (150, 41), (64, 91), (190, 43)]
SHAPES_OF_QUADS = [(112, 40), (116, 40), (148, 48), (64, 88), (188, 40)]


@pytest.fixture(scope="module", params=[*DEVICE_KINDS, "quads"])
def context(request):
    made = new_context()
    kind, at_once = ("gpu", 0) if request.param == "quads" else (request.param, 1 << 20)
    # With more compute units, the number of parts of a sum, which kernels contain, would depend on the lengths.
    made.profile = replace(made.profile.as_kind(kind), items_at_once=at_once, compute_units=2)
    return made


def shapes_for(context):
    return SHAPES if context.profile.items_at_once else SHAPES_OF_QUADS


def number(value, ndim):
    return Constant(np.full((1,) * ndim, value, F), of_lengths=True)


def centered(x, i):
    """Divide by a length, both before a reduction and in a loop."""
    mean = applied("TrueDiv", F, folded("Add", x, [0], F), number(x.shape[0], 1))
    squares = applied("Sqr", F, applied("Sub", F, x, transposed(mean, [None, 0])))
    return folded("Add", applied("TrueDiv", F, squares, number(x.size, 2)), [0], F)


def outer(x, i):
    """Loop over three axes that do not collapse."""
    column = transposed(strided(x, [Stripe(0, 1, x.shape[0]), Stripe(0, 1, 1)]), [0, None, 1])
    return applied("Add", F, transposed(x, [None, 0, 1]), column)


def joined_slices(x, i):
    rows, columns = x.shape
    back = strided(x, [Stripe(rows - 1, -1, rows), Stripe(columns - 1, -2, columns // 2)])
    return joined([applied("Tanh", F, back), strided(x, [Stripe(0, 1, rows), Stripe(1, 2, columns // 2)])], 0)


def replaced_middle(x, i):
    rows, columns = x.shape
    stripes = [Stripe(20, 1, rows - 40), Stripe(0, 1, columns)]
    return replaced(x, applied("Exp", F, strided(x, [Stripe(30, 1, rows - 40), Stripe(0, 1, columns)])), stripes)


def gathered(x, i):
    """Read rows at computed indices, counted from the end."""
    rows, columns = x.shape
    last = applied("Sub", "int64", Constant(np.full(1, rows - 1), of_lengths=True), i)
    return view(x, (rows, columns - 20), [Coordinate(0, (), Lookup(last, (0,))), Coordinate(18, ((1, 1),))])


def added_to_rows(x, i):
    rows, columns = x.shape
    return scattered(x, (rows, columns), [Coordinate(0, (), Lookup(i, (0,))), Coordinate(columns - 1, ((1, -1),))])


def set_in_rows(x, i):
    columns = x.shape[1]
    values = applied("Mul", F, transposed(cast(Iota(columns), F), [None, 0]), x)
    at = [Coordinate(0, (), Lookup(Iota(x.shape[0]), (0,))), Coordinate(columns - 1, ((1, -1),))]
    return ScatterSet(x, values, at)


def products(x, i):
    """Multiply rows by a vector, and add up rows."""
    sums = MatrixVector(x, folded("Add", x, [0], F))
    return MatrixVector(transposed(x, [1, 0]), applied("Tanh", F, sums))


def cumulated(x, i):
    few = strided(x, [Stripe(0, x.shape[0] // 5, 5), Stripe(0, 1, x.shape[1])])
    return Scanned("Add", few, 0)


def numpy_replaced(x, i):
    result = x.copy()
    result[20:-20] = np.exp(x[30 : len(x) - 10])
    return result


def numpy_added(x, i):
    result = np.zeros_like(x)
    np.add.at(result, i, x[:, ::-1])
    return result


#: Functions of a matrix, and of an index for each of its rows, with their equivalents in NumPy.
FUNCTIONS = [
    (centered, lambda x, i: ((x - x.mean(0)) ** 2).sum(0) / x.size),
    (outer, lambda x, i: x[None] + x[:, None, :1]),
    (
        joined_slices,
        lambda x, i: np.concatenate([np.tanh(x[::-1, :0:-2][:, : x.shape[1] // 2]), x[:, 1::2][:, : x.shape[1] // 2]]),
    ),
    (replaced_middle, numpy_replaced),
    (gathered, lambda x, i: x[len(x) - 1 - i][:, 18:-2]),
    (added_to_rows, numpy_added),
    (set_in_rows, lambda x, i: (np.arange(x.shape[1]) * x)[:, ::-1]),
    (products, lambda x, i: x.T @ np.tanh(x @ x.sum(0))),
    (cumulated, lambda x, i: x[:: len(x) // 5][:5].cumsum(0)),
]
ALL = pytest.mark.parametrize("describe, expected", FUNCTIONS, ids=[describe.__name__ for describe, _ in FUNCTIONS])


def function_of(context, describe):
    return TracedFunction(context, lambda tracer: [describe(*tracer.arguments)], [False] * 2)


def compare(function, expected, shape, seed=0):
    rng = np.random.default_rng(seed)
    x, i = rng.normal(size=shape) / 10, rng.integers(0, shape[0], shape[0])
    np.testing.assert_allclose(function([x, i])[0], expected(x, i), rtol=1e-10, atol=1e-12)


@ALL
def test_calls_with_other_lengths_build_nothing(context, describe, expected, monkeypatch):
    # The length of short rows that are multiplied by a vector is a constant in the kernel.
    shapes = shapes_for(context)
    if describe is products:
        shapes = [(rows, 40) for rows, _ in shapes]
    function = function_of(context, describe)
    compare(function, expected, shapes[0])
    built = []
    make = programs.make
    monkeypatch.setattr(programs, "make", lambda *args, **options: built.append(options) or make(*args, **options))
    for shape in shapes[1:]:
        compare(function, expected, shape)
    assert not built


@pytest.mark.pairwise
@ALL
@pytest.mark.parametrize("is_narrow", [True, False])
def test_all_numbers_may_be_arguments(context, describe, expected, is_narrow, monkeypatch):
    monkeypatch.setattr(sizes, "LARGEST_CONSTANT", 0)
    if not is_narrow:
        monkeypatch.setattr(loop_kernel, "NARROW", 1)
    function = function_of(context, describe)
    for shape in [*shapes_for(context)[:2], (50, 21)]:
        compare(function, expected, shape)


@settings(max_examples=examples(30), deadline=None)
@given(
    st.sampled_from(FUNCTIONS),
    st.lists(st.tuples(st.integers(41, 3000), st.integers(21, 60)), min_size=2, max_size=5),
    st.integers(0, 100),
)
def test_functions_have_right_results_for_any_lengths(context, pair, shapes, seed):
    describe, expected = pair
    function = function_of(context, describe)
    for shape in [*shapes, shapes[0]]:
        compare(function, expected, shape if describe is not outer else (shape[0] % 90 + 17, shape[1]), seed)


@given(st.integers(0, sizes.NARROW - 1), st.integers(2, sizes.NARROW))
def test_quotients_are_exact(index, length):
    by = sizes._divisor(length)
    assert 0 < by < 1 << 63 and by >> 32 < 64
    multiple = index // length * length
    for x in (index, multiple, max(multiple - 1, 0), sizes.NARROW - 1):
        assert x * (by & 0xFFFFFFFF) >> (by >> 32) == x // length


@pytest.mark.pairwise
@pytest.mark.parametrize("value", [0.1, -1e300, np.nan, np.inf, 17.0, 2**40, -(2**40), 2**63 + 1, 300, True])
@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "uint64", "int16", "bool"])
def test_numbers_of_lengths_keep_their_values(context, value, dtype):
    with np.errstate(all="ignore"):
        constant = np.asarray(value).astype(dtype)
    function = TracedFunction(
        context,
        lambda tracer: [applied("Second", dtype, tracer.arguments[0], Constant(constant.reshape(1), of_lengths=True))],
        [False],
    )
    (result,) = function([np.zeros(40)])
    np.testing.assert_array_equal(result, np.full(40, constant))
    assert result.dtype == dtype


@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", ["bool", "float16", "float32", "float64"])
@pytest.mark.parametrize("n", [17, 18, 34, 36, 64])
def test_quads_begin_at_any_offsets(context, n, dtype):
    """A loop's rows are parts of one array; some rows begin at addresses that are not aligned for quads."""
    if context.unsupported_reason(dtype):
        pytest.skip("the device has no such numbers")

    def describe(x):
        # Step t adds row t of `x` to the state.
        carried = Carried(7, (n,), dtype)
        row, state = StepRow(x), StepRow(carried, 0)
        carried.initial.append((0, strided(x, [Stripe(5, 1, 1), Stripe(0, 1, n)])))
        carried.written.append((1, applied("Add" if dtype != "bool" else "XOR", dtype, row, state)))
        return Iteration(6, [row, state], [carried], {}).outputs

    x = np.random.default_rng(n).integers(0, 2, (6, n)).astype(dtype)
    function = TracedFunction(context, lambda tracer: describe(*tracer.arguments), [False])
    total = np.cumsum(np.concatenate([x[5:], x]).astype("int64"), 0)
    for _ in range(3):
        np.testing.assert_array_equal(function([x])[0], (total % 2 if dtype == "bool" else total).astype(dtype))
