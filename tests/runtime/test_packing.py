"""Contiguous arrays are copied together."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from optdb.runtime.arrays import from_host, overwrite, to_host
from optdb.runtime.buffer_assignment import ALIGNMENT
from optdb.runtime.context import Context
from optdb.runtime.library import cl
from optdb.runtime.packing import PackedVector
from tests.effort import examples
from tests.opencl_device import runtime_context

SHAPES = [(3, 4), (), (0, 5), (1, 1, 7), (40,)]
DTYPES = ["float16", "float32", "float64", "int8", "complex128"]


@pytest.fixture(params=["mapped", "copied"])
def context(request):
    """Return a new context; its profile says that it shares the host's memory ("mapped"), or that it does not."""
    context = Context(runtime_context().spec)
    context.profile = replace(context.profile, shares_host_memory=request.param == "mapped")
    return context


def values_of(shapes, dtype, seed=0):
    rng = np.random.RandomState(seed)
    return [np.asarray(rng.uniform(-9, 9, shape)).astype(dtype) for shape in shapes]


def fill(context, packed, values):
    for array, value in zip(packed.arrays, values, strict=True):
        assert overwrite(array, from_host(context, value))


def check(packed, values):
    for array, value in zip(packed.arrays, values, strict=True):
        np.testing.assert_array_equal(to_host(array), value)


@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_come_to_the_host_and_others_go_back(context, dtype):
    values = values_of(SHAPES, dtype)
    packed = PackedVector(context, np.dtype(dtype), SHAPES)
    fill(context, packed, values)
    for _ in range(3):
        vector = packed.download()
        assert vector.dtype == dtype and vector.ndim == 1
        assert np.count_nonzero(vector) == sum(map(np.count_nonzero, values))
        doubled = vector + vector
        packed.release()
        packed.open()[...] = doubled
        packed.upload()
        values = [value + value for value in values]
        check(packed, values)


def test_vectors_of_the_same_shapes_are_alike_whatever_the_device(context):
    values = values_of(SHAPES, "float32")
    vectors = []
    for shared in (True, False):
        context.profile = replace(context.profile, shares_host_memory=shared)
        packed = PackedVector(context, np.dtype("float32"), SHAPES)
        fill(context, packed, values)
        vectors.append(packed.download().copy())
        packed.release()
    np.testing.assert_array_equal(*vectors)


def test_arrays_begin_where_vectors_of_a_kernel_may(context):
    packed = PackedVector(context, np.dtype("float16"), SHAPES)
    assert all(array.offset % ALIGNMENT == 0 for array in packed.arrays)


def test_one_transfer_moves_all(context, monkeypatch):
    packed = PackedVector(context, np.dtype("float32"), [(50,)] * 20)
    enqueue, copies = cl.enqueue_copy, []
    monkeypatch.setattr(cl, "enqueue_copy", lambda *args, **kwargs: (copies.append(args), enqueue(*args, **kwargs))[1])
    packed.download()
    packed.release()
    packed.open()[...] = 1
    packed.upload()
    assert len(copies) == (0 if packed.is_mapped else 2)


def test_what_it_holds(context):
    packed = PackedVector(context, np.dtype("float32"), [(4,), (4,), (0, 3)])
    first, second, empty = packed.arrays
    assert packed.holds(0, first) and packed.holds(1, second) and packed.holds(2, empty)
    assert not packed.holds(0, second) and not packed.holds(0, from_host(context, np.ones(4, "float32")))
    assert packed.holds(0, first.reshape(4)) and not packed.holds(0, first.reshape(2, 2))


def test_a_copy_on_the_device(context):
    first, second = (PackedVector(context, np.dtype("float64"), SHAPES) for _ in range(2))
    values = values_of(SHAPES, "float64")
    fill(context, first, values)
    second.copy_from(first)
    check(second, values)


def test_without_elements(context):
    packed = PackedVector(context, np.dtype("float32"), [(0,), (3, 0)])
    assert packed.download().size == packed.open().size == packed.nbytes == 0
    packed.upload()
    packed.copy_from(packed)
    check(packed, [np.empty(0), np.empty((3, 0))])


def test_no_room(context, monkeypatch):
    def fail(*args):
        raise cl.MemoryError("none")

    monkeypatch.setattr(cl, "Buffer", fail)
    with pytest.raises(MemoryError, match="cannot allocate 128 bytes in one piece"):
        PackedVector(context, np.dtype("float32"), [(4,)])


def test_without_pinned_memory_ordinary_memory_does(context, monkeypatch):
    enqueue = cl.enqueue_map_buffer

    def fail(*args, **kwargs):
        raise cl.MemoryError("none") if args[5] == np.uint8 else AssertionError

    monkeypatch.setattr(cl, "enqueue_map_buffer", enqueue if context.profile.shares_host_memory else fail)
    values = values_of(SHAPES, "float32")
    packed = PackedVector(context, np.dtype("float32"), SHAPES)
    fill(context, packed, values)
    elements = packed.download().copy()
    packed.open()[...] = -elements
    packed.upload()
    check(packed, [-value for value in values])


@settings(max_examples=examples(30), deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 5), max_size=3).map(tuple), min_size=1, max_size=6),
    st.sampled_from(DTYPES),
    st.booleans(),
)
def test_any_shapes(shapes, dtype, shared):
    context = runtime_context()
    profile = context.profile
    context.profile = replace(profile, shares_host_memory=shared)
    try:
        packed = PackedVector(context, np.dtype(dtype), shapes)
    finally:
        context.profile = profile
    values = values_of(shapes, dtype)
    fill(context, packed, values)
    elements = packed.download().copy()
    packed.open()[...] = elements[::-1]
    packed.upload()
    packed.release()
    packed.open()[...] = elements
    packed.upload()
    check(packed, values)
