"""Vectors are copied from a device without blocking."""

from __future__ import annotations

import numpy as np
import pytest

from optdb.runtime import commands
from optdb.runtime.arrays import empty, from_host
from optdb.runtime.dispatch import listened
from optdb.runtime.fetching import HostMirror
from optdb.runtime.recording import Recorder
from optdb.runtime.scripts import finish_event
from tests.opencl_device import runtime_context


def fetched(mirror, array):
    finish_event(mirror.fetch(array))
    return mirror.values.copy()


@pytest.mark.parametrize("prepared", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_of_several_arrays(dtype, prepared, monkeypatch):
    if not prepared:
        monkeypatch.setattr(commands, "driver_calls", lambda: None)
    context = runtime_context()
    values = [np.random.default_rng(seed).normal(size=9).astype(dtype) for seed in range(2)]
    arrays, mirror = [from_host(context, each) for each in values], HostMirror(context, np.dtype(dtype), 9)
    # Fetch the two arrays in the order below. The prepared call is reused if the same array is fetched twice in a
    # row; otherwise, the call is prepared again.
    for turn in (0, 0, 1, 0, 1, 1):
        np.testing.assert_array_equal(fetched(mirror, arrays[turn]), values[turn])


def test_a_part_of_a_buffer():
    context = runtime_context()
    whole = from_host(context, np.arange(64, dtype="float32"))
    mirror = HostMirror(context, np.dtype("float32"), 16)
    for start in (0, 32, 16):
        np.testing.assert_array_equal(fetched(mirror, whole[start : start + 16]), np.arange(start, start + 16))


def test_nothing_is_moved_where_there_is_nothing():
    context = runtime_context()
    mirror, array = HostMirror(context, np.dtype("float32"), 0), empty(context, (0,), "float32")
    assert mirror.fetch(array) is None
    finish_event(None)


def test_what_fits():
    mirror = HostMirror(runtime_context(), np.dtype("float32"), 4)
    assert mirror.fits(np.dtype("float32"), 4)
    assert not mirror.fits(np.dtype("float32"), 5) and not mirror.fits(np.dtype("float64"), 4)


def test_a_recorder_sees_the_copy():
    context = runtime_context()
    mirror, array = HostMirror(context, np.dtype("float32"), 4), from_host(context, np.ones(4, "float32"))
    recorder = Recorder()
    with recorder.segment() as segment, listened(recorder):
        assert (fetched(mirror, array) == 1).all()
    assert segment.unsupported_reason is not None
