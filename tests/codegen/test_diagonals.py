"""The device takes diagonals, makes arrays from diagonals, and fills diagonals with numbers, as NumPy does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from optdb.codegen.creation import AroundDiagonal, Eye, FillDiagonal, FillDiagonalOffset
from optdb.codegen.operation import ArraySpec
from optdb.codegen.views import diagonal
from optdb.runtime.arrays import to_host
from tests.codegen.layouts import compute, context, device_array

DTYPES = [
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *("float16", "float32", "float64", "complex64", "complex128"),
]


def numbers(*shape):
    return np.arange(1, np.prod(shape) + 1).reshape(shape).astype("float32")


@pytest.mark.parametrize("offset", [0, 1, -2, 5, -5])
@pytest.mark.parametrize("axes", [(0, 1), (1, 0), (2, 0), (-1, 1)])
def test_diagonals_are_views(offset, axes):
    x = numbers(3, 4, 5)
    array = device_array(x, [1, -2, 3])
    got = diagonal(array, offset, *axes)
    np.testing.assert_array_equal(to_host(got), x.diagonal(offset, *axes))
    assert not got.size or got.base_data is array.base_data


@pytest.mark.parametrize("axes", [(0, 0), (0, -2), (0, 2)])
def test_diagonals_of_what_are_not_two_axes_are_refused(axes):
    with pytest.raises(ValueError, match="are not two axes"):
        diagonal(device_array(numbers(2, 3)), 0, *axes)


@pytest.mark.parametrize("offset", [0, 2, -1])
@pytest.mark.parametrize("axes", [(0, 1), (1, 0), (0, 2), (2, 1), (5, 7)])
@pytest.mark.parametrize("shape", [(3,), (0,), (2, 3), (2, 1, 3)])
def test_arrays_around_diagonals(offset, axes, shape):
    x = numbers(*shape)
    array = device_array(x, [-1] * x.ndim)
    (got,) = compute(AroundDiagonal(context(), ArraySpec.of(array), offset, *axes), array)
    side = shape[-1] + abs(offset)
    want = np.zeros((*shape[:-1], side, side), "float32")
    along = np.arange(shape[-1])
    want[..., along + max(-offset, 0), along + max(offset, 0)] = x
    if x.ndim > 1:
        # The axes are inserted one after the other, the smaller axis first; an axis beyond the end is appended.
        last = [min(axis, x.ndim - 1 + i) for i, axis in enumerate(sorted(axes))]
        want = np.moveaxis(want, [-2, -1], last)
    np.testing.assert_array_equal(got, want)


def filled(kind, x, *offset):
    array = device_array(x, [-1] * x.ndim)
    (got,) = compute(kind(context(), ArraySpec.of(array)), array, device_array(np.float32(3)), *offset)
    np.testing.assert_array_equal(to_host(array), x)
    return got


@pytest.mark.parametrize("shape", [(3, 3), (2, 5), (5, 2), (4, 1), (3, 3, 3), (0, 2)])
def test_diagonals_are_filled(shape):
    x = numbers(*shape)
    side = np.arange(min(shape))
    want = x.copy()
    want[tuple(side for _ in shape)] = 3
    np.testing.assert_array_equal(filled(FillDiagonal, x), want)


@pytest.mark.parametrize("shape", [(3, 3), (2, 5), (5, 2), (4, 1)])
@pytest.mark.parametrize("offset", [0, 1, -1])
def test_other_diagonals_are_filled(shape, offset):
    x = numbers(*shape)
    if not -shape[0] < offset < shape[1]:
        return
    want = np.where(np.eye(*shape, offset, dtype=bool), 3, x)
    np.testing.assert_array_equal(filled(FillDiagonalOffset, x, np.array(offset)), want)


def test_a_diagonal_of_unequal_lengths_is_refused():
    with pytest.raises(ValueError, match="FillDiagonal: all dimensions of the array must be of equal length"):
        filled(FillDiagonal, numbers(2, 3, 2))


sizes = st.integers(0, 9)


@pytest.mark.slow
@given(dtype=st.sampled_from(DTYPES), n=sizes, m=sizes, k=st.integers(-12, 12))
@example(dtype="float16", n=0, m=0, k=0)
@example(dtype="float32", n=3, m=3, k=2**62)
@example(dtype="float32", n=3, m=3, k=-(2**63))
@example(dtype="int8", n=100, m=70, k=-20)
@settings(deadline=None)
def test_ones_on_a_diagonal(dtype, n, m, k):
    (got,) = compute(Eye(context(), dtype), n, m, k)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, np.eye(n, m, int(np.clip(k, -1000, 1000)), dtype=dtype))


def test_a_matrix_has_as_many_columns_as_rows_unless_told():
    np.testing.assert_array_equal(compute(Eye(context(), "float32"), 3, None, 0)[0], np.eye(3))
    with pytest.raises(ValueError, match="negative dimensions are not allowed"):
        compute(Eye(context(), "float32"), -1, 3, 0)
