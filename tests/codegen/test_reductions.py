"""Reductions agree with NumPy for all axes, layouts and dtypes, with prologues and epilogues."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optdb.codegen.operation import ArraySpec
from optdb.codegen.reductions import plan
from optdb.codegen.reductions.plan import SMALLEST_PART, Axes, Reduction, parts_of
from optdb.codegen.scalars.program import ProgramBuilder, Scalar, ScalarProgram
from optdb.codegen.views import subtensor
from optdb.runtime.context import Context
from tests.codegen.layouts import STEPS, compute, context, device_array, laid_out, shapes
from tests.effort import examples

RNG = np.random.default_rng(17)
FOLDS = {"Add": np.add, "Mul": np.multiply, "Maximum": np.maximum, "Minimum": np.minimum}
FOLDS |= {"OR": np.bitwise_or, "AND": np.bitwise_and, "XOR": np.bitwise_xor}


def reduction(name, value, axes, dtype=None, acc_dtype=None):
    axes = range(value.ndim) if axes is None else axes
    dtype = dtype or value.dtype.name
    return Reduction(context(), name, [ArraySpec.of(value)], axes, dtype, acc_dtype or dtype)


def check(name, value, array, axes, dtype=None, acc_dtype=None):
    dtype = dtype or value.dtype.name
    with np.errstate(all="ignore"):
        wide = value.astype("float64") if value.dtype.kind == "f" else value
        want = FOLDS[name].reduce(wide.astype(acc_dtype or wide.dtype), None if axes is None else tuple(axes))
    (got,) = compute(reduction(name, value, axes, dtype, acc_dtype), array)
    assert got.dtype == dtype and got.shape == np.shape(want)
    np.testing.assert_allclose(got, np.asarray(want).astype(dtype), rtol=1e-3 if got.dtype == "float16" else 1e-5)


@pytest.mark.slow
@given(st.data(), st.sampled_from(["Add", "Mul", "Maximum", "Minimum"]))
@settings(max_examples=examples(50))
def test_any_axes_of_any_layout(data, name):
    shape = data.draw(shapes())
    if name in ("Maximum", "Minimum"):
        shape = tuple(max(length, 1) for length in shape)
    axes = data.draw(st.none() | st.sets(st.integers(0, len(shape) - 1)) if shape else st.none())
    value, array = data.draw(laid_out("float32", shape))
    with np.errstate(all="ignore"):
        check(name, value, array, None if axes is None else sorted(axes))


@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint64", "float16", "float32", "float64"])
@pytest.mark.parametrize("name", ["Add", "Mul", "Maximum"])
def test_dtypes(each_device_kind, dtype, name):
    value = np.array([[3, 100, 0], [5, 7, 1]]).astype(dtype)
    acc_dtype = {"float16": "float32"}.get(dtype, dtype)
    check(name, value, device_array(value, [1, -1]), [1], dtype, acc_dtype)
    check(name, value, device_array(value, [1, -1]), [1], "float64", "float64")


@pytest.mark.pairwise
@pytest.mark.parametrize("name", ["OR", "AND", "XOR"])
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64"])
def test_bits(each_device_kind, name, dtype):
    value = np.array([[1, 0, 1], [1, 1, 1], [0, 0, 0]]).astype(dtype)
    check(name, value, device_array(value), [1])
    check(name, value[:, :0], device_array(value[:, :0]), [1])


def test_nothing_folds_to_what_adds_nothing():
    value = np.zeros((0, 3), "float32")
    for axes in (None, [0], [1]):
        for name in ("Add", "Mul"):
            check(name, value, device_array(value), axes)
    with pytest.raises(ValueError, match="no elements to reduce, and maximum of no elements is undefined"):
        compute(reduction("Maximum", value, [0]), device_array(value))
    assert compute(reduction("Maximum", value, [1]), device_array(value))[0].shape == (0,)


def test_what_is_not_a_number_wins(each_device_kind):
    value = np.array([[1, np.nan, 3], [np.nan, 1, 2], [3, 2, np.nan]], "float32")
    for name in ("Maximum", "Minimum"):
        check(name, value, device_array(value), [1])


@pytest.mark.parametrize(
    "shape, axes",
    [((200_003,), None), ((3, 50_001), [1]), ((50_001, 3), [0]), ((50_001, 3), [1]), ((2, 300, 200), [0, 2])],
)
def test_much_is_folded_in_parts(each_device_kind, shape, axes):
    value = RNG.uniform(size=shape).astype("float32")
    check("Add", value, device_array(value), axes, acc_dtype="float64")
    check("Maximum", value, device_array(value, [-1] * value.ndim), axes)


@st.composite
def long_shapes(draw):
    """Draw a shape for which each item of a team folds several elements; some row lengths are multiples of four."""
    lengths = st.sampled_from([1, 2, 3, 4, 5, 8, 12, 49, 64])
    return tuple(draw(st.lists(lengths, min_size=1, max_size=5).filter(lambda shape: np.prod(shape) < 300_000)))


@pytest.mark.slow
@given(st.data(), long_shapes(), st.sampled_from(["Add", "Maximum"]), st.sampled_from(["float64", "float32"]))
@settings(max_examples=examples(80))
def test_several_axes_by_teams_of_items(data, shape, name, acc_dtype):
    axes = sorted(data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)))
    value = RNG.normal(size=shape).astype("float32")
    steps = [data.draw(st.sampled_from([1, 1, 1, 2, -1])) for _ in shape]
    array = device_array(value, steps, gpu_context)
    operation = Reduction(gpu_context(), name, [ArraySpec.of(value)], axes, "float32", acc_dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "_LEAST_FOR_QUADS", data.draw(st.sampled_from([0, 1 << 16])))
        (got,) = compute(operation, array)
    want = FOLDS[name].reduce(value.astype("float64"), tuple(axes))
    scale = np.abs(value).sum(tuple(axes), dtype="float64")
    assert np.all(np.abs(got - want) <= (1e-7 if acc_dtype == "float64" else 3e-6) * scale)


@functools.cache
def gpu_context(compute_units=3):
    """Return a context with GPU kernels."""
    made = Context("opencl")
    made.profile = made.profile.as_kind("gpu", compute_units)
    return made


@pytest.mark.pairwise
@pytest.mark.parametrize(
    "shape, axes",
    [((64, 3, 16, 16), [0, 2, 3]), ((7, 5, 7, 7), [0, 2, 3]), ((40, 9, 4), [0, 1]), ((9, 3, 4, 3, 8), [0, 2, 4])],
)
@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64", "complex64"])
def test_channels(monkeypatch, each_device_kind, shape, axes, dtype):
    value = (RNG.normal(size=shape) * 4).astype(dtype)
    acc_dtype = {"int8": "int64", "complex64": "complex128"}.get(dtype, "float64")
    monkeypatch.setattr(plan, "_LEAST_FOR_QUADS", 0)
    for steps in ([1] * len(shape), [-1] * len(shape)):
        operation = reduction("Add", value, axes, dtype, acc_dtype)
        (got,) = compute(operation, device_array(value, steps))
        want = value.sum(tuple(axes), dtype=acc_dtype).astype(dtype)
        np.testing.assert_allclose(got, want, rtol=1e-3 if dtype == "float16" else 1e-6, atol=1e-6)


def test_arrays_that_do_not_begin_at_a_multiple_of_four(each_device_kind):
    value = RNG.uniform(size=(8000, 3, 8)).astype("float32")
    product = ScalarProgram.of(Scalar("Mul", "float32"), ["float32"] * 2)
    per_channel = RNG.uniform(size=(1, 3, 1)).astype("float32")
    specs = [ArraySpec.of(value[:, :, :4]), ArraySpec("float32", (True, False, True))]
    operation = Reduction(context(), "Add", specs, [0, 2], "float32", "float64", pre=product)
    base, factors = device_array(value), device_array(per_channel)
    for first in (0, 1, 4, 0):
        view = subtensor(base, [slice(None), slice(None), slice(first, first + 4)])
        (got,) = compute(operation, view, factors)
        want = (value[:, :, first : first + 4] * per_channel).sum((0, 2), dtype="float64")
        np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("shape, axes", [((40_000,), [0]), ((6, 2, 64, 64), [0, 2, 3]), ((3000, 20), [0])])
def test_sums_are_as_exact_as_those_of_float64(each_device_kind, shape, axes):
    value = (RNG.normal(size=shape) + 1e6).astype("float32")
    value[..., ::2] *= -1
    (got,) = compute(reduction("Add", value, axes, acc_dtype="float64"), device_array(value))
    want = value.sum(tuple(axes), dtype="float64")
    scale = np.abs(value).sum(tuple(axes), dtype="float64")
    assert np.all(np.abs(got - want) <= np.spacing(np.abs(want).astype("float32")) + 1e-11 * scale)


def test_float32_that_overflows_on_the_way_is_added_up_in_float64(each_device_kind):
    value = np.full((4, 2, 4096), 3e38, "float32")
    value[2:] *= -1
    value[0, 0, 5] = 1e30
    (got,) = compute(reduction("Add", value, [0, 2], acc_dtype="float64"), device_array(value))
    np.testing.assert_allclose(got, value.sum((0, 2), dtype="float64"), rtol=1e-6)
    for special in (np.inf, -np.inf, np.nan):
        value[1, 1, 77] = special
        (got,) = compute(reduction("Add", value, [0, 2], acc_dtype="float64"), device_array(value))
        np.testing.assert_array_equal(got[1], special)


def test_an_axis_too_long_for_indexes_of_32_bits_is_the_first_one():
    long = 2**31
    axes = Axes((1,), (3, 2, long), (((0,), (2 * long, long, 1)),), ())
    moved = axes.with_longest_first()
    assert moved.folded == (long, 3, 2) and moved.steps == (((0,), (1, 2 * long, long)),)
    assert moved.with_longest_first() == moved
    short = replace(axes, folded=(3, 2, long - 1))
    assert short.with_longest_first() is short


@given(st.integers(1, 10**6), st.integers(1, 10**7), st.integers(1, 10**4))
def test_no_part_is_empty(n, m, wanted):
    parts = parts_of(n, m, wanted)
    part = -(-m // parts)
    assert parts >= 1 and (parts - 1) * part < m <= parts * part
    assert parts == 1 or part >= SMALLEST_PART // 2


@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", ["int8", "int64", "float16", "float64"])
@pytest.mark.parametrize("axes", [None, [0], [1]])
def test_products_that_leave_out_zeros(each_device_kind, dtype, axes):
    rng = np.random.default_rng(4)
    value = (rng.choice([0, 0, 1, 2, 3], (21, 37)) * (rng.uniform(size=(21, 37)) < 0.05)).astype(dtype)
    value[:, 5] = value[7] = 0
    for x in (value, value[:0], value * 0):
        axis = None if axes is None else axes[0]
        want = np.where((x != 0).any(axis), np.where(x == 0, 1, x).prod(axis, dtype="float64"), 0)
        (got,) = compute(reduction("MulWithoutZeros", x, axes), device_array(x, [-1, 2]))
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(got, want.astype(dtype))


def squares(dtype="float32"):
    return ScalarProgram.of(Scalar("Sqr", dtype), [dtype])


def scaled(dtypes):
    """Return an epilogue with two outputs: the sum of a result and a term, and this sum times a factor."""
    builder = ProgramBuilder(dtypes)
    total = builder.apply(Scalar("Add", dtypes[0]), [0, 1])
    return builder.build([total, builder.apply(Scalar("Mul", dtypes[0]), [total, 2])])


@pytest.mark.slow
@given(st.data(), st.sampled_from(["Add", "Mul"]))
@settings(max_examples=examples(40))
def test_epilogues_of_any_layout(data, name):
    shape = data.draw(shapes())
    axes = data.draw(st.sets(st.integers(0, len(shape) - 1)) if shape else st.just(set()))
    kept = [length for axis, length in enumerate(shape) if axis not in axes]
    narrow = tuple(data.draw(st.sampled_from([1, length])) for length in kept)
    value, plus, times = (RNG.uniform(0.5, 2, s).astype("float32") for s in (shape, kept, narrow))
    arrays = [device_array(v, [data.draw(STEPS) for _ in v.shape]) for v in (value, plus, times)]
    others = [ArraySpec.of(plus), ArraySpec("float32", tuple(length == 1 for length in narrow))]
    operation = Reduction(
        *(context(), name, [ArraySpec.of(value)], sorted(axes), "float32", "float32"),
        post=scaled(["float32"] * 3),
        others=others,
    )
    first, second = compute(operation, *arrays, outputs=2)
    fold = FOLDS[name].reduce(value, tuple(axes))
    np.testing.assert_allclose(first, fold + plus, rtol=1e-5)
    np.testing.assert_allclose(second, (fold + plus) * times, rtol=1e-5)


@pytest.mark.parametrize("axes", [[0], [1], [0, 1]])
def test_prologues_of_arrays_that_broadcast(each_device_kind, axes):
    a, row = RNG.uniform(size=(300, 70)).astype("float32"), RNG.uniform(size=(1, 70)).astype("float32")
    specs = [ArraySpec.of(a), ArraySpec("float32", (True, False))]
    product = ScalarProgram.of(Scalar("Mul", "float32"), ["float32"] * 2)
    operation = Reduction(context(), "Add", specs, axes, "float32", "float32", pre=product)
    (got,) = compute(operation, device_array(a, [-1, 2]), device_array(row))
    np.testing.assert_allclose(got, (a * row).sum(tuple(axes), dtype="float64"), rtol=1e-5)


def test_a_prologue_and_an_epilogue_of_much(each_device_kind):
    a = RNG.uniform(size=(200_003,)).astype("float32")
    root = ScalarProgram.of(Scalar("Sqrt", "float32"), ["float32"])
    operation = Reduction(context(), "Add", [ArraySpec.of(a)], [0], "float32", "float32", pre=squares(), post=root)
    (got,) = compute(operation, device_array(a))
    np.testing.assert_allclose(got, np.sqrt(np.square(a, dtype="float64").sum()), rtol=1e-5)
    (got,) = compute(operation, device_array(a[:0]))
    assert got == 0


def several(dtypes):
    """Return a program of two arrays: the outputs are their product, the square of the second, and the first."""
    scalars = [(Scalar("Mul", dtypes[0]), (0, 1)), (Scalar("Sqr", dtypes[1]), (1,))]
    return ScalarProgram(tuple(dtypes), tuple(scalars), (2, 3, 0))


def ratio_and_rest(dtype):
    """Return a program of results r, s, t and an array x, which computes r / x, s + x and t."""
    scalars = [(Scalar("TrueDiv", dtype), (0, 3)), (Scalar("Add", dtype), (1, 3))]
    return ScalarProgram((dtype,) * 4, tuple(scalars), (4, 5, 2))


@pytest.mark.slow
@given(st.data(), long_shapes(), st.sampled_from(["Add", "Maximum"]), st.sampled_from(["float64", "float32"]))
@settings(max_examples=examples(60))
def test_several_elements_in_one_pass(data, shape, name, acc_dtype):
    axes = sorted(data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)))
    narrow = [data.draw(st.sampled_from([1, length])) for length in shape]
    kept = [length for axis, length in enumerate(shape) if axis not in axes]
    first, second = RNG.normal(size=shape).astype("float32"), RNG.normal(size=narrow).astype("float32")
    other = RNG.uniform(1, 2, kept).astype("float32")
    steps = [[data.draw(st.sampled_from([1, 1, 1, 2, -1])) for _ in shape] for _ in range(2)]
    chosen = data.draw(st.sampled_from([gpu_context, context]))
    specs = [ArraySpec.of(first), ArraySpec("float32", tuple(length == 1 for length in narrow))]
    post = data.draw(st.sampled_from([None, ratio_and_rest("float32")]))
    arrays = [device_array(first, steps[0], chosen), device_array(second, steps[1], chosen)]
    operation = Reduction(
        *(chosen(), name, specs, axes, "float32", acc_dtype, several(["float32"] * 2), post),
        others=[] if post is None else [ArraySpec.of(other)],
    )
    arrays += [] if post is None else [device_array(other, None, chosen)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "_LEAST_FOR_QUADS", data.draw(st.sampled_from([0, 1 << 16])))
        got = compute(operation, *arrays, outputs=3)
    elements = [x.astype("float64") for x in np.broadcast_arrays(first * second, second * second, first)]
    want = [FOLDS[name].reduce(x, tuple(axes)) for x in elements]
    scales = [np.abs(x).sum(tuple(axes)) for x in elements]
    if post is not None:
        want[:2] = want[0] / other, want[1] + other
        scales[1] = scales[1] + other
    for one, value, scale in zip(got, want, scales, strict=True):
        assert np.all(np.abs(one - value) <= (2e-7 if acc_dtype == "float64" else 3e-6) * scale)


@pytest.mark.parametrize("name", ["Add", "Mul"])
def test_several_elements_of_nothing(each_device_kind, name):
    a, other = np.ones((0, 3), "float32"), np.full(3, 2, "float32")
    operation = Reduction(
        *(context(), name, [ArraySpec.of(a)] * 2, [0], "float32", "float32"),
        *(several(["float32"] * 2), ratio_and_rest("float32"), [ArraySpec.of(other)]),
    )
    nothing = FOLDS[name].reduce(a, 0)
    got = compute(operation, device_array(a), device_array(a), device_array(other), outputs=3)
    for one, value in zip(got, (nothing / other, nothing + other, nothing), strict=True):
        np.testing.assert_array_equal(one, value)


def test_several_sums_that_overflow_float32_are_added_up_in_float64():
    large = np.repeat(np.array([3e38, -3e38], "float32"), 50_000)
    ones = np.ones_like(large)
    operation = Reduction(
        *(gpu_context(), "Add", [ArraySpec.of(large)] * 2, [0], "float32", "float64", several(["float32"] * 2))
    )
    got = compute(operation, *[device_array(x, None, gpu_context) for x in (large, ones)], outputs=3)
    np.testing.assert_array_equal(np.ravel(got), [0, 100_000, 0])


def test_shapes_that_do_not_fit_are_refused():
    a, b = np.ones((3, 4), "float32"), np.ones(1, "float32")
    post = ScalarProgram.of(Scalar("Add", "float32"), ["float32"] * 2)
    operation = Reduction(
        *(context(), "Add", [ArraySpec.of(a)], [0], "float32", "float32"), post=post, others=[ArraySpec.of(b)]
    )
    with pytest.raises(ValueError, match=r"an array of shape \(1,\) for a result of \(4,\)"):
        compute(operation, device_array(a), device_array(b))


def test_operations_that_are_alike_share_their_code():
    a = np.ones((2, 3), "float32")
    kernels = [reduction(*case).kernels() for case in (("Add", a, [1]), ("Add", a, [1]), ("Add", a, [0, 1]))]
    assert kernels[0] == kernels[1] != kernels[2]
    assert kernels[0] != reduction("Maximum", a, [1]).kernels()
