"""Calls can be begun, and waited for later."""

from __future__ import annotations

import numpy as np
import pytest
import theano.tensor as tt

from optdb.runtime import timing
from optdb.runtime.library import cl
from tests.opencl.simulator.made import simulated, training_step


def test_results_are_the_functions_whatever_the_order_of_waiting():
    f, sim, w, (x, y) = training_step()
    expected, pending = [], []
    for number in range(12):
        expected.append(f(x * number, y))
        pending.append(sim.run_async(x * number, y))
    for one, wanted in sorted(zip(pending, expected, strict=True), key=id):
        np.testing.assert_allclose(one.wait(), wanted, rtol=1e-4)
        assert one.done()
    np.testing.assert_allclose(sim.get(w), w.get_value(), rtol=1e-4, atol=1e-6)


def test_arguments_may_be_changed_as_soon_as_it_returns():
    a = tt.fmatrix("a")
    f, sim = simulated([a], tt.tanh(a.dot(a)))
    data = np.random.RandomState(0).rand(300, 300).astype("float32")
    for _ in range(4):
        wanted, pending = f(data), sim.run_async(data)
        data += 1
        np.testing.assert_allclose(pending.wait(), wanted, rtol=1e-4)


def test_calls_may_come_between():
    f, sim, _, data = training_step()
    pending = [sim.run_async(*data) for _ in range(3)]
    expected = [f(*data) for _ in range(4)]
    np.testing.assert_allclose(sim(*data), expected[3], rtol=1e-5)
    np.testing.assert_allclose([one.wait() for one in pending], expected[:3], rtol=1e-5)


@pytest.mark.parametrize("form", ["one", "list", "dict", "none"])
def test_outputs_come_in_the_functions_form(form):
    x = tt.dvector("x")
    outputs = {"one": x + 1, "list": [x + 1, x.shape[0]], "dict": {"a": x + 1, "b": x[::-1]}, "none": None}[form]
    f, sim = simulated([x], outputs, on_unused_input="ignore")
    for length in (3, 0, 3, 3):
        got = sim.run_async(np.arange(float(length))).wait()
        assert type(got) is type(f(np.arange(float(length))))
        np.testing.assert_equal(got, f(np.arange(float(length))))


def test_waiting_twice_gives_the_same():
    _, sim, _, data = training_step()
    pending = sim.run_async(*data)
    assert pending.wait() is pending.wait(timeout=1)


@pytest.mark.slow
def test_python_goes_on_before_the_device_is_done():
    _, sim, _, (x, y) = training_step()
    for number in range(3):
        sim(x, (y + number) % 5)
    held = keep_busy(sim._state.context)
    # The class labels differ from those of the last call, so a node of the graph copies them to the device.
    pending = sim.run_async(x, y)
    assert not pending.done()
    with pytest.raises(TimeoutError, match="wait again"):
        pending.wait(timeout=0.001)
    assert np.isfinite(pending.wait())
    del held


def keep_busy(context):
    """Keep a device busy for some tenths of a second; return objects that the caller has to keep until then."""
    source = "kernel void busy(global float* a) { for (int i = 0; i < 200000000; i++) a[0] = a[0] * 0.9f + i; }"
    kernel = cl.Program(context.cl_context, source).build().busy
    number = cl.Buffer(context.cl_context, cl.mem_flags.READ_WRITE, 4)
    kernel.set_args(number)
    cl.enqueue_nd_range_kernel(context.queue, kernel, (1,), (1,))
    context.queue.flush()
    return kernel, number


def test_times_are_in_order():
    _, sim, _, data = training_step()
    first, second = sim.run_async(*data), sim.run_async(*data)
    for one in (first, second):
        times = one.times
        assert isinstance(times, timing.Times)
        assert times.queued <= times.submitted <= times.start <= times.end
    assert first.times.end <= second.times.end


def test_wrong_arguments_are_errors_at_once():
    _, sim, _, (x, y) = training_step()
    with pytest.raises(TypeError):
        sim.run_async(x)
    with pytest.raises(ValueError, match="out of bounds"):
        sim.run_async(x, y + 5)
    assert np.isfinite(sim(x, y))
