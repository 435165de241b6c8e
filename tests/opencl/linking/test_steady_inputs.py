"""A call whose inputs are the same arrays as in the last call finds its plan without checking shapes and addresses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.ifelse import ifelse

import optdb
from optdb.device.plans.plan_cache import InputKeys
from optdb.opencl.linking.planned_vm import PlannedVM
from optdb.opencl.registry import get_context
from optdb.opencl.simulator.execution.calls import TrustedMethod
from optdb.opencl.simulator.execution.state import SimulatorClosed
from optdb.opencl.simulator.packing import finish
from optdb.runtime.packing import Staged
from tests.opencl.simulator.made import simulated

ROWS, COLUMNS = 6, 5


@pytest.fixture
def keys(monkeypatch):
    """Give the device its own memory; return a list to which each search for a plan is added."""
    context = get_context("dev0")
    monkeypatch.setattr(context, "profile", replace(context.profile, shares_host_memory=False))
    monkeypatch.setattr(context, "kept", {})
    found = []
    key = InputKeys.key
    monkeypatch.setattr(InputKeys, "key", lambda self: (found.append(self), key(self))[1])
    return found


def step():
    x, rows = tt.dmatrix("x"), tt.lscalar("rows")
    w = theano.shared(np.random.RandomState(0).rand(COLUMNS, COLUMNS), "w")
    cost = tt.tanh(x[:rows].dot(w)).sum()
    f, sim = simulated([x, rows], [cost, w[0]], updates=[(w, w - 0.1 * tt.grad(cost, w))])
    return f, sim, w


def batch(seed, rows=ROWS):
    return np.random.RandomState(seed).rand(rows, COLUMNS)


def check(f, sim, w, *args):
    for found, wanted in zip(sim(*args), f(*args), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
    np.testing.assert_allclose(sim.get(w), w.get_value(), rtol=1e-12)


def test_calls_alike_look_for_no_plan(keys):
    f, sim, w = step()
    for seed in range(5):
        check(f, sim, w, batch(seed), 4)
    keys.clear()
    for seed in range(5):
        check(f, sim, w, batch(seed), 4)
    assert not keys


def test_what_differs_is_seen(keys):
    f, sim, w = step()

    def calls(*given):
        for _ in range(4):
            check(f, sim, w, *given)

    calls(batch(0), 4)
    keys.clear()
    calls(batch(1), 3)  # another host value
    calls(batch(2, ROWS + 2), 4)
    calls(batch(3), 4)
    assert keys
    for value in (np.eye(COLUMNS), np.ones((COLUMNS, 3))):
        w.set_value(value)
        sim.set(w, value)
        calls(batch(4), 4)
    w.set_value(np.eye(COLUMNS))
    sim.set(w, np.eye(COLUMNS))
    calls(batch(5), 4)
    with pytest.raises(ValueError):
        sim(np.ones((ROWS, COLUMNS + 1)), 4)
    calls(batch(6), 4)
    sim.call_n_times(3, batch(7), 4)
    for _ in range(3):
        f(batch(7), 4)
    calls(batch(8), 4)


def test_branches_are_looked_at(keys):
    x, phase = tt.dmatrix("x"), tt.lscalar("phase")
    w = theano.shared(np.random.RandomState(0).rand(COLUMNS, COLUMNS), "w", target="cpu")
    hidden = tt.tanh(x.dot(w))
    cost = ifelse(tt.gt(phase, 3), hidden, hidden * -2).sum()
    updates = [(w, w - 0.1 * tt.grad(cost, w))]
    phases = [4, 4, 4, 4, 2, 2, 4, 2, 4, 4, 4, 2]
    expected = theano.function([x, phase], cost, updates=updates, mode=theano.Mode("py", None))
    wanted = [(expected(batch(seed), phase), w.get_value()) for seed, phase in enumerate(phases)]
    w.set_value(np.random.RandomState(0).rand(COLUMNS, COLUMNS))
    f = theano.function([x, phase], cost, updates=updates, mode=optdb.mode(device="dev0"))
    for (value, weights), (seed, phase) in zip(wanted, enumerate(phases), strict=True):
        np.testing.assert_allclose(f(batch(seed), phase), value, rtol=1e-12)
        np.testing.assert_allclose(w.get_value(), weights, rtol=1e-12)


def test_an_error_within_a_call_is_forgotten(keys, monkeypatch):
    f, sim, w = step()
    for seed in range(5):
        check(f, sim, w, batch(seed), 4)
    finished = PlannedVM._finish

    def fail(self, entry):
        raise MemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(PlannedVM, "_finish", fail)
        with pytest.raises(MemoryError, match="no room"):
            sim(batch(5), 4)
    assert PlannedVM._finish is finished
    for seed in range(5):
        check(f, sim, w, batch(seed), 4)


def test_trusted_calls(keys):
    f, sim, w = step()
    call = TrustedMethod(sim)
    for seed in range(8):
        x = batch(seed)
        found = call(x, np.array(4, "int64"))
        wanted = f(x, 4)
        x.fill(np.nan)
        finish(sim)
        for mine, theirs in zip(found, wanted, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-12)
        np.testing.assert_allclose(sim.get(w), w.get_value(), rtol=1e-12)
    with pytest.raises(ValueError):
        call(np.ones((ROWS, COLUMNS + 1)), np.array(4, "int64"))
    check(f, sim, w, batch(0), 4)

    # Another thread copies large arguments to the device.
    def large(seed):
        return batch(seed, rows=1000)

    for seed in range(3):
        call(large(seed), np.array(4, "int64"))
        f(large(seed), 4)
    kinds = set()
    for seed in range(8):
        x = large(seed)
        staged = call.stage([x, np.array(4, "int64")])
        kinds.add(type(staged[0]))
        x.fill(np.nan)
        found, wanted = call(*staged), f(large(seed), 4)
        finish(sim)
        np.testing.assert_allclose(found[0], wanted[0], rtol=1e-12)
        np.testing.assert_allclose(sim.get(w), w.get_value(), rtol=1e-12)
    assert kinds == {Staged}
    ahead = [call.stage([large(seed)])[0] for seed in (1, 2)]
    for seed, x in zip((1, 2), ahead, strict=True):
        found, wanted = call(x, np.array(4, "int64")), f(large(seed), 4)
        finish(sim)
        np.testing.assert_allclose(found[0], wanted[0], rtol=1e-12)
    assert call.stage([large(0).astype("float32"), None])[1] is None
    assert isinstance(call.stage([batch(0)])[0], np.ndarray)
    sim.close()
    with pytest.raises(SimulatorClosed, match="closed"):
        call(batch(0), np.array(4, "int64"))
