"""Pacing of long lists of commands: their order, and how many wait in the queue."""

from __future__ import annotations

import numpy as np
import pytest

from optdb.runtime import pacing
from optdb.runtime.arrays import fill_zeros, from_host, to_host
from optdb.runtime.commands import CommandList, EnqueueCopy
from tests.device import runtime_context


@pytest.fixture
def bursts_on_any_device(monkeypatch):
    """Pace the queues of processors as well, and count markers."""
    monkeypatch.setattr(pacing, "BURST", 4)
    paces = {}

    def pace(queue):
        return paces.setdefault(queue, pacing._Pace(queue))

    monkeypatch.setattr(pacing, "_pace", pace)
    return paces


def _chain(length):
    """Return arrays, and commands each of which copies one array to the next."""
    context = runtime_context()
    arrays = [from_host(context, np.arange(8.0))]
    arrays += [fill_zeros(from_host(context, np.ones(8))) for _ in range(length)]
    return arrays, CommandList(
        EnqueueCopy(context.queue, after.base_data, 0, before.base_data, 0, before.nbytes)
        for before, after in zip(arrays, arrays[1:], strict=False)
    )


@pytest.mark.parametrize("length", [1, 4, 5, 37])
def test_all_commands_run_in_their_order(bursts_on_any_device, length):
    arrays, commands = _chain(length)
    for _ in range(2):
        commands.enqueue()
    np.testing.assert_array_equal(to_host(arrays[-1]), np.arange(8.0))


def test_few_markers_are_left(bursts_on_any_device):
    _, commands = _chain(50)
    commands.enqueue()
    (pace,) = bursts_on_any_device.values()
    assert 0 < len(pace._markers) < pacing.BURSTS


def test_a_short_list_is_not_paced(bursts_on_any_device):
    _, commands = _chain(4)
    commands.enqueue()
    assert not bursts_on_any_device


def test_processors_are_not_paced():
    context = runtime_context()
    if not context.profile.shares_host_memory:
        pytest.skip("the device has memory of its own")
    assert pacing._pace(context.queue) is None
