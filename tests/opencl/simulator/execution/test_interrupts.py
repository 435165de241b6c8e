"""Whatever stops a call, shared variables have the values after a whole number of calls, and calls can continue."""

from __future__ import annotations

import signal
import time

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.compile.ops import as_op

from optdb.device.plans.updates import CommitUpdates
from tests.interrupts import ctrl_c_interrupts, interrupt_at, is_free, press_ctrl_c  # noqa: F401 (a fixture)
from tests.opencl.simulator.made import simulated, training_step

pytestmark = pytest.mark.usefixtures("ctrl_c_interrupts")


class Trouble:
    """A host node that fails when a test requests it."""

    def __init__(self) -> None:
        self.how = None

    def __call__(self, value):
        if self.how is not None:
            self.how()
        return value + 1


def fail():
    raise ArithmeticError("no luck")


def interrupt():
    raise KeyboardInterrupt


#: Functions that the host node calls, each with the error that a call of the simulator then raises.
WAYS = [(fail, ArithmeticError), (interrupt, KeyboardInterrupt), (press_ctrl_c, KeyboardInterrupt)]


def stateful(position):
    """Return a simulator of a function with two shared variables and with a host node at the given position."""
    trouble = Trouble()
    on_host = as_op(itypes=[tt.fvector], otypes=[tt.fvector])(lambda value: trouble(value))
    x = tt.fvector("x")
    a, b = (theano.shared(np.arange(4, dtype="float32") + i, name=n) for i, n in enumerate("ab"))
    following = {
        "before": (a + on_host(x), b * 2 + x),
        "between": (a + x, on_host(a + x) + b),
        "after": (a + x, b * 2 + a),
    }[position]
    output = on_host(following[0]).sum() if position == "after" else (a - b).sum()
    f, sim = simulated([x], output, updates=list(zip((a, b), following, strict=True)))
    return trouble, f, sim, (a, b)


@pytest.mark.slow_cases("3-before-press_ctrl_c-KeyboardInterrupt")
@pytest.mark.parametrize("how, error", WAYS)
@pytest.mark.parametrize("position", ["before", "between", "after"])
@pytest.mark.parametrize("calls", [0, 1, 3])
def test_a_node_that_stops_a_call_loses_nothing(position, how, error, calls):
    trouble, f, sim, shared = stateful(position)
    data = np.ones(4, "float32")
    for _ in range(calls):
        np.testing.assert_allclose(sim(data), f(data))
    trouble.how = how
    with pytest.raises(error):
        # Other values are passed, because a host node does not run again for equal values.
        sim(data + 1)
    trouble.how = None
    for var in shared:
        np.testing.assert_array_equal(sim.get(var), var.get_value())
    for _ in range(3):
        np.testing.assert_allclose(sim(data), f(data))
    for var in shared:
        np.testing.assert_array_equal(sim.get(var), var.get_value())


@pytest.mark.parametrize("stride", [pytest.param(11, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)])
def test_after_an_interrupt_at_any_place_other_threads_may_call(stride):
    _, sim, _, data = training_step()
    for _ in range(4):
        sim(*data)
    number, is_over = 0, False
    while not is_over:
        is_over, error = interrupt_at(number, sim, *data)
        assert error is None or isinstance(error, KeyboardInterrupt)
        assert is_free(sim._state.turn())
        number += stride


@pytest.mark.parametrize("calls", [2, 4])
def test_an_interrupt_at_the_end_waits_for_it(monkeypatch, calls):
    f, sim, w, data = training_step()
    for _ in range(calls):
        sim(*data)
        f(*data)
    run = CommitUpdates.run

    def run_and_be_interrupted(self):
        press_ctrl_c()
        run(self)

    monkeypatch.setattr(CommitUpdates, "run", run_and_be_interrupted)
    with pytest.raises(KeyboardInterrupt):
        sim(*data)
    monkeypatch.undo()
    f(*data)
    np.testing.assert_allclose(sim.get(w), w.get_value(), rtol=1e-5)
    np.testing.assert_allclose(sim(*data), f(*data), rtol=1e-5)


def test_defaults_are_restored_after_an_interrupt():
    trouble = Trouble()
    on_host = as_op(itypes=[tt.fvector], otypes=[tt.fvector])(lambda value: trouble(value))
    x, y = tt.fvector("x"), tt.fscalar("y")
    f, sim = simulated([x, theano.In(y, value=np.float32(10))], on_host(x) * y)
    data = np.ones(3, "float32")
    trouble.how = interrupt
    with pytest.raises(KeyboardInterrupt):
        sim(data, y=2)
    trouble.how = None
    np.testing.assert_array_equal(sim(data), f(data))


@pytest.mark.slow
def test_an_interrupt_does_not_wait_for_thousands_of_steps():
    """The host must not run far ahead: it enqueues a step within microseconds, but the device takes a millisecond."""
    x = tt.fmatrix("x")
    w = theano.shared(np.ones((300, 300), "float32"), "w")
    _, sim = simulated([x], tt.tanh(x.dot(w)).mean(), updates=[(w, w * np.float32(0.9))])
    data = np.ones((300, 300), "float32")
    sim.call_n_times(20, data)
    usual = signal.signal(signal.SIGALRM, lambda *_: press_ctrl_c())
    start = time.perf_counter()
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            sim.call_n_times(100_000, data)
    finally:
        signal.signal(signal.SIGALRM, usual)
    assert time.perf_counter() - start < 4
    assert np.isfinite(sim(data))
