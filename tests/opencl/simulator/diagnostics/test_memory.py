"""The memory that a call needs is known in advance; a call that needs too much is rejected, and changes nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import theano
import theano.tensor as tt
from rich.console import Console
from theano.compile.ops import as_op

from optdb.runtime import buffer_assignment
from tests.opencl.simulator.made import plan_of, simulated, training_step


@pytest.fixture
def fraction(monkeypatch):
    """Return a function that sets, for one test, the fraction of the device's memory that may be used."""
    return lambda value: monkeypatch.setattr(theano.config.optdb, "device_memory_fraction", value)


def layers(count=6, width=50):
    """Return a function with many values, each of which is needed only until the next layer."""
    x = tt.fmatrix("x")
    ws = [theano.shared(np.eye(width, dtype="float32"), name=f"w{i}") for i in range(count)]
    y = x
    for w in ws:
        y = tt.tanh(y.dot(w))
    f, sim = simulated([x], y.sum(), updates=[(w, w * np.float32(0.5)) for w in ws])
    return f, sim, ws, np.ones((200, width), "float32")


@pytest.mark.slow_cases("layers")
@pytest.mark.parametrize("make", [training_step, layers])
def test_what_is_traced_is_what_is_taken(make):
    _, sim, *_, data = make()
    data = data if isinstance(data, tuple) else (data,)
    foreseen = sim.memory(*data)
    assert not foreseen.recorded
    for _ in range(2):
        sim(*data)
    known = sim.memory(*data)
    assert known.recorded
    assert known.values == plan_of(sim).buffers.nbytes
    assert known.total == pytest.approx(foreseen.total, rel=0.05)
    assert known.inputs == sum(one.nbytes for one in data if one.dtype == np.float32)


def test_asking_changes_nothing():
    f, sim, w, data = training_step()
    before = sim.get(w)
    sim.memory(*data)
    np.testing.assert_array_equal(sim.get(w), before)
    np.testing.assert_allclose(sim(*data), f(*data), rtol=1e-5)
    with pytest.raises(TypeError):
        sim.memory()


def test_values_share_memory():
    _, sim, ws, data = layers()
    report = sim.memory(data)
    assert report.values <= report.separately / 2
    assert report.shared == sum(w.get_value().nbytes for w in ws)
    shown = Console(width=100)
    with shown.capture() as text:
        shown.print(report)
    assert f"{report.total:,}" in text.get()


@pytest.mark.parametrize("calls", [0, 1])
def test_too_much_is_refused_by_name_and_nothing_is_lost(fraction, calls):
    f, sim, ws, data = layers()
    for _ in range(calls):
        sim(data)
        f(data)
    before = [sim.get(w) for w in ws]
    device = sim._state.context.device.global_mem_size
    fraction((sim.memory(data).total - 30_000) / device)
    with pytest.raises(MemoryError, match=r"(?s)The largest:.*float32 \(200, 50\) by .*The cure: use smaller"):
        sim(data)
    for value, w in zip(before, ws, strict=True):
        np.testing.assert_array_equal(sim.get(w), value)
    fraction(1.0)
    for _ in range(3):
        np.testing.assert_allclose(sim(data), f(data), rtol=1e-5)


def test_a_smaller_call_still_works_where_a_larger_one_does_not(fraction):
    f, sim, _, data = layers()
    fraction(sim.memory(data[:20]).total * 1.5 / sim._state.context.device.global_mem_size)
    with pytest.raises(MemoryError):
        sim(data)
    for _ in range(3):
        np.testing.assert_allclose(sim(data[:20]), f(data[:20]), rtol=1e-5)


def test_plans_for_other_shapes_go_where_room_is_short(monkeypatch):
    f, sim, _, data = layers()
    for _ in range(2):
        sim(data[:100])
        f(data[:100])
    assign = buffer_assignment.BufferAssignment
    refused = []

    def short_of_room(*args):
        if not refused:
            refused.append(args)
            raise MemoryError("no room")
        return assign(*args)

    monkeypatch.setattr("optdb.device.plans.plan.BufferAssignment", short_of_room)
    for _ in range(3):
        np.testing.assert_allclose(sim(data), f(data), rtol=1e-5)
    assert refused
    assert len(sim._executable.run.plans) == 1


def test_values_lie_in_several_buffers_where_one_may_not_be_so_large(monkeypatch):
    profile = buffer_assignment.profile_of
    small = {"max_allocation_bytes": 60_000}
    monkeypatch.setattr(buffer_assignment, "profile_of", lambda device: replace(profile(device), **small))
    f, sim, ws, data = layers()
    for _ in range(4):
        np.testing.assert_allclose(sim(data), f(data), rtol=1e-5)
    arenas = {buffer.int_ptr: buffer.size for buffer, _ in plan_of(sim).buffers._ranges.values()}
    assert len(arenas) > 1
    assert max(arenas.values()) <= 60_000
    np.testing.assert_allclose(sim.get(ws[0]), ws[0].get_value())


def test_what_a_node_of_the_host_needs_is_not_known_beforehand():
    @as_op(itypes=[tt.fvector], otypes=[tt.fvector])
    def odd(v):
        return v[v > 0]

    x = tt.fvector("x")
    _, sim = simulated([x], odd(x * 2) + 1)
    data = np.array([1, -1, 2], "float32")
    with pytest.raises(RuntimeError, match="odd"):
        sim.memory(data)
    sim(data)
    assert sim.memory(data).recorded
