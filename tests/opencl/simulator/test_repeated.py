"""One call with many steps gives the same results as that many calls of the function."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.compile.ops import as_op

from tests.opencl.simulator.made import simulated, training_step


@pytest.mark.parametrize("times", [1, 2, 3, 4, 30])
def test_state_and_result_are_the_functions(times):
    f, sim, w, data = training_step()
    for _ in range(times):
        expected = f(*data)
    np.testing.assert_allclose(sim.call_n_times(times, *data), expected, rtol=1e-5)
    np.testing.assert_allclose(sim.get(w), w.get_value(), rtol=1e-4, atol=1e-6)


def test_calls_of_all_kinds_may_follow_each_other():
    f, sim, w, (x, y) = training_step()
    for size, times in ((8, 1), (8, 12), (5, 9), (8, 1), (8, 20), (5, 1)):
        for _ in range(times):
            expected = f(x[:size], y[:size])
        got = sim.call_n_times(times, x[:size], y[:size]) if times > 1 else sim(x[:size], y[:size])
        np.testing.assert_allclose(got, expected, rtol=1e-4)
    sim.set(w, np.zeros((20, 5), "float32"))
    w.set_value(np.zeros((20, 5), "float32"))
    for _ in range(10):
        expected = f(x, y)
    np.testing.assert_allclose(sim.call_n_times(10, x, y), expected, rtol=1e-4)


def test_no_python_runs_between_planned_steps(monkeypatch):
    _, sim, _, data = training_step()
    machine = sim._executable.run
    calls = []
    compute = type(machine).__call__
    monkeypatch.setattr(type(machine), "__call__", lambda self: calls.append(self) or compute(self))
    sim.call_n_times(50, *data)
    assert len(calls) <= 4


def test_counters_on_device_and_host_count():
    x = tt.fscalar("x")
    on_device = theano.shared(np.zeros(3, "float32"), name="on_device")
    on_host = theano.shared(np.int64(0), name="on_host")
    f, sim = simulated([x], on_device[on_host % 3], updates=[(on_device, on_device + x), (on_host, on_host + 1)])
    for _ in range(7):
        expected = f(2)
    np.testing.assert_allclose(sim.call_n_times(7, 2), expected)
    assert sim.get(on_host) == on_host.get_value()
    np.testing.assert_array_equal(sim.get(on_device), on_device.get_value())


def test_state_that_grows():
    x = tt.fvector("x")
    s = theano.shared(np.zeros(1, "float32"), name="s")
    f, sim = simulated([x], s.sum(), updates=[(s, tt.concatenate([s, x]))])
    data = np.ones(2, "float32")
    for _ in range(5):
        expected = f(data)
    np.testing.assert_allclose(sim.call_n_times(5, data), expected)
    np.testing.assert_array_equal(sim.get(s), s.get_value())


def test_shared_variables_that_change_places():
    a, b = (theano.shared(np.full(4, v, "float32"), name=n) for v, n in ((1, "a"), (2, "b")))
    f, sim = simulated([], a - 2 * b, updates=[(a, b), (b, a)])
    for _ in range(11):
        expected = f()
    np.testing.assert_array_equal(sim.call_n_times(11), expected)
    np.testing.assert_array_equal(sim.get(a), a.get_value())
    for _ in range(4):
        np.testing.assert_array_equal(sim(), f())


def test_an_input_that_a_call_overwrites_is_given_anew():
    x = tt.fvector("x")
    _, sim = simulated([theano.In(x, mutable=True)], x + 1)
    np.testing.assert_array_equal(sim.call_n_times(5, np.arange(4, dtype="float32")), [1, 2, 3, 4])


@pytest.mark.parametrize("dtype", ["int32", "float32"])
@pytest.mark.parametrize("with_float", [False, True])
def test_each_step_reads_an_argument_that_it_may_overwrite_as_it_was_passed(dtype, with_float):
    """In-place ops overwrite integers in the caller's array on the host, and floats on the device."""
    x = tt.TensorType(dtype, (False,))("x")
    s = theano.shared(np.zeros(3, dtype), "s")
    outputs = [x.sum()] + [tt.exp(tt.cast(x, "float32"))] * with_float
    update = tt.inc_subtensor(x[:2], np.asarray(1, dtype))
    _, sim = simulated([theano.In(x, mutable=True)], outputs, updates=[(s, update)])
    for times in (1, 2, 7):
        data = np.arange(3, dtype=dtype)
        assert sim.call_n_times(times, data)[0] == 3
        np.testing.assert_array_equal(sim.get(s), [1, 2, 2])
        np.testing.assert_array_equal(data, [0, 1, 2])
    data = np.arange(3, dtype=dtype)
    sim(data)
    np.testing.assert_array_equal(sim.get(s), [1, 2, 2])


def test_a_check_and_a_profile_leave_an_argument_that_a_call_may_overwrite():
    x = tt.ivector("x")
    _, sim = simulated([theano.In(x, mutable=True)], tt.inc_subtensor(x[:2], 1))
    data = np.arange(3, dtype="int32")
    assert sim.check(data).ok
    sim.profile(data, n=2)
    np.testing.assert_array_equal(data, [0, 1, 2])


def test_an_input_with_an_update_goes_on_from_its_last_value():
    x = tt.fvector("x")
    f, sim = simulated([theano.In(x, value=np.ones(4, "float32"), update=x * 2)], x + 1)
    for _ in range(5):
        expected = f()
    np.testing.assert_array_equal(sim.call_n_times(5), expected)
    np.testing.assert_array_equal(sim(), f())


def test_a_node_that_needs_the_host_computes_each_time():
    seen = []

    @as_op(itypes=[tt.fvector], otypes=[tt.fvector])
    def on_host(v):
        seen.append(v.sum())
        return v + 1

    x = tt.fvector("x")
    s = theano.shared(np.zeros(3, "float32"), name="s")
    f, sim = simulated([x], s.sum(), updates=[(s, on_host(s) * x)])
    data = np.full(3, 0.5, "float32")
    for _ in range(6):
        expected = f(data)
    theirs, seen[:] = list(seen), []
    np.testing.assert_allclose(sim.call_n_times(6, data), expected)
    np.testing.assert_allclose(seen, theirs)


def test_methods_have_it_and_wrong_numbers_are_refused():
    f, sim, w, data = training_step()
    sim.add_method("step", f)
    sim.step.call_n_times(3, *data)
    for _ in range(3):
        f(*data)
    np.testing.assert_allclose(sim.get(w), w.get_value(), rtol=1e-4, atol=1e-6)
    for times in (0, -1):
        with pytest.raises(ValueError, match="1 or more"):
            sim.call_n_times(times, *data)
    with pytest.raises(TypeError):
        sim.call_n_times(1.5, *data)


def test_an_argument_may_be_called_times():
    times = tt.fvector("times")
    _, sim = simulated([times], times + 1)
    np.testing.assert_array_equal(sim.call_n_times(2, times=np.zeros(2, "float32")), [1, 1])


@pytest.mark.parametrize("size", [8, 2000])
def test_arguments_that_differ_from_the_recorded_ones_are_used_in_each_step(size):
    """Class labels are host values; recorded commands contain recorded labels, but steps must use passed labels."""
    f, sim, w, (x, y) = training_step()
    x, y = np.resize(x, (size, x.shape[1])), np.resize(y, size)
    last = y.copy()
    last[-1] = (y[-1] + 1) % 5
    for classes in (y, y, (y + 1) % 5, last, (y + 2) % 5, y, last):
        for _ in range(12):
            expected = f(x, classes)
        np.testing.assert_allclose(sim.call_n_times(12, x, classes), expected, rtol=1e-4)
        np.testing.assert_allclose(sim.get(w), w.get_value(), rtol=1e-3, atol=1e-3)
