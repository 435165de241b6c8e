"""Small host values stay on the device while they do not change."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt

from optdb.runtime.commands import EnqueueCopy
from tests.opencl.simulator.made import simulated

X = np.random.RandomState(3).rand(4, 6).astype("float32")


def scaled(updates=True):
    """Return a function with two host numbers, which it uses in sums and as indexes, its simulator and its state."""
    x, n, m = tt.fmatrix("x"), tt.lscalar("n"), tt.lscalar("m")
    state = theano.shared(np.zeros((4, 6), "float32"), "state")
    by, less = (tt.cast(number + 1, "float32") for number in (n, m))
    result = tt.tanh(x.dot(x.T)).dot(x) / by - less
    chosen = x[n % 4] * x[m % 4]
    f, sim = simulated([x, n, m], [result, chosen], updates=[(state, state * 0.5 + result)] if updates else [])
    return f, sim, state


#: Two host numbers for each call: some occur again later, some only once, and some twice in a row.
ROUNDS = [(1, 7), (1, 7), (1, 7), (2, 7), (1, 7), (2, 7), (2, 7), (2, 8), (1, 8), (1, 7), (3, 9), (1, 7), (1, 7)]


@pytest.mark.parametrize("how", ["calls", "run_async", "call_n_times"])
def test_values_are_those_of_each_call(how):
    f, sim, state = scaled()
    for number, (n, m) in enumerate(ROUNDS):
        args = X + number, n, m
        times = 5 if how == "call_n_times" else 1
        for _ in range(times):
            expected = f(*args)
        if how == "calls":
            got = sim(*args)
        else:
            got = sim.run_async(*args).wait() if how == "run_async" else sim.call_n_times(times, *args)
        for result, wanted in zip(got, expected, strict=True):
            np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(sim.get(state), state.get_value(), rtol=1e-4, atol=1e-5)


def test_plans_of_several_shapes_have_values_of_their_own():
    f, sim, _ = scaled(updates=False)
    for n, m in ROUNDS:
        for x in (X, X[:, :5]):
            for result, wanted in zip(sim(x, n, m), f(x, n, m), strict=True):
                np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)


def test_a_plan_does_not_repeat_the_uploads():
    _, sim, _ = scaled()
    for _ in range(3):
        sim(X, 1, 7)
    (plan,) = sim._executable.run.plans
    assert plan._recording.kept_uploads
    commands = [command for step in plan._steps for command in step.commands]
    assert commands and plan.commands == len(commands)
    # The only two copies are those of the rows that the numbers select; nothing is uploaded.
    assert sum(isinstance(command, EnqueueCopy) for command in commands) == 2


def test_a_call_that_fails_leaves_no_value_behind():
    f, sim, _ = scaled()
    for _ in range(3):
        expected = f(X, 1, 7)
        sim(X, 1, 7)
    machine = sim._executable.run
    kept = sorted(machine.plans[0]._recording.kept_uploads)
    assert len(kept) > 1
    node = machine.linked.nodes[kept[-1]]
    compute = node.compute

    def fail():
        compute()
        raise ValueError("no")

    node.compute = fail
    with pytest.raises(ValueError, match="no"):
        sim(X, 2, 9)
    node.compute = compute
    expected = f(X, 1, 7)
    got = sim(X, 1, 7)
    np.testing.assert_allclose(got[0], expected[0], rtol=1e-4, atol=1e-5)
