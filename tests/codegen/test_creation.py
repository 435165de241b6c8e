"""Arrays that the device creates from sizes and numbers, or copies to C order, equal NumPy's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optdb.codegen.creation import Count, Fill, InOrder, Triangle
from optdb.codegen.operation import ArraySpec
from optdb.runtime.arrays import to_host
from tests.codegen.layouts import STEPS, compute, context, device_array, laid_out, shapes

DTYPES = ["bool", "int8", "uint32", "int64", "float16", "float32", "float64", "complex64", "complex128"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_value_of_any_dtype_fills_an_array(dtype):
    value = np.array([[1], [3]]).astype(dtype)
    operation = Fill(context(), ArraySpec(dtype, (False, True)), 3)
    (got,) = compute(operation, device_array(value, [-1, 1]), *np.array([4, 2, 3]))
    np.testing.assert_array_equal(got, np.broadcast_to(value, (4, 2, 3)))


@pytest.mark.parametrize("shape", [(), (0, 2), (1, 1), (70_001,)])
def test_one_number_fills_an_array(shape):
    operation = Fill(context(), ArraySpec("float32", ()), len(shape))
    (got,) = compute(operation, device_array(np.array(2.5, "float32")), *shape)
    np.testing.assert_array_equal(got, np.full(shape, 2.5))


def test_values_that_do_not_fit_and_negative_lengths_are_refused():
    value = device_array(np.ones(3, "float32"))
    operation = Fill(context(), ArraySpec.of(value), 2)
    with pytest.raises(ValueError, match=r"shape \(3,\) to shape \(4,\)"):
        compute(operation, value, 2, 4)
    with pytest.raises(ValueError, match="negative length"):
        compute(operation, value, -2, 3)
    with pytest.raises(ValueError, match="expects length 1 along axis 0 of array 0, but it has length 3"):
        compute(Fill(context(), ArraySpec("float32", (True,)), 1), value, 3)


@given(st.sampled_from(["int8", "uint16", "int64", "float16", "float32", "float64"]), st.data())
def test_equal_distances_are_those_of_numpy(dtype, data):
    number = st.integers(-20, 20) if "float" not in dtype else st.floats(-20, 20)
    start, stop = data.draw(number), data.draw(number)
    step = data.draw(st.sampled_from([1, 2, -3] if "float" not in dtype else [0.1, -0.3, 7.0]))
    if dtype == "uint16":
        start, stop, step = abs(start), abs(stop), abs(step)
    (got,) = compute(Count(context(), dtype), *[np.array(number) for number in (start, stop, step)])
    want = np.arange(start, stop, step, dtype="float64" if dtype == "float16" else dtype)
    assert got.shape == want.shape and got.dtype == dtype
    # The step is rounded to the dtype; number i of the range has i times the rounding error of the step.
    close = {"float16": 2e-2, "float32": 1e-4}.get(dtype, 1e-12)
    np.testing.assert_allclose(got, want, rtol=close / 10, atol=close)


@given(
    st.integers(0, 5), st.integers(0, 5), st.integers(-6, 6), st.sampled_from(["float16", "int8", "bool", "float64"])
)
def test_triangles_are_those_of_numpy(rows, columns, k, dtype):
    np.testing.assert_array_equal(
        compute(Triangle(context(), dtype), rows, columns, k)[0], np.tri(rows, columns, k, dtype)
    )


@given(st.data(), st.sampled_from(["bool", "float16", "complex128"]))
def test_what_is_in_c_order_is_not_copied(data, dtype):
    value, array = data.draw(laid_out("float32", data.draw(shapes())))
    value = value.astype(dtype)
    array = device_array(value, [data.draw(STEPS) for _ in value.shape])
    (got,) = InOrder(context(), ArraySpec.of(array)).compute(array)
    assert got.flags.c_contiguous or not got.size
    assert (got is array) == (array.flags.c_contiguous or not array.size)
    np.testing.assert_array_equal(got.get(), value)


@given(st.data())
def test_leading_axes_may_lie_in_any_way(data):
    shape = data.draw(shapes(min_dims=2))
    value = np.arange(float(np.prod(shape))).reshape(shape)
    steps = [data.draw(STEPS) for _ in shape]
    array = device_array(value, steps)
    (got,) = InOrder(context(), ArraySpec.of(array), leading=1).compute(array)
    np.testing.assert_array_equal(got.get() if got.flags.c_contiguous else to_host(got), value)
    if got.size:
        assert got[0].flags.c_contiguous
    in_order = all(step == 1 or length == 1 for step, length in zip(steps[1:], shape[1:], strict=True))
    if in_order and all(length != 1 for length in shape):
        assert got is array
