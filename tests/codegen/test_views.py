"""Views of two arrays in one order, for sums over their leading axes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from optdb.codegen.views import in_matching_order, strides_for
from tests.codegen.layouts import device_array


def merged(array):
    """Tell whether the two leading axes of an array can be merged without a copy."""
    return strides_for(array, (array.shape[0] * array.shape[1], array.shape[2])) is not None


@given(
    st.integers(0, 4),
    st.integers(0, 3),
    st.lists(st.sampled_from([1, -1, 2, -2]), min_size=2, max_size=2),
    st.booleans(),
)
def test_sums_are_the_same_and_fewer_arrays_are_copied(steps, rows, directions, is_longer):
    values = [np.random.RandomState(n).uniform(-1, 1, (steps + (n and is_longer), rows, 2)) for n in range(2)]
    given_arrays = [device_array(value, [step, 1, 1]) for value, step in zip(values, directions, strict=True)]
    arrays = in_matching_order(*given_arrays)
    if is_longer:
        assert arrays == tuple(given_arrays)
        return
    sums = [np.einsum("tri,trj->ij", *pair) for pair in ([array.get() for array in arrays], values)]
    np.testing.assert_allclose(*sums, rtol=1e-12, atol=1e-14)
    assert sum(map(merged, arrays)) >= sum(map(merged, given_arrays))
    if directions == [-1, -1]:
        assert all(map(merged, arrays))
