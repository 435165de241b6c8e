"""Arrays on a device support views of all kinds and copies, and raise errors if memory is exhausted."""

from __future__ import annotations

import copy
import operator

import numpy as np
import pyopencl
import pyopencl.array as cl_array
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optdb.runtime import arrays
from tests.opencl_device import runtime_context

slices = st.builds(slice, st.none(), st.none(), st.sampled_from([1, 2, -1, -3]))


def _views(index, axes, plain=False):
    """Return a view of a host array, and the same view of a device array with the same elements."""
    value = np.arange(4 * 5 * 6, dtype="float32").reshape(4, 5, 6)
    there = arrays.from_host(runtime_context(), value)
    if plain:
        there = cl_array.Array(there.queue, there.shape, there.dtype, data=there.base_data)
    return value[index].transpose(axes), there[index].transpose(axes)


@given(st.tuples(slices, slices, slices), st.permutations(range(3)), st.booleans())
def test_views_are_read_and_copied(index, axes, plain):
    value, there = _views(index, axes, plain)
    assert isinstance(there, arrays.DeviceArray) != plain
    np.testing.assert_array_equal(arrays.to_host(there), value)
    twin = arrays.copy(there)
    assert twin.flags.c_contiguous
    assert not arrays.may_share_memory(twin, there)
    np.testing.assert_array_equal(arrays.to_host(twin), value)


def test_own_methods_take_views():
    value, there = _views((slice(None, None, 2), slice(1, 3), 5), (1, 0))
    np.testing.assert_array_equal(there.copy().get(), value)
    np.testing.assert_array_equal(copy.deepcopy(there).get(), value)
    np.testing.assert_array_equal(np.asarray(there, "int8"), value)
    out = np.empty_like(value, order="C")
    assert there.get(ary=out) is out
    np.testing.assert_array_equal(out, value)
    with pytest.raises(TypeError, match="in C order"):
        there.get(ary=np.empty(3))


def test_broadcast_views():
    there = arrays.from_host(runtime_context(), np.arange(3, dtype="int64"))
    wide = arrays.DeviceArray(there.queue, (2, 3), there.dtype, data=there.base_data, strides=(0, 8))
    np.testing.assert_array_equal(wide.get(), [[0, 1, 2], [0, 1, 2]])


def test_outputs_are_used_again_where_they_fit():
    context = runtime_context()
    value = np.arange(6, dtype="float32").reshape(2, 3)
    out = arrays.empty(context, (2, 3), "float32")
    assert arrays.from_host(context, value, out) is out
    for other in (out.T, arrays.empty(context, (3, 2), "float32"), arrays.empty(context, (2, 3), "int32")):
        assert arrays.from_host(context, value, other) is not other
    back = np.empty((2, 3), "float32")
    assert arrays.to_host(out, back) is back
    np.testing.assert_array_equal(back, value)
    back.flags.writeable = False
    assert arrays.to_host(out, back) is not back


def test_parts_of_an_array_are_overwritten_in_place():
    context = runtime_context()
    whole = arrays.from_host(context, np.zeros(6, "float32"))
    arrays.from_host(context, np.ones(2, "float32"), whole[2:4])
    np.testing.assert_array_equal(whole.get(), [0, 0, 1, 1, 0, 0])


def test_no_room():
    with pytest.raises(MemoryError, match="cannot allocate 4611686018427387904 bytes"):
        arrays.empty(runtime_context(), (2**60,), "float32")


def _host_and_device():
    value = np.arange(6, dtype="float32").reshape(2, 3)
    return value, arrays.from_host(runtime_context(), value)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "function",
    [
        np.asarray,
        np.array,
        np.copy,
        np.ascontiguousarray,
        np.exp,
        np.sum,
        np.all,
        np.any,
        np.from_dlpack,
        lambda a: np.array(a, "float64"),
        lambda a: np.array(a, copy=True),
        lambda a: np.array([a, a]),
        lambda a: np.add(a, 1),
        lambda a: np.concatenate([a, a]),
        lambda a: np.where(a > 2, 1, 0),
        lambda a: np.any(a, axis=0, keepdims=True),
        lambda a: np.add.reduce(a),
    ],
)
def test_functions_of_numpy_return_arrays_of_the_host(function):
    value, there = _host_and_device()
    got, want = function(there), function(value)
    assert type(got) is type(want)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "function", [operator.add, operator.sub, operator.mul, operator.eq, operator.ne, operator.lt, operator.ge]
)
def test_operators_with_an_array_of_the_host_compute_there_in_either_order(function):
    value, there = _host_and_device()
    other = value[::-1]
    for got, want in (
        (function(there, other), function(value, other)),
        (function(other, there), function(other, value)),
    ):
        assert type(got) is np.ndarray
        np.testing.assert_array_equal(got, want)


def test_a_numpy_scalar_keeps_an_array_on_its_device():
    value, there = _host_and_device()
    got = np.float32(2) * there
    assert isinstance(got, arrays.DeviceArray)
    np.testing.assert_array_equal(got.get(), 2 * value)


def test_pyopencl_reductions_stay_on_the_device(monkeypatch):
    # PyOpenCL's own kernels include its headers, whose folder conftest.py removes from the options.
    monkeypatch.setattr(pyopencl, "_DEFAULT_INCLUDE_OPTIONS", ["-I", pyopencl._find_pyopencl_include_path()])
    _, there = _host_and_device()
    assert not there.all().get()
    assert there.any().get()


@pytest.mark.parametrize("function", [np.reshape, np.transpose])
def test_views_by_numpy_stay_on_the_device(function):
    value, there = _host_and_device()
    arguments = [(3, 2)] if function is np.reshape else []
    got = function(there, *arguments)
    assert isinstance(got, arrays.DeviceArray)
    np.testing.assert_array_equal(got.get(), function(value, *arguments))


def test_an_array_is_not_had_without_a_copy():
    _, there = _host_and_device()
    with pytest.raises(ValueError, match="omit copy=False"):
        there.__array__(copy=False)
    with pytest.raises(BufferError, match="omit copy=False"):
        there.__dlpack__(copy=False)
    if int(np.__version__.partition(".")[0]) >= 2:
        with pytest.raises(ValueError, match="omit copy=False"):
            np.array(there, copy=False)
    else:  # in NumPy 1, copy=False allows copies that are necessary
        assert np.array(there, copy=False).shape == (2, 3)


def test_a_dlpack_copy_is_of_the_host():
    value, there = _host_and_device()
    assert there.__dlpack_device__() == value.__dlpack_device__()
    seen = np.from_dlpack(there[:, ::-1])
    np.testing.assert_array_equal(seen, value[:, ::-1])
    there.fill(7)
    np.testing.assert_array_equal(seen, value[:, ::-1])
