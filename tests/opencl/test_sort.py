"""Sorting, places of sorted elements, and the largest elements, on the device against NumPy and the host."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given, settings
from hypothesis import strategies as st
from theano.tensor.sort import ArgSortOp, SortOp, TopKOp, argtopk, topk, topk_and_argtopk

from optdb.opencl.ops.sort import OpenCLArgSortOp, OpenCLSortOp, OpenCLTopKOp
from tests.opencl.layouts import device_array, laid_out, run, shapes, variable
from tests.opencl.lifted import both

#: NumPy 1.25 has moved it.
AxisError = getattr(np, "exceptions", np).AxisError

LENGTHS = [1, 2, 33, 256, 257, 1000, 5000]


def numbers(dtype, shape, seed=0):
    """Return numbers of which many are equal, and some are none."""
    rng = np.random.default_rng(seed)
    value = (rng.normal(size=shape) * 40).round().astype(dtype)
    if dtype.startswith("float"):
        value[rng.uniform(size=shape) < 0.05] = np.nan
        value[rng.uniform(size=shape) < 0.05] = -0.0
    return value


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint64"])
@pytest.mark.parametrize("length", LENGTHS)
def test_rows_of_all_lengths(each_device_kind, dtype, length):
    value = numbers(dtype, (3, length))
    (got,) = run(OpenCLSortOp("quicksort")(variable(value), -1).owner, [device_array(value), -1])
    np.testing.assert_array_equal(got, np.sort(value, kind="stable"))
    (places,) = run(OpenCLArgSortOp("quicksort")(variable(value), -1).owner, [device_array(value), -1])
    assert places.dtype == "int64"
    np.testing.assert_array_equal(places, np.argsort(value, kind="stable"))


def test_what_is_no_number_stays_as_it_is():
    value = np.array([np.nan, 1, -np.nan, -0.0, 0.0, np.inf, -np.inf], "float32")
    (got,) = run(OpenCLSortOp("mergesort")(variable(value), 0).owner, [device_array(value), 0])
    want = np.sort(value, kind="stable")
    np.testing.assert_array_equal(got.view("uint32"), want.view("uint32"))


@given(st.data(), st.sampled_from(["float32", "bool", "int16"]))
@settings(max_examples=12, deadline=None)
def test_all_axes_and_layouts(data, dtype):
    shape = data.draw(shapes(min_dims=1))
    value, array = data.draw(laid_out(dtype, shape))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    (got,) = run(OpenCLSortOp("quicksort")(variable(value), axis).owner, [array, np.array(axis)])
    np.testing.assert_array_equal(got, np.sort(value, axis, kind="stable"))
    (places,) = run(OpenCLArgSortOp("quicksort")(variable(value), axis).owner, [array, np.array(axis)])
    np.testing.assert_array_equal(places, np.argsort(value, axis, kind="stable"))


def test_an_axis_that_there_is_not_is_refused():
    value = np.zeros((2, 3), "float32")
    for axis, error in ((2, AxisError), (0.5, ValueError)):
        with pytest.raises(error):
            run(OpenCLSortOp("quicksort")(variable(value), axis).owner, [device_array(value), np.array(axis)])


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("k", [1, -1, 3, -3, 40, -200, 300, -300])
def test_the_largest_and_the_smallest(each_device_kind, dtype, k):
    value = numbers(dtype, (300, 2), seed=k % 7)
    ours = OpenCLTopKOp(0, False, "int16")(variable(value), k, return_list=True)[0].owner
    got, places = run(ours, [device_array(value, [1, -2]), np.array(k)])
    assert places.dtype == "int16" and places.shape == got.shape == (abs(k), 2)
    np.testing.assert_array_equal(got, np.take_along_axis(value, places.astype(int), 0))
    assert all(len(set(column)) == len(column) for column in places.T)
    # The host's own op fails here with NumPy 1.23, which takes no list of slices, but for one element or all.
    want = np.partition(value, abs(k) - 1 if k < 0 else -k, 0)[slice(-k, None) if k > 0 else slice(-k)]
    if k == -1:
        want = value.min(0, keepdims=True)
    np.testing.assert_array_equal(np.sort(got, 0), np.sort(want, 0))
    if abs(k) > 1:
        np.testing.assert_array_equal(got, np.sort(got, 0)[:: -1 if k > 0 else 1])
    else:
        best = (np.argmax if k > 0 else np.argmin)(value, 0)
        np.testing.assert_array_equal(places[0], best)


@pytest.mark.parametrize("k", [0, 4, -4])
def test_more_than_there_are_is_refused(k):
    value = np.zeros((2, 3), "float32")
    node = OpenCLTopKOp(-1, False)(variable(value), k, return_list=True)[0].owner
    with pytest.raises(ValueError, match="topk: kth cannot be"):
        run(node, [device_array(value), np.array(k)])


def test_lifted_with_gradients():
    x, axis, k = tt.dmatrix(), tt.iscalar(), tt.iscalar()
    a = np.random.default_rng(0).normal(size=(5, 6))
    outputs = [
        *(tt.sort(x, None), SortOp("heapsort")(x, axis), ArgSortOp("mergesort")(x, axis)),
        theano.grad((tt.sort(x, 0) * x).sum(), x),
        *(topk(x, k, 1, sorted=False), argtopk(x[0], k, sorted=False, idx_dtype="int32")),
        tt.sort(topk_and_argtopk(x, 5, 0, sorted=False)[1], 0),
        theano.grad((topk(x[1], k, sorted=False) ** 2).sum(), x),
    ]
    got, want, ops = both([x, axis, k], outputs, [a, 0, -1], at_home=[axis, k])
    for mine, theirs in zip(got, want):
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, rtol=1e-12)
    assert {OpenCLSortOp, OpenCLArgSortOp, OpenCLTopKOp} <= set(ops)
    assert not {SortOp, ArgSortOp, TopKOp} & set(ops)
