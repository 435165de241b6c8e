"""A call with the same values as the last call enqueues the same commands, and does nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt

import optdb
from optdb.device.plans.plan import Plan
from optdb.opencl.simulator.execution.calls import PendingResults, RepeatedMethod

pytestmark = pytest.mark.usefixtures("default")


def momentum():
    """Return a training step of a device rate and a host index, a function for its expected results, and variables."""
    rng = np.random.RandomState(0)
    weights = [theano.shared(rng.standard_normal(shape), f"w{i}") for i, shape in enumerate([(3, 4), (4,), (2, 3)])]
    speeds = [theano.shared(np.zeros_like(w.get_value()), f"v{i}") for i, w in enumerate(weights)]
    rate, index = tt.dscalar("rate"), tt.lscalar("index")
    updates = []
    for weight, speed in zip(weights, speeds, strict=True):
        faster = tt.inc_subtensor((0.9 * speed - rate * tt.tanh(weight))[index], 0.1)
        updates += [(speed, faster), (weight, weight + faster)]
    loss = sum(tt.sqr(weight).sum() for weight in weights)
    mode = theano.Mode("py", "fast_run")
    step = theano.function([rate, index], [], updates=updates, mode=mode)
    return step, theano.function([], [loss, weights[1] * 2], mode=mode), [*weights, *speeds]


@pytest.fixture
def planned(monkeypatch):
    """Return a list that receives each plan that runs.

    Persistent launches are disabled: they are tried in the background, and would change the count once they are used.
    """
    calls = []
    run = Plan.run
    monkeypatch.setattr(Plan, "run", lambda self, *args: (calls.append(self), run(self, *args))[1])
    with theano.change_flags(**{"optdb.persistent_launches": "never"}):
        yield calls


def check(sim, shared):
    for var in shared:
        np.testing.assert_allclose(sim.get(var), var.get_value(), rtol=1e-12)


def test_calls_alike_are_their_commands(planned):
    f, results, shared = momentum()
    sim = optdb.SimulatorOCL(f, "dev0")
    sim.add_method("results", results)
    call = RepeatedMethod(sim)
    pending = PendingResults(sim["results"])
    rng = np.random.RandomState(1)

    def steps(count, *args):
        planned.clear()
        for _ in range(count):
            call(*args)
            f(*args)
            check(sim, shared)
            for found, wanted in zip(pending.begin().wait(), results(), strict=True):
                assert found.shape == wanted.shape and found.dtype == wanted.dtype
                np.testing.assert_allclose(found, wanted, rtol=1e-12)
        return len(planned)

    steps(8, 0.01, 1)
    assert steps(5, 0.01, 1) == 0
    assert steps(2, 0.02, 1) == 0  # another rate needs no plan, because the rate is on the device
    # Then another host value, another state, and another shape follow.
    assert steps(3, 0.01, 0) > 0
    steps(6, 0.01, 1)
    for var in (shared[0], shared[4]):
        value = rng.standard_normal(var.get_value().shape)
        sim.set(var, value)
        var.set_value(value)
    steps(4, 0.01, 1)
    for var in (shared[1], shared[4]):
        value = rng.standard_normal(7)
        sim.set(var, value)
        var.set_value(value)
    assert steps(2, 0.01, 1) > 0
    steps(6, 0.01, 1)
    assert steps(4, 0.01, 1) == 0
    sim.call_n_times(5, 0.01, 1)
    for _ in range(5):
        f(0.01, 1)
    check(sim, shared)
    assert steps(4, 0.01, 1) == 0


def test_other_calls_in_between():
    """Calls are correct if between them another method changes the same variables, or a call raises."""
    f, _, shared = momentum()
    halve = theano.function([], [], updates=[(var, var / 2) for var in shared], mode=theano.Mode("py", "fast_run"))
    sim = optdb.SimulatorOCL(f, "dev0")
    sim.add_method("halve", halve)
    call, call_halve = RepeatedMethod(sim), RepeatedMethod(sim["halve"])
    for number in range(12):
        call(0.1, 1)
        f(0.1, 1)
        if number % 3 == 1:
            call_halve()
            halve()
        if number % 4 == 2:
            with pytest.raises((TypeError, ValueError)):
                call("text", 1)
        check(sim, shared)
