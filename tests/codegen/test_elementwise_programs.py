"""Scalar programs are applied to arrays of various shapes, layouts and dtypes, also in place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optdb.codegen.elementwise_programs import Elementwise, program_elements
from optdb.codegen.kernels import compile_kernels
from optdb.codegen.layout import chunks, collapse
from optdb.codegen.operation import ArraySpec
from optdb.codegen.scalars.program import Number, ProgramBuilder, Scalar, ScalarProgram
from optdb.codegen.views import subtensor
from optdb.runtime.dispatch import listened
from optdb.runtime.timing import Timer
from tests.codegen.layouts import STEPS, broadcast_pair, compute, context, device_array, laid_out
from tests.effort import examples

DTYPES = ["bool", "int8", "uint16", "int32", "int64", "uint64", "float16", "float32", "float64"]
FUNCTIONS = {"Add": np.add, "Maximum": np.maximum, "Mul": np.multiply, "Sub": np.subtract, "Exp": np.exp}


def spec(value, pattern=None):
    return ArraySpec(value.dtype.name, tuple(length == 1 for length in value.shape) if pattern is None else pattern)


def check(name, pairs, patterns=None):
    """Compare a scalar op on device arrays with NumPy; `pairs` are NumPy arrays and equal device arrays."""
    values, arrays = zip(*pairs)
    with np.errstate(all="ignore"):
        want = FUNCTIONS[name](*values)
    specs = [spec(*pair) for pair in zip(values, patterns or [None] * len(values))]
    program = ScalarProgram.of(Scalar(name, want.dtype.name), [x.dtype for x in specs])
    (got,) = compute(Elementwise(context(), program, specs), *arrays)
    assert got.dtype == want.dtype and got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-3 if got.dtype == "float16" else 1e-5)


@pytest.mark.slow
@given(st.data())
@settings(max_examples=examples(40))
def test_adds_arrays_of_any_layout_that_broadcast(data):
    dtypes = data.draw(st.sampled_from([("float32", "float32"), ("int32", "float32"), ("float64", "int8")]))
    check("Add", data.draw(broadcast_pair(dtypes)))


@pytest.mark.slow
@given(st.data(), st.sampled_from(DTYPES))
@settings(max_examples=examples(30))
def test_all_dtypes(data, dtype):
    check("Maximum", [data.draw(laid_out(dtype, (3, 2))), data.draw(laid_out(dtype, (3, 2)))])


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_casts_to_every_other(each_device_kind, dtype):
    value = np.array([[0, 1, 5], [100, 3, 1]]).astype(dtype)
    for target in ("int16", "bool", "float16", "float32"):
        cast = Elementwise(context(), ScalarProgram.of(Scalar("Cast", target), [dtype]), [spec(value)])
        np.testing.assert_array_equal(compute(cast, device_array(value, [1, -2]))[0], value.astype(target))


def test_halves_are_rounded_once_at_the_end(each_device_kind):
    value = np.array([0.1, 300.0, 1e-3, -7.3], np.float16)
    builder = ProgramBuilder(["float16"])
    double = builder.apply(Scalar("Add", "float16"), [0, 0])
    program = builder.build([builder.apply(Scalar("Mul", "float16"), [double, 0])])
    wide = value.astype(np.float64)
    with np.errstate(over="ignore"):
        want = (2 * wide * wide).astype(np.float16)
    np.testing.assert_array_equal(compute(Elementwise(context(), program, [spec(value)]), device_array(value))[0], want)


def test_several_outputs_and_numbers_as_arguments(each_device_kind):
    a, b = np.linspace(-2, 2, 5).astype("float32"), np.arange(5)
    builder = ProgramBuilder(["float32", "int64"])
    scaled = builder.apply(Scalar("Mul", "float32"), [0, Number.of(1 / 3, "float32")])
    slots = [builder.apply(Scalar("Add", "float64"), [scaled, 1]), builder.apply(Scalar("LT", "bool"), [0, 1])]
    program = builder.build([*slots, 1])
    for program.takes_arguments in (False, True):
        operation = Elementwise(context(), program, [spec(a), spec(b)])
        first, second, third = compute(operation, device_array(a), device_array(b, [-2]), outputs=3)
        np.testing.assert_array_equal(first, a * np.float32(1 / 3) + b.astype("float64"))
        np.testing.assert_array_equal(second, a < b)
        np.testing.assert_array_equal(third, b)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1, 1), (5,)])
@pytest.mark.parametrize("known", [True, False])
def test_empty_and_single_arrays(each_device_kind, shape, known):
    value = np.ones(shape, "float32")
    check("Exp", [(value, device_array(value))], [tuple(known and length == 1 for length in shape)])


def test_large_arrays_are_shared_by_many_items(each_device_kind):
    n = 70_001
    a, b = np.arange(n, dtype="float32"), np.arange(7, dtype="float32")
    check("Mul", [(a, device_array(a)), (a[::-1].copy(), device_array(a[::-1], [-1]))])
    m = np.tile(a[:10_003], (7, 1))
    check("Sub", [(m, device_array(m, [2, 1])), (b[:, None], device_array(b[:, None]))])


@pytest.mark.parametrize("steps", [[1, 1], [-1, 2]])
def test_in_place(each_device_kind, steps):
    a, b = np.arange(6, dtype="float32").reshape(2, 3), np.array([[1, 10, 100]], dtype="float32")
    x, y = device_array(a, steps), device_array(b)
    program = ScalarProgram.of(Scalar("Add", "float32"), ["float32"] * 2)
    operation = Elementwise(context(), program, [spec(a), spec(b)], {0: 0})
    assert operation.compute(x, y) == [x]
    np.testing.assert_array_equal(x.get(), a + b)


ROWS = [
    ((5, 3, 8), [(1, 3, 1), (5, 3, 8), (1, 1, 8)]),
    ((6, 4), [(6, 1), (1, 4)]),
    ((3, 2, 4, 6), [(3, 2, 4, 6), (1, 2, 1, 1)]),
    ((5, 7), [(5, 1), (5, 7)]),
    ((0, 4), [(1, 4), (0, 4)]),
]


@pytest.mark.pairwise
@pytest.mark.parametrize(("shape", "others"), ROWS)
@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64"])
def test_rows_of_four_and_channels(each_device_kind, shape, others, dtype):
    rng = np.random.default_rng(5)
    values = [rng.integers(-20, 20, other).astype(dtype) for other in others]
    for steps in (1, -1):
        arrays = [device_array(value, [1] * (value.ndim - 1) + [steps]) for value in values]
        builder = ProgramBuilder([dtype] * len(values))
        total = 0
        for slot in range(1, len(values)):
            total = builder.apply(Scalar("Add", dtype), [total, slot])
        doubled = builder.apply(Scalar("Add", dtype), [total, total])
        operation = Elementwise(context(), builder.build([total, doubled]), [spec(value) for value in values])
        first, second = compute(operation, *arrays, outputs=2)
        np.testing.assert_array_equal(first, np.broadcast_to(sum(values[1:], values[0]), shape))
        np.testing.assert_array_equal(second, first + first)


@pytest.mark.parametrize(
    ("shape", "items", "kernel"),
    [
        *[((5, 3, 8), 119, "row_quads"), ((5, 3, 6), 0, "narrow"), ((15, 1, 8), 119, "quads")],
        # There are enough work items to give each element its own item.
        *[((5, 3, 8), 120, "narrow"), ((15, 1, 8), 120, "narrow")],
    ],
)
def test_kernels_of_a_gpu(monkeypatch, shape, items, kernel):
    profile = replace(context().profile.as_kind("gpu"), items_at_once=items, compute_units=1)
    monkeypatch.setattr(context(), "profile", profile)
    x, channels = np.ones(shape, "float32"), np.ones((1, shape[1], 1), "float32")
    operation = Elementwise(
        context(), ScalarProgram.of(Scalar("Add", "float32"), ["float32"] * 2), [spec(x), spec(channels)]
    )
    timer, arrays = Timer(), (device_array(x), device_array(channels))
    with listened(timer):
        compute(operation, *arrays)
    launched = [timed.command.kernel.function_name for timed in timer.commands if hasattr(timed.command, "kernel")]
    assert [name.split("__")[0] for name in launched] == [f"elements_{kernel}"]


def test_rows_that_do_not_begin_at_a_multiple_of_four(each_device_kind):
    base, channels = np.arange(96, dtype="float32").reshape(4, 3, 8), np.arange(3, dtype="float32").reshape(1, 3, 1)
    product = ScalarProgram.of(Scalar("Mul", "float32"), ["float32"] * 2)
    operation = Elementwise(context(), product, [spec(base), spec(channels)])
    whole, on_channels = device_array(base), device_array(channels)
    for first in (0, 1, 4, 3, 0):
        view = subtensor(whole, [slice(None), slice(None), slice(first, first + 4)])
        (got,) = compute(operation, view, on_channels)
        np.testing.assert_array_equal(got, base[:, :, first : first + 4] * channels)


def test_one_array_several_times():
    a = np.arange(6, dtype="float32")
    program = ScalarProgram.of(Scalar("Mul", "float32"), ["float32"] * 3)
    array = device_array(a, [-1])
    np.testing.assert_array_equal(compute(Elementwise(context(), program, [spec(a)] * 3), *[array] * 3)[0], a**3)


def test_lengths_that_do_not_fit_are_refused():
    a, b = np.ones((2, 3), "float32"), np.ones((1, 3), "float32")
    program = ScalarProgram.of(Scalar("Add", "float32"), ["float32"] * 2)
    with pytest.raises(ValueError, match=r"Dimension mismatch at axis 0 of Elementwise.*\(2, 3\), \(1, 3\)"):
        compute(Elementwise(context(), program, [ArraySpec.of(a), ArraySpec.of(b)]), device_array(a), device_array(b))
    with pytest.raises(ValueError, match="expects length 1 along axis 0 of array 1, but it has length 2"):
        compute(Elementwise(context(), program, [spec(a), spec(b)]), device_array(a), device_array(a))


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
    for n in (1, 5, 2048, 2049, 100_000, 10**9):
        items, chunk = chunks(context(), n)
        assert (items - 1) * chunk < n <= items * chunk


def test_operations_that_are_alike_share_their_code_and_not_their_launches():
    def elements(name="Add", dtype="float32", single=(False, False), device_kind="cpu"):
        program = ScalarProgram.of(Scalar(name, dtype), [dtype] * 2)
        return program_elements(program, single, 2, device_kind=device_kind)

    one, two = elements(), elements()
    assert one.kernels() == two.kernels()
    one.kernels().clear()
    assert len(one.kernels()) == 1
    kernels = compile_kernels(one.kernels(), context())
    for these, shape in ((one, (2, 3)), (two, (4, 5)), (one, (2, 3))):
        a, b, c = (device_array(np.full(shape, value, "float32")) for value in (1, 2, 0))
        these.launch(kernels, context(), shape, [a, b, c])
        np.testing.assert_array_equal(c.get(), 3)
    others = (elements("Mul"), elements(dtype="float64"), elements(single=(False, True)), elements(device_kind="gpu"))
    assert len({other.kernels()[0].code for other in (one, *others)}) == 5
