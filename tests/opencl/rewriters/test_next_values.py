"""No other code overwrites the memory of the next values of shared host variables."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt

import optdb

pytestmark = pytest.mark.usefixtures("default")


def count_up(mode):
    """Return a function that overwrites its mutable second argument, and the shared variable that it updates."""
    x, y = tt.fvector("x"), tt.lvector("y")
    counts = theano.shared(np.zeros(2, "int64"), "counts")
    more = tt.inc_subtensor(y[::-1], 1)
    inputs = [x, theano.In(y, mutable=True, borrow=True)]
    return theano.function(inputs, [x * 2, more], updates=[(counts, more)], mode=mode), counts


def overwrite_after_calls(call, get):
    for start in range(4):
        given = np.array([start, start + 1])
        _, more = call(np.ones(3, "float32"), given)
        given[:] = 77
        np.testing.assert_array_equal(more, [start + 1, start + 2])
        more[:] = 88
        np.testing.assert_array_equal(get(), [start + 1, start + 2])


def add_flipped(mode):
    """Return a function that overwrites a view of its argument on the device, and the variable it updates."""
    x = tt.fvector("x")
    total = theano.shared(np.zeros(2, "float32"), "total")
    more = tt.inc_subtensor(x[::-1][:2], 1)
    inputs = [theano.In(x, mutable=True, borrow=True)]
    return theano.function(inputs, [total, more], updates=[(total, more)], mode=mode), total


def see_each_call(call, get):
    """Check in several calls that each call reads the last call's state, which shares no memory with arguments."""
    before = np.zeros(2)
    for start in (10, 20, 30, 40, 50):
        present, more = call(np.array([start, start + 1], "float32"))
        np.testing.assert_array_equal(present, before)
        before = [start + 2, start + 1]
        np.testing.assert_array_equal(more, before)
        np.testing.assert_array_equal(get(), before)


@pytest.mark.parametrize("plans", (True, False))
def test_a_simulator_does_not_take_memory_of_the_next_argument(plans, monkeypatch):
    monkeypatch.setattr(theano.config.optdb, "plans", plans)
    step, total = add_flipped(theano.Mode("py", "fast_run"))
    sim = optdb.SimulatorOCL(step, "dev0")
    see_each_call(sim, lambda: sim.get(total))


@pytest.mark.parametrize("plans", (True, False))
def test_a_function_on_a_device_does_not_take_memory_of_the_next_argument(plans, monkeypatch):
    monkeypatch.setattr(theano.config.optdb, "plans", plans)
    step, total = add_flipped(optdb.mode(device="dev0"))
    see_each_call(step, lambda: total.get_value(borrow=True))


def test_a_simulator_does_not_take_arguments_for_next_values():
    step, counts = count_up(theano.Mode("py", "fast_run"))
    assert any(getattr(node.op, "inplace", False) for node in step.maker.fgraph.apply_nodes)
    sim = optdb.SimulatorOCL(step, "dev0")
    overwrite_after_calls(sim, lambda: sim.get(counts))


def test_a_function_on_a_device_does_not_take_arguments_for_next_values():
    step, counts = count_up(optdb.mode(device="dev0"))
    overwrite_after_calls(step, lambda: counts.get_value(borrow=True))
