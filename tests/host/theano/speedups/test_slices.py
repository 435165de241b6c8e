"""Two slices are merged into the same single slice as by Theano."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given, settings
from hypothesis import strategies as st
from theano.scan_module.scan_utils import equal_computations
from theano.tensor.opt import merge_two_slices as stock_merge_two_slices

from optdb.host.api.session import optimizing
from optdb.host.theano.speedups import slices
from tests.effort import examples

bounds = st.none() | st.integers(-5, 5)
steps = st.none() | st.sampled_from([1, 2, 3, -1, -2])
constant_slices = st.builds(slice, bounds, bounds, steps)

n, k = tt.lscalar("n"), tt.lscalar("k")


def merged(merge, first, second, shifted):
    """Merge two slices of an axis of length n; return start, stop, step. With `shifted`, the first starts at k."""
    if shifted:
        first = slice(k, first.stop, first.step)
    with optimizing():
        result = merge(first, n, second, tt.ones((n,))[first].shape[0])
    return [tt.as_tensor_variable(part) for part in (result.start, result.stop, result.step)]


@settings(max_examples=examples(150))
@given(constant_slices, constant_slices, st.booleans())
def test_two_slices_are_merged_as_theano_merges_them(first, second, shifted):
    stock = merged(stock_merge_two_slices, first, second, shifted)
    ours = merged(slices.merge_two_slices, first, second, shifted)
    assert equal_computations(ours, stock)


@settings(max_examples=examples(40))
@given(constant_slices, constant_slices, st.booleans())
def test_the_merged_slice_takes_the_same_elements(first, second, shifted):
    parts = merged(slices.merge_two_slices, first, second, shifted)
    function = theano.function([n, k], parts, mode=theano.Mode("py", None), on_unused_input="ignore")
    for length in range(7):
        for start in range(-3, 4) if shifted else [0]:
            wanted = slice(start, first.stop, first.step) if shifted else first
            x = np.arange(length)
            np.testing.assert_array_equal(x[slice(*map(int, function(length, start)))], x[wanted][second])


@pytest.mark.parametrize("second", [0, -1, k])
def test_an_index_of_a_slice_is_left_to_theano(second):
    with optimizing():
        ours = slices.merge_two_slices(slice(1, None), n, second, n - 1)
        stock = stock_merge_two_slices(slice(1, None), n, second, n - 1)
    assert equal_computations([ours], [stock])


def test_a_step_that_is_not_known_is_left_to_theano():
    with optimizing():
        ours = slices.merge_two_slices(slice(None, None, k), n, slice(1, None), n)
        stock = stock_merge_two_slices(slice(None, None, k), n, slice(1, None), n)
    assert equal_computations([ours.start, ours.stop, ours.step], [stock.start, stock.stop, stock.step])
