"""Reshaping arrays on the device agrees with NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optdb.codegen.operation import ArraySpec
from optdb.codegen.parts import Flatten, Reshape
from tests.codegen.layouts import compute, context, device_array, laid_out, shapes
from tests.effort import examples


@given(st.data(), st.sampled_from(["float32", "bool", "complex64"]))
@settings(max_examples=examples(30), deadline=None)
def test_all_layouts(data, dtype):
    if dtype == "complex64":
        value = np.arange(24).reshape(2, 3, 4).astype(dtype)
        array = device_array(value, [1, -2, 1])
    else:
        value, array = data.draw(laid_out(dtype, data.draw(shapes())))
    spec = ArraySpec.of(array)
    (flat,) = compute(Reshape(context(), spec, 1), array, np.array([-1 if value.size else 0]))
    np.testing.assert_array_equal(flat, value.ravel())
    wanted = [value.size, 1, 1]
    (longer,) = compute(Reshape(context(), spec, 3), array, np.array(wanted))
    np.testing.assert_array_equal(longer, value.reshape(wanted))
    if value.ndim:
        (rows,) = compute(Flatten(context(), spec, 2 if value.ndim > 1 else 1), array)
        np.testing.assert_array_equal(rows, value.reshape(*value.shape[: rows.ndim - 1], rows.shape[-1]))


def test_what_fits_is_a_view():
    array = device_array(np.arange(6, dtype="float32").reshape(2, 3))
    (result,) = Reshape(context(), ArraySpec.of(array), 2).compute(array, np.array([3, 2]))
    assert result.base_data is array.base_data


@pytest.mark.parametrize("wanted", [[4, 2], [-1, 4], [-1, -1]])
def test_what_does_not_fit_is_refused(wanted):
    array = device_array(np.zeros((2, 3), "float32"))
    with pytest.raises(ValueError, match=r"Cannot reshape input of shape \(2, 3\)"):
        compute(Reshape(context(), ArraySpec.of(array), 2), array, np.array(wanted))
