"""Fused functions of lazy tensors agree with NumPy, with the kernels for processors and for other devices."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optdb.codegen.loops.body import Buffer
from optdb.codegen.loops.code import LoopCode
from optdb.codegen.scalars.program import Scalar, ScalarProgram
from optdb.device.expressions import (
    applied,
    broadcast,
    folded,
    joined,
    mapped,
    padded,
    replaced,
    reshaped,
    scattered,
    strided,
    transposed,
    view,
)
from optdb.device.functions import steps
from optdb.device.functions.function import TracedFunction
from optdb.device.plans import PlanOptions
from optdb.device.schedule.scheduler import Schedule
from optdb.device.tensors import (
    ArgumentTensor,
    Constant,
    Coordinate,
    Iota,
    Joined,
    Lookup,
    MatrixProduct,
    MatrixVector,
    Replaced,
    Scanned,
    ScatterSet,
    ScatterSum,
    Stored,
    Stripe,
)
from optdb.runtime import grid_failures
from optdb.runtime.context import Context
from optdb.runtime.device_profiles import DEVICE_KINDS
from optdb.runtime.errors import DeviceError
from tests.effort import examples
from tests.opencl_device import new_context

F = "float64"
RNG = np.random.default_rng(1)


@pytest.fixture(scope="module", params=DEVICE_KINDS)
def context(request):
    made = new_context()
    made.profile = made.profile.as_kind(request.param)
    return made


def computed(context, describe, *args, rtol=0.0):
    """Return a function's outputs and plan; check that repeated calls give the same outputs within a tolerance."""
    args = [np.asarray(arg) for arg in args]
    function = TracedFunction(context, lambda tracer: describe(*tracer.arguments), [False] * len(args))
    first = function(args)
    other = [arg[..., ::-1].copy() if arg.ndim else arg for arg in args]
    expected = TracedFunction(context, lambda tracer: describe(*tracer.arguments), [False] * len(args))(other)
    for given_args, results in ((args, first), (other, expected), (args, first)):
        for value, result in zip(function(given_args), results, strict=True):
            np.testing.assert_allclose(value, result, rtol=rtol, atol=rtol)
    assert len(function.traced_calls) == 1
    return first, function.traced_calls[0][1]


def compare(results, expected, rtol=1e-10):
    for result, value in zip(results, expected, strict=True):
        assert result.shape == value.shape
        np.testing.assert_allclose(result, value, rtol=rtol, atol=1e-12)


def rows(index, width=0):
    """Return the coordinates of rows that an index selects."""
    return [Coordinate(0, (), Lookup(index, (0,))), *[Coordinate(0, ((axis + 1, 1),)) for axis in range(width)]]


@pytest.mark.parametrize("n", [1, 5, 1000])
def test_folds_over_short_and_long_axes_share_a_pass(context, n):
    x, y = RNG.normal(size=(n, 3)), RNG.normal(size=3)

    def describe(tx, ty):
        power = applied("Exp", F, applied("Mul", F, tx, padded(ty, 2)))
        total = folded("Add", power, [1], F)
        log = applied("Log", F, total)
        share = applied("TrueDiv", F, power, transposed(total, [0, None]))
        weighed = folded("Add", applied("Mul", F, share, tx), [0], F)
        all_of_it = folded("Add", log, [0], F)
        largest = folded("Maximum", tx, [0, 1], F)
        return [all_of_it, weighed, share, log, largest, joined([weighed, transposed(all_of_it, [None]), ty], 0)]

    results, plan = computed(context, describe, x, y)
    power = np.exp(x * y)
    share, log = power / power.sum(1, keepdims=True), np.log(power.sum(1))
    weighed = (share * x).sum(0)
    compare(results, [log.sum(), weighed, share, log, x.max(), np.concatenate([weighed, [log.sum()], y])])
    if context.profile.device_kind == "cpu" and n == 1000:
        (work,) = plan.device_work
        assert work.count("a loop over") == 2


def test_a_linear_model_reads_its_matrix_once(context):
    x, b = RNG.normal(size=(1000, 37)), RNG.normal(size=37) / 5

    def describe(tx, tb):
        chance = applied("ScalarSigmoid", F, MatrixVector(tx, tb))
        return [folded("Add", applied("Log", F, chance), [0], F), MatrixVector(transposed(tx, [1, 0]), chance)]

    results, plan = computed(context, describe, x, b)
    chance = 1 / (1 + np.exp(-x @ b))
    compare(results, [np.log(chance).sum(), x.T @ chance])
    if context.profile.device_kind == "cpu":
        (step,) = [step for step in plan.device_steps if "1000 points" in str(step)]
        # Few rows with many elements are divided among all compute units.
        units = context.profile.compute_units
        assert units == 1 or step.step.grid.parts > 1


@pytest.mark.parametrize("columns", [1, 3, 16, 33])
def test_values_of_a_row_are_computed_once(context, columns):
    index = RNG.integers(0, 300, 300)
    x, y = RNG.normal(size=(300, columns)), RNG.uniform(size=300)

    def describe(tx, ty):
        taken = view(tx, (300, columns), rows(Constant(index), 1))
        return [applied("Mul", F, taken, transposed(applied("Sqrt", F, ty), [0, None]))]

    results, plan = computed(context, describe, x, y)
    compare(results, [x[index] * np.sqrt(y)[:, None]])
    step = plan.device_steps[-1]
    if context.profile.runs_items_serially and columns > 1 and isinstance(step, steps.CompiledFusedKernel):
        # No value is loaded in all lanes of a vector, and only the table's elements are loaded as vectors.
        code = LoopCode(step.step.kernel).source
        assert ", 0L, count)" not in code and code.count(", 1, count)") == 1


def test_rows_are_gathered_and_scattered(context):
    index = RNG.integers(0, 20, 500)
    x, y = RNG.normal(size=(20, 4)), RNG.normal(size=500)

    def describe(tx, ty):
        taken = view(tx, (500, 4), rows(Constant(index), 1))
        product = applied("Mul", F, folded("Add", taken, [1], F), ty)
        spread = applied("Mul", F, taken, transposed(product, [0, None]))
        return [folded("Add", product, [0], F), ScatterSum(spread, (20, 4), rows(Constant(index), 1))]

    product = x[index].sum(1) * y
    scattered_values = np.zeros((20, 4))
    np.add.at(scattered_values, index, x[index] * product[:, None])
    # A GPU adds rows that have the same index in any order.
    rtol = 0.0 if context.profile.device_kind == "cpu" else 1e-12
    compare(computed(context, describe, x, y, rtol=rtol)[0], [product.sum(), scattered_values])


def test_the_last_value_wins(context):
    index, base, y = np.array([3, 1, 3, 3, 0]), RNG.normal(size=5), RNG.normal(size=5)
    expected = base.copy()
    expected[index] = y
    compare(computed(context, lambda a, b: [ScatterSet(a, b, rows(Constant(index)))], base, y)[0], [expected])


def test_one_element_of_each_row(context):
    index, x = RNG.integers(0, 6, 400), RNG.normal(size=400)
    here = [Coordinate(0, ((0, 1),)), Coordinate(0, (), Lookup(Constant(index), (0,)))]

    def describe(tx):
        spread = scattered(tx, (400, 6), here)
        assert not isinstance(spread, ScatterSum)
        return [spread, view(applied("Exp", F, spread), (400,), here)]

    expected = np.zeros((400, 6))
    expected[np.arange(400), index] = x
    compare(computed(context, describe, x)[0], [expected, np.exp(x)])


def test_strided_parts_are_replaced(context):
    x, y = RNG.normal(size=(30, 20)), RNG.normal(size=(5, 10))
    expected = x.copy()
    expected[3:13:2, 19::-2] = y
    stripes = [Stripe(3, 2, 5), Stripe(19, -2, 10)]

    def describe(tx, ty):
        changed = Replaced(tx, ty, stripes)
        return [changed, folded("Add", changed, [0], F), strided(changed, stripes)]

    compare(computed(context, describe, x, y)[0], [expected, expected.sum(0), y])


def test_slices_that_replace_all_elements_are_joined(context):
    x, y, z = RNG.normal(size=(30, 20)), RNG.normal(size=(30, 12)), RNG.normal(size=(1, 8))
    first, last = [Stripe(0, 1, 30), Stripe(0, 1, 12)], [Stripe(0, 1, 30), Stripe(12, 1, 8)]

    def describe(tx, ty, tz):
        whole = replaced(replaced(tx, tz, last), ty, first)
        assert isinstance(whole, Joined)
        assert strided(whole, [Stripe(3, 2, 9), Stripe(1, 5, 2)]).x is ty
        assert isinstance(replaced(replaced(tx, tz, last), ty, [first[0], Stripe(1, 1, 12)]), Replaced)
        assert isinstance(replaced(replaced(tx, tz, [last[0], Stripe(11, 1, 8)]), ty, first), Replaced)
        return [
            whole,
            folded("Add", whole, [1], F),
            strided(whole, last),
            strided(whole, [Stripe(29, -1, 30), last[1]]),
        ]

    whole = np.concatenate([y, np.broadcast_to(z, (30, 8))], 1)
    compare(computed(context, describe, x, y, z)[0], [whole, whole.sum(1), whole[:, 12:], whole[::-1, 12:]])


@pytest.mark.parametrize("order", [1, -1])
def test_many_slices_are_added_to_zeros_one_after_another(order):
    count = 3000
    base = x = broadcast(Constant(np.zeros(())), (count, 2))
    for row in range(count)[::order]:
        stripes = [Stripe(row, 1, 1), Stripe(0, 1, 2)]
        taken = strided(x, stripes)
        assert taken.x is base.x
        x = replaced(x, applied("Add", F, taken, ArgumentTensor((1, 2), F)), stripes)
    assert isinstance(x, Joined) and len(x.parts) == count


def test_views_of_replaced_tensors_read_what_they_need(context):
    x, y = RNG.normal(size=(30, 20)), RNG.normal(size=(5, 1))

    def describe(tx, ty):
        changed = Replaced(tx, ty, [Stripe(3, 1, 5), Stripe(2, 1, 10)])
        inside = strided(changed, [Stripe(7, -2, 3), Stripe(4, 3, 2)])
        outside = strided(changed, [Stripe(0, 1, 30), Stripe(12, 1, 8)])
        assert (inside.x, outside.x) == (ty, tx)
        return [inside, outside, strided(changed, [Stripe(4, 1, 9), Stripe(4, 1, 9)])]

    expected = x.copy()
    expected[3:8, 2:12] = y
    parts = [expected[[7, 5, 3], 4:8:3], expected[:, 12:], expected[4:13, 4:13]]
    compare(computed(context, describe, x, y)[0], parts)


@pytest.mark.parametrize(
    "exponent", [-4, -2.5, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 3.5, 4.5, 5, 0.3, np.inf, np.nan]
)
def test_powers_with_constant_exponents(context, exponent):
    x = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -3.0, 1e100, 1e-100, np.inf, -np.inf, np.nan, *RNG.normal(size=9)])

    def describe(tx):
        return [applied("Pow", F, tx, Constant(np.full(1, exponent)))]

    with np.errstate(all="ignore"):
        # Pass the exponent as an array, because NumPy computes roots differently if the exponent is a single number.
        expected = np.power(x, np.full_like(x, exponent))
    (result,), _ = computed(context, describe, x)
    np.testing.assert_allclose(result, expected, rtol=1e-13)
    np.testing.assert_array_equal(np.isinf(result), np.isinf(expected))
    zeros = expected == 0
    np.testing.assert_array_equal(np.signbit(result[zeros]), np.signbit(expected[zeros]))


@pytest.mark.parametrize("n", [7, 300])
def test_cumulative_sums(context, n):
    x = RNG.normal(size=(n, 4))

    def describe(tx):
        along = Scanned("Add", tx, 0)
        return [along, applied("Exp", F, along), folded("Mul", Scanned("Mul", tx, 1), [1], F)]

    expected = np.cumsum(x, 0)
    compare(computed(context, describe, x)[0], [expected, np.exp(expected), np.cumprod(x, 1).prod(1)])


def test_a_long_cumulative_sum_that_is_only_a_result_is_not_unrolled(context):
    x = RNG.normal(size=300)
    (result,), plan = computed(context, lambda tx: [Scanned("Add", tx, 0)], x)
    np.testing.assert_allclose(result, np.cumsum(x), rtol=1e-10)
    assert len(plan.device_work) == 1 and "loop" not in plan.device_work[0]


def test_operations_write_results_and_next_values_themselves(context):
    """Results of operations are not copied, even if they are reshaped, read by other nodes, or returned twice."""
    x = RNG.normal(size=(30, 40))

    def describe(tx):
        product = MatrixProduct(tx, transposed(tx, [1, 0])).outputs[0]
        sums = folded("Add", applied("Exp", F, tx), [1], F)
        return [product, reshaped(product, (900,)), transposed(sums, [None, 0]), Scanned("Add", tx, 1)]

    results, plan = computed(context, describe, x, rtol=1e-12)
    compare(results, [x @ x.T, (x @ x.T).reshape(-1), np.exp(x).sum(1)[None], x.cumsum(1)])
    assert sum("loop" in work for work in plan.device_work) == 1  # the product is returned twice
    (next_value, result), plan = computed(context, lambda tx: [*2 * [MatrixProduct(tx, tx).outputs[0]]], x[:, :30])
    compare([next_value, result], [x[:, :30] @ x[:, :30]] * 2)


def test_a_result_that_others_replace_is_stored_apart(context):
    """The product is a result, and the base of an array whose slices are set."""
    x = RNG.normal(size=(30, 40))

    def describe(tx):
        product = MatrixProduct(tx, transposed(tx, [1, 0])).outputs[0]
        part = Constant(np.zeros((2, 30)))
        return [replaced(product, part, [Stripe(3, 1, 2), Stripe(0, 1, 30)]), product, applied("Exp", F, product)]

    expected = x @ x.T
    zeroed = expected.copy()
    zeroed[3:5] = 0
    for order in ([0, 1, 2], [1, 0, 2], [2, 1, 0]):
        results, _ = computed(context, lambda tx, order=order: [describe(tx)[n] for n in order], x, rtol=1e-12)
        compare(results, [[zeroed, expected, np.exp(expected)][n] for n in order])


def test_a_condition_for_all_elements_takes_no_pass_of_its_own(context):
    x = RNG.normal(size=2000)

    def describe(tx):
        fine = folded("AND", applied("GT", "bool", tx, Constant(np.full(1, -100.0))), [0], "bool")
        chosen = applied("Switch", F, transposed(fine, [None]), applied("Exp", F, tx), Constant(np.full(1, -np.inf)))
        return [folded("Add", chosen, [0], F)]

    results, plan = computed(context, describe, x)
    compare(results, [np.exp(x).sum()])
    assert sum("2000 points" in work for work in plan.device_work) == 1


@pytest.mark.parametrize("shape", [(60,), (40, 3), (20, 30)])
def test_a_second_pass_loads_what_slow_functions_computed_in_the_first(context, shape):
    x = RNG.normal(size=shape)
    axes = list(range(x.ndim))

    def describe(tx):
        slow = applied("Erfc", F, tx)
        total = transposed(folded("Add", slow, axes, F), [None] * x.ndim)
        return [folded("Add", applied("Abs", F, applied("Sub", F, slow, total)), axes, F)]

    results, _ = computed(context, describe, x, rtol=1e-14)
    slow = np.vectorize(math.erfc)(x)
    compare(results, [np.abs(slow - slow.sum()).sum()])
    schedule = Schedule(context)
    stored = Stored(Buffer(x.size, F), shape)
    schedule.store(describe(stored)[0])
    names = [[scalar.name for scalar, _ in step.kernel.program.steps] for step in schedule.steps()]
    assert sum("Erfc" in each for each in names) == 1


def test_a_pass_that_unrolls_an_axis_loads_what_another_pass_computed(context):
    schedule = Schedule(context)
    stored = Stored(Buffer(400 * 5, F), (400, 5))
    slow = applied("Erfc", F, stored)
    total = transposed(folded("Add", slow, [0, 1], F), [None, None])
    shifted = applied("Sub", F, slow, total)
    schedule.store(folded("Mul", shifted, [1], F))
    schedule.store(shifted)
    looping = [step for step in schedule.steps() if step.loops]
    assert {step.kernel.body.domain for step in looping} == {(400,), (400, 5)}
    assert sum(any(scalar.name == "Erfc" for scalar, _ in step.kernel.program.steps) for step in looping) == 1


def test_bodies_that_are_too_large_are_divided(context):
    x = RNG.normal(size=(40, 12, 12)) / 12

    def describe(tx):
        product = tx
        for _ in range(5):
            terms = applied("Mul", F, transposed(product, [0, 1, None, 2]), transposed(tx, [0, None, 2, 1]))
            product = applied("Sin", F, folded("Add", terms, [3], F))
        return [product, folded("Add", product, [0, 1, 2], F)]

    expected = x
    for _ in range(5):
        expected = np.sin(expected @ x)
    compare(computed(context, describe, x)[0], [expected, expected.sum()], rtol=1e-9)


def test_a_function_is_traced_for_each_shape_and_each_value_that_it_depends_on():
    context = Context("opencl")
    traced = []

    def trace(tracer):
        x, n = tracer.arguments
        count = int(tracer.concrete(n))
        traced.append(count)
        tracer.check(applied("GT", "bool", x, Constant(np.zeros(1))), lambda: ValueError("not positive"))
        return [folded("Add", strided(x, [Stripe(0, 1, count)]), [0], F)]

    function = TracedFunction(context, trace, [False, False])
    x = np.arange(1.0, 9.0)
    for count in (3, 5, 3, 5, 3):
        assert function([x, np.asarray(count)]) == [x[:count].sum()]
    assert function([x[:6], np.asarray(3)]) == [6.0]
    assert traced == [3, 5, 3]
    with pytest.raises(ValueError, match="not positive"):
        function([-x, np.asarray(3)])
    assert function([x, np.asarray(3)]) == [6.0]


def test_the_host_computes_within_a_function():
    context = Context("opencl")

    def trace(tracer):
        (x,) = tracer.arguments
        (unique,) = tracer.on_host(lambda values: [np.unique(values[0])], [applied("Sqr", F, x)])
        return [folded("Add", unique, [0], F), applied("Exp", F, unique), applied("Exp", F, x)]

    function = TracedFunction(context, trace, [False])
    for x in ([1.0, -1.0, 2.0], [3.0, -3.0, 1.0], [1.0, 2.0, 3.0], [2.0, 5.0, 3.0]):
        unique = np.unique(np.square(x))
        compare(function([np.asarray(x)]), [unique.sum(), np.exp(unique), np.exp(x)])


def in_caller(context):
    """If the driver is PoCL, let the context treat its device as one that runs commands in the calling thread."""
    if context.profile.short_name == "pocl":
        context.profile = replace(context.profile, driver=replace(context.profile.driver, device="basic"))
        assert context.profile.runs_in_caller


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_random_expressions(data):
    context = Context("opencl")
    if data.draw(st.booleans()):
        in_caller(context)
    ndim = data.draw(st.integers(0, 3))
    shape = tuple(data.draw(st.sampled_from([1, 2, 5, 17, 40, 0])) for _ in range(ndim))
    arrays = []
    for _ in range(2):
        own = tuple(data.draw(st.sampled_from([1, length])) for length in shape)
        arrays.append(RNG.integers(-3, 4, own).astype(data.draw(st.sampled_from(["float64", "int64", "float32"]))))
    axes = data.draw(st.lists(st.integers(0, ndim - 1), unique=True)) if ndim else []
    order = data.draw(st.permutations(range(ndim)))
    # Longer products overflow, and infinity times 0 depends on the order of the factors.
    folds = ["Add", "Mul"] if math.prod(shape[axis] for axis in axes) <= 300 else ["Add"]
    fold = data.draw(st.sampled_from(folds))

    def describe(a, b):
        (total,) = mapped(ScalarProgram.of(Scalar("Add", F), [a.dtype, b.dtype]), [a, b])
        whole = broadcast(total, shape)
        turned = transposed(whole, order)
        flat = reshaped(turned, (turned.size,))
        kept = folded(fold, whole, axes, F)
        counted = applied("Add", F, flat, Iota(flat.size)) if flat.size else flat
        return [turned, flat, kept, applied("Sqr", F, kept), counted, folded("Add", flat, [0], F)]

    a, b = arrays
    function = TracedFunction(context, lambda tracer: describe(*tracer.arguments), [False, False])
    whole = np.broadcast_to(a.astype(F) + b, shape)
    flat = whole.transpose(order).ravel()
    kept = (np.sum if fold == "Add" else np.prod)(whole, axis=tuple(axes))
    expected = [whole.transpose(order), flat, kept, kept**2, flat + np.arange(flat.size), flat.sum()]
    for _ in range(3):
        compare(function([a, b]), expected)


#: The number of sums, which suffices for merged launches even on a GPU, whose kernels compute more than a CPU's.
CHAINED = 12


def chained(tracer):
    """Return sums that are computed by consecutive small launches."""
    (x,) = tracer.arguments
    sums = [folded("Add", applied("Exp", F, x), [0], F)]
    for number in range(1, CHAINED):
        with_last = applied(("Sub", "Mul")[number % 2], F, x, transposed(sums[-1], [None]))
        sums.append(folded(("Add", "Maximum")[number % 2], with_last, [0], F))
    return sums


def chained_by_numpy(x):
    """Return the results of `chained` in NumPy."""
    sums = [np.exp(x).sum()]
    for number in range(1, CHAINED):
        sums.append((x * sums[-1]).max() if number % 2 else (x - sums[-1]).sum())
    return sums


@pytest.mark.parametrize("caller", [False, True])
def test_loops_of_one_item_become_one_kernel(caller):
    """On a CPU, kernels of one item each are merged into one kernel; results and larger loops do not change."""
    context = new_context()
    if not context.profile.runs_items_serially:
        pytest.skip("a GPU's kernels have many items")
    if caller:
        in_caller(context)
    function = TracedFunction(context, chained, [False])
    for size in (7, 40, 7, 200_000, 40):
        x = np.random.default_rng(size).normal(size=size) / size
        for _ in range(3):
            compare(function([x]), chained_by_numpy(x))
    found = {shape: call.device_steps for (shape,), call in function.traced_calls}
    assert len(found[7,]) == len(found[40,]) == 1
    assert len(found[200_000,]) > CHAINED


@pytest.mark.parametrize("caller", [False, True])
def test_other_steps_read_what_a_sequence_of_loops_writes(caller):
    context = new_context()
    if caller:
        in_caller(context)
    large = np.linspace(0, 1, 5000)

    def trace(tracer):
        x, y = tracer.arguments
        scaled = applied("Mul", F, x, transposed(folded("Add", applied("Exp", F, x), [0], F), [None]))
        sums = Scanned("Add", scaled, 0)
        products = MatrixVector(y, sums)
        total = folded("Add", applied("Add", F, products, Constant(large[:3])), [0], F)
        return [total, folded("Maximum", applied("Mul", F, Constant(large), transposed(total, [None])), [0], F)]

    function = TracedFunction(context, trace, [False, False])
    for seed in range(4):
        rng = np.random.default_rng(seed)
        x, y = rng.normal(size=40), rng.normal(size=(3, 40))
        total = (y @ np.cumsum(x * np.exp(x).sum()) + large[:3]).sum()
        compare(function([x, y]), [total, (large * total).max()])


@pytest.mark.parametrize("caller", [False, True])
def test_sequences_of_loops_before_and_after_work_on_the_host_share_values(caller):
    context = new_context()
    if caller:
        in_caller(context)
    weights = np.linspace(1, 2, 20)

    def trace(tracer):
        (x,) = tracer.arguments
        total = folded("Add", applied("Mul", F, x, Constant(weights)), [0], F)
        scaled = applied("Mul", F, applied("Exp", F, x), transposed(total, [None]))
        (largest,) = tracer.on_host(lambda values: [values[0].max(keepdims=True)], [scaled])
        shifted = applied("Sub", F, applied("Mul", F, scaled, Constant(weights)), largest)
        return [folded("Add", shifted, [0], F), applied("Add", F, transposed(total, [None]), shifted)]

    function = TracedFunction(context, trace, [False])
    for seed in range(5):
        x = np.random.default_rng(seed).normal(size=20)
        total = (x * weights).sum()
        scaled = np.exp(x) * total
        shifted = scaled * weights - scaled.max()
        compare(function([x]), [shifted.sum(), total + shifted])
    ((_, call),) = function.traced_calls
    if context.profile.runs_items_serially:  # a GPU merges such loops only after some time
        assert len(call.device_steps) == 2


def test_a_sequence_with_too_many_arrays_becomes_several_kernels(monkeypatch):
    monkeypatch.setattr(steps, "MOST_BUFFERS", 6)
    context = new_context()
    function = TracedFunction(context, chained, [False])
    for seed in range(4):
        x = np.random.default_rng(seed).normal(size=7)
        compare(function([x]), chained_by_numpy(x))
    ((_, call),) = function.traced_calls
    assert 1 < len(call.device_steps) <= CHAINED


@pytest.mark.parametrize("merge", ["always", "never"])
def test_small_launches_are_merged_as_the_options_say(merge):
    context = new_context()
    # On a GPU, merged launches are persistent launches. Unless the option is "always", launches are merged only after
    # some time.
    persist = "auto" if context.profile.runs_items_serially else merge
    on_cpu = context.profile.runs_items_serially

    def trace(tracer):
        # On a CPU, two loops are one launch unless there is an operation between them.
        (x,) = tracer.arguments
        return [*chained(tracer), folded("Add", Scanned("Add", x, 0), [0], F)] if on_cpu else chained(tracer)

    function = TracedFunction(context, trace, [False], PlanOptions(merge, persist))
    for seed in range(12):
        x = np.random.default_rng(seed).normal(size=40)
        compare(function([x]), [*chained_by_numpy(x), np.cumsum(x).sum()][: None if on_cpu else CHAINED])
    ((_, call),) = function.traced_calls
    (plan,) = call.plans
    assert (plan.enqueued < plan.commands) == (merge == "always")
    assert plan.enqueued or merge == "never"


def test_a_resident_array_may_become_another_one(context):
    data = [RNG.normal(size=(200, 50)) for _ in range(2)]
    function = TracedFunction(
        context, lambda tracer: [folded("Add", applied("Mul", F, *tracer.arguments), [0, 1], F)], [True, False]
    )
    for number in (0, 0, 0, 1, 1, 0, 1, 0, 0):
        scale = RNG.normal(size=(200, 50))
        compare(function([data[number], scale]), [(data[number] * scale).sum()])


def test_what_the_host_computes_is_computed_in_each_call(context):
    counts = []

    class Doubled:
        def __call__(self, values):
            counts.append(1)
            return [2 * values[0]]

        def __str__(self):
            return "doubled"

    def describe(tracer):
        total = folded("Add", applied("Exp", F, tracer.arguments[0]), [1], F)
        (twice,) = tracer.on_host(Doubled(), [total])
        return [applied("Mul", F, twice, total), twice]

    function = TracedFunction(context, describe, [False])
    for number in range(1, 7):
        x = RNG.normal(size=(5, 3))
        total = np.exp(x).sum(1)
        compare(function([x]), [2 * total**2, 2 * total])
        assert len(counts) == number


def test_a_call_that_the_host_stops_leaves_the_function_whole(context):
    fails = []

    class Checked:
        def __call__(self, values):
            if fails:
                raise ValueError("no")
            return [values[0] + 1]

    def describe(tracer):
        total = folded("Add", applied("Exp", F, tracer.arguments[0]), [0], F)
        (more,) = tracer.on_host(Checked(), [total])
        return [applied("Mul", F, more, total)]

    function = TracedFunction(context, describe, [False])
    for number in range(8):
        x = RNG.normal(size=6)
        fails[:] = [True] if number in (2, 5) else []
        if fails:
            with pytest.raises(ValueError, match="no"):
                function([x])
            continue
        total = np.exp(x).sum()
        compare(function([x]), [(total + 1) * total])
    assert len(function.traced_calls) == 1


def test_a_value_that_differs_makes_another_trace(context):
    def describe(tracer):
        total = folded("Add", tracer.arguments[0], [0], F)
        return [
            total
            if tracer.concrete(applied("GT", "bool", total, Constant(np.array(0.0))))
            else applied("Neg", F, total)
        ]

    function = TracedFunction(context, describe, [False])
    for sign in (1, 1, 1, -1, -1, -1, 1, 1):
        x = sign * np.abs(RNG.normal(size=6))
        compare(function([x]), [abs(x.sum())])


def test_a_persistent_launch_that_failed_is_an_error_of_the_call():
    """Write the flag words as a kernel does if some of its groups are not resident; the call then raises an error."""
    context = new_context()
    context.options = replace(context.options, most_work_in_caller=0)  # in the calling thread, no launch is persistent
    function = TracedFunction(context, lambda tracer: [applied("Exp", F, *tracer.arguments)], [False])
    function([np.zeros(3)])
    words = grid_failures.grid_words(context.cl_context)
    grid_failures.cl.enqueue_copy(context.queue, words, np.array([1, 0, 1], np.uint32))
    with pytest.raises(DeviceError, match="was aborted"):
        function([np.zeros(3)])
    np.testing.assert_array_equal(function([np.zeros(3)]), [np.ones(3)])
