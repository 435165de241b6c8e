"""Some inputs and outputs of a recorded call are external, and a merge must save a minimum number of launches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optdb.runtime import buffer_assignment
from optdb.runtime.buffer_assignment import bind_io
from optdb.runtime.commands import EnqueueCopy, Memory
from optdb.runtime.device_profiles import DeviceQuirks
from optdb.runtime.host_buffers import MIN_ZERO_COPY_BYTES
from optdb.runtime.recording import ArrayLayout

LARGE = 4 * MIN_ZERO_COPY_BYTES


@pytest.fixture
def launches_take(context, monkeypatch):
    """Return a function that changes, in the device's profile, the times to launch and to compile a kernel."""

    def set_costs(launch_s, kernel_compile_s=0.0):
        quirks = DeviceQuirks(True, launch_s, launch_s, kernel_compile_s)
        profile = replace(context.profile, quirks=quirks)
        monkeypatch.setattr(buffer_assignment, "profile_of", lambda device: profile)

    return set_costs


def layout(context, memory):
    return ArrayLayout(context.queue, memory, 0, (memory.nbytes // 4,), (4,), np.dtype("float32"))


def copies(context, memory, count):
    return [EnqueueCopy(context.queue, Memory(64, context.cl_context), 0, memory, 0, 64) for _ in range(count)]


def test_what_is_large_and_used_by_few_small_commands_is_external(context, launches_take):
    launches_take(1e-5)
    rarely, often, small = (Memory(nbytes, context.cl_context) for nbytes in (LARGE, LARGE, 64))
    commands = [*copies(context, rarely, 2), *copies(context, often, 50), *copies(context, small, 1)]
    result, kept = Memory(LARGE, context.cl_context), Memory(LARGE, context.cl_context)
    outputs = {"z": layout(context, result), "again": layout(context, result), "state": layout(context, kept)}
    io = bind_io({"x": rarely, "y": often, "n": small, "empty": None}, outputs, {kept}, commands)
    assert io.inputs == {"x": rarely}
    assert io.outputs == {"z": result}
    launches_take(0.0)
    assert bind_io({"x": rarely, "y": often}, {}, (), commands).inputs == {"x": rarely, "y": often}


def test_inputs_in_one_buffer_are_refused(context):
    memory = Memory(LARGE, context.cl_context)
    with pytest.raises(ValueError, match="y shares the buffer of another input"):
        bind_io({"x": memory, "y": memory}, {}, (), ())
