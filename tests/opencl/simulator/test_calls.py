"""Simulators take the same arguments, and return the same results, as the functions that they are made from."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.compile.ops import as_op
from theano.ifelse import ifelse
from theano.sandbox.rng_mrg import MRG_RandomStreams
from theano.tensor.shared_randomstreams import RandomStreams

import optdb
from optdb.opencl import get_context
from optdb.opencl.linking.planned_vm import PlannedVM
from optdb.runtime.commands import EnqueueKernel
from optdb.runtime.context_options import BatchThresholds
from tests.processes import run_code

pytestmark = pytest.mark.usefixtures("engine_where_quick")


def simulated(inputs, outputs, **kwargs):
    """Return a function compiled for the host, and a simulator of it."""
    f = theano.function(inputs, outputs, mode=theano.Mode(linker="py", optimizer="fast_run"), **kwargs)
    return f, optdb.SimulatorOCL(f, device="dev0")


@pytest.fixture
def step():
    """Return a training function, its simulator, its two shared variables, and arguments."""
    rng = np.random.RandomState(0)
    x, y = tt.fmatrix("x"), tt.ivector("y")
    w = theano.shared(rng.randn(20, 5).astype("float32"), name="w")
    rate = theano.shared(np.float32(0.1), name="rate")
    loss = tt.nnet.categorical_crossentropy(tt.nnet.softmax(x.dot(w)), y).mean()
    f, sim = simulated([x, y], loss, updates=[(w, w - rate * tt.grad(loss, w))])
    return f, sim, w, rate, (rng.randn(8, 20).astype("float32"), rng.randint(0, 5, 8).astype("int32"))


@pytest.mark.slow
def test_a_training_step_is_the_functions(step):
    f, sim, w, _, data = step
    for _ in range(4):
        np.testing.assert_allclose(sim(*data), f(*data), rtol=1e-5)
    np.testing.assert_allclose(sim.get(w), w.get_value(), rtol=1e-5)


def test_steps_are_planned(step):
    _, sim, _, _, data = step
    for _ in range(3):
        sim(*data)
    machine = sim._executable.run
    assert isinstance(machine, PlannedVM)
    assert [plan.commands > 0 for plan in machine.plans] == [True]


def compute(sim, *data):
    return sim(*data)


def begin(sim, *data):
    return sim.run_async(*data).wait()


def repeat(sim, *data):
    return sim.call_n_times(1, *data)


# Four of the frames are calls that defer interrupts, for the simulator and for its virtual machine. A context manager
# would need no such calls, but an interrupt during its entry would prevent its exit.
@pytest.mark.parametrize("call, most", [(compute, 10), (begin, 11), (repeat, 14)])
def test_few_frames_lie_between_a_call_and_what_it_enqueues(step, monkeypatch, call, most):
    # Allow no batches, which would enqueue the commands without Python.
    context = get_context("dev0")
    monkeypatch.setattr(context, "options", replace(context.options, batch_thresholds=BatchThresholds(times=100)))
    _, sim, _, _, data = step
    for _ in range(3):
        sim(*data)
    assert sim._executable.run.plans
    names = []

    def enqueue(command):
        frame = sys._getframe(1)
        names.append([])
        while frame.f_code is not call.__code__:
            names[-1].append(frame.f_code.co_qualname if sys.version_info >= (3, 11) else frame.f_code.co_name)
            frame = frame.f_back
        names[-1].pop()  # the last name is that of the called method, or of the simulator's method that calls it

    monkeypatch.setattr(EnqueueKernel, "enqueue", enqueue)
    call(sim, *data)
    assert names and max(map(len, names)) <= most, names


@pytest.mark.parametrize("method", ["memory", "check", "profile", "report", "run_async", "call_n_times"])
def test_a_method_exchanges_nothing_in_the_function(step, monkeypatch, method):
    _, sim, _, _, data = step
    sim(*data)
    (function,) = sim._methods.values()
    before, seen = dict(vars(function._taker)), []
    take_argument = type(sim._executable.inputs[0]).take

    def take(*args):
        seen.append(dict(vars(function._taker)))
        return take_argument(*args)

    monkeypatch.setattr(type(sim._executable.inputs[0]), "take", take)
    getattr(sim, method)(*([2] if method == "call_n_times" else []), *data)
    assert seen and all(state == before for state in seen)


def test_theanos_values_stay_until_they_are_asked_for(step):
    _, sim, w, _, data = step
    before = w.get_value()
    sim(*data)
    np.testing.assert_array_equal(w.get_value(), before)
    sim.sync_to_theano()
    np.testing.assert_array_equal(w.get_value(), sim.get("w"))
    assert not np.array_equal(w.get_value(), before)


def test_values_come_from_theano_when_asked_for(step):
    f, sim, w, rate, data = step
    sim(*data)
    w.set_value(np.zeros((20, 5), "float32"))
    rate.set_value(np.float32(0.5))
    sim.sync_from_theano("w", rate)
    np.testing.assert_allclose(sim(*data), f(*data), rtol=1e-5)
    np.testing.assert_allclose(sim.get(w), w.get_value(), rtol=1e-5, atol=1e-6)


def test_out_of_step_values_are_told_of_once(step, caplog):
    _, sim, w, _, data = step
    with theano.configparser.change_flags(**{"optdb.trace": True}):
        sim(*data)
        assert "were changed" not in caplog.text
        w.set_value(np.zeros((20, 5), "float32"))
        sim(*data)
        sim(*data)
    messages = [record.getMessage() for record in caplog.records if "were changed" in record.getMessage()]
    assert len(messages) == 1 and messages[0].startswith(
        "Theano's values of w were changed, and differ from the simulator's;"
    )


def test_synchronizing_some_leaves_the_others(step):
    _, sim, w, rate, data = step
    sim.set(rate, 0.25)
    sim(*data)
    sim.sync_to_theano(rate)
    assert rate.get_value() == np.float32(0.25)
    assert not np.array_equal(w.get_value(), sim.get(w))


def test_nothing_is_lost_where_an_input_is_wrong(step):
    f, sim, w, _, (x, y) = step
    for _ in range(3):
        sim(x, y)
    before = sim.get(w)
    with pytest.raises(ValueError, match="out of bounds"):
        sim(x, y + 5)
    np.testing.assert_array_equal(sim.get(w), before)
    w.set_value(before)
    np.testing.assert_allclose(sim(x, y), f(x, y), rtol=1e-5)


def test_other_shapes_are_other_plans(step):
    f, sim, _, _, (x, y) = step
    for size in (8, 3, 8, 1, 3, 8):
        np.testing.assert_allclose(sim(x[:size], y[:size]), f(x[:size], y[:size]), rtol=1e-5)


def test_names_and_defaults_are_the_functions():
    x, y = tt.dscalar("x"), tt.dscalar("y")
    f, sim = simulated([x, theano.In(y, value=10.0)], [x - y, x * y])
    for call in (f, sim):
        assert [float(v) for v in call(3)] == [-7, 30]
        assert [float(v) for v in call(3, y=2)] == [1, 6]
        assert [float(v) for v in call(x=4, y=2)] == [2, 8]
        assert [float(v) for v in call(3)] == [-7, 30]


@pytest.mark.parametrize(
    "args, kwargs",
    [((), {}), ((1, 2, 3), {}), ((1,), {"x": 2}), ((1,), {"z": 2}), (("text",), {}), (([1.0, 2.0],), {})],
)
def test_wrong_arguments_are_the_functions_errors(args, kwargs):
    x, y = tt.dscalar("x"), tt.dscalar("y")
    f, sim = simulated([x, theano.In(y, value=10.0)], x - y, name="minus")
    with pytest.raises(Exception) as theirs:
        f(*args, **kwargs)
    with pytest.raises(theirs.type) as ours:
        sim(*args, **kwargs)
    assert str(ours.value) == str(theirs.value)


@pytest.mark.slow
def test_outputs_come_in_the_functions_form():
    x = tt.dvector("x")
    data = np.arange(3.0)
    for outputs in (x + 1, [x + 1], [x + 1, x * 2], {"a": x + 1, "b": x * 2}, None):
        f, sim = simulated([x], outputs, on_unused_input="ignore")
        ours, theirs = sim(data), f(data)
        assert type(ours) is type(theirs)
        np.testing.assert_equal(ours, theirs)


def test_only_some_outputs():
    x = tt.dvector("x")
    f = theano.function([x], {"a": x + 1, "b": x * 2})
    sim = optdb.SimulatorOCL(f, device="dev0")
    # Without a compiler, Theano's own virtual machine does not have the parameter `output_subset`.
    wanted = f(np.arange(3.0), output_subset=["b"]) if theano.config.cxx else {"b": np.arange(3.0) * 2}
    np.testing.assert_equal(sim(np.arange(3.0), output_subset=["b"]), wanted)


def test_inputs_with_updates_are_kept_by_the_simulator():
    x, total = tt.dscalar("x"), tt.dscalar("total")
    f, sim = simulated([x, theano.In(total, value=0.0, update=total + x)], total * 1)
    for value in (1.0, 2.0, 5.0):
        assert sim(value) == f(value)
    assert f[total] == 8.0
    fresh = optdb.SimulatorOCL(f)
    assert fresh(1.0) == 8.0
    assert f[total] == 8.0


def test_a_result_computed_over_the_present_value_is_that_of_each_call():
    total, w = tt.dvector("total"), theano.shared(np.ones(3), name="w")
    f, sim = simulated([theano.In(total, value=np.ones(3), update=total + 1)], [total * 2, w * 2], updates=[(w, w + 1)])
    for _ in range(5):
        np.testing.assert_array_equal(sim(), f())


def test_outputs_are_the_callers_unless_borrowed():
    x = tt.fvector("x")
    w = theano.shared(np.ones(4, "float32"), borrow=True)
    _, sim = simulated([x], [w, x, x + 1, theano.Out(x * 2, borrow=True)])
    first = sim(np.arange(4, dtype="float32"))
    for value in first[:3]:
        value += 10
    again = sim(np.arange(4, dtype="float32"))
    np.testing.assert_equal(again[:3], [np.ones(4), np.arange(4), np.arange(4) + 1])
    np.testing.assert_equal(first[2], np.arange(4) + 11)
    assert again[3] is first[3]


def test_an_output_that_is_a_shared_variable_is_its_value_before_the_update():
    w = theano.shared(np.zeros(3), name="w")
    f, sim = simulated([], [w, w + 1], updates=[(w, w + 1)])
    for _ in range(4):
        np.testing.assert_equal(sim(), f())


def test_updates_may_exchange_values():
    a, b = theano.shared(np.zeros(3), name="a"), theano.shared(np.ones(3), name="b")
    f, sim = simulated([], a.sum(), updates=[(a, b), (b, a)])
    for _ in range(5):
        assert sim() == f()
        np.testing.assert_equal([sim.get(a), sim.get(b)], [a.get_value(), b.get_value()])


@pytest.mark.parametrize("on_device", [True, False])
def test_variables_with_the_same_next_value_stay_apart(on_device):
    a, b, c = (theano.shared(np.zeros(3, "float32" if on_device else "int8"), name=name) for name in "abc")
    x = a.type("x")
    f, sim = simulated([x], [], updates=[(a, x), (b, x), (c, x + 1)])
    g, _ = simulated([], [], updates=[(a, a + 1)])
    sim.add_method("bump", g)
    for number in range(4):
        value = np.full(3, number, a.dtype)
        f(value), sim(value), g(), sim.bump()
        for one in (a, b, c):
            np.testing.assert_array_equal(sim.get(one), one.get_value())


@pytest.mark.slow
def test_branches_without_a_compiler():
    code = """
        import numpy as np
        import optdb, theano, theano.tensor as tt
        from theano.ifelse import ifelse
        x = tt.fvector()
        f = theano.function([x], ifelse(x.sum() > 0, x * 2, x + 1))
        print(optdb.SimulatorOCL(f)([1, 2]).tolist(), theano.function([], tt.constant(1.0) * 2, mode="OPENCL")())
    """
    assert run_code(code, flags="cxx=").stdout.strip() == "[2.0, 4.0] 2.0"


def test_random_numbers_are_the_functions():
    for streams in (MRG_RandomStreams(3), RandomStreams(3)):
        f, sim = simulated([], streams.uniform((4, 5)))
        for _ in range(3):
            np.testing.assert_array_equal(sim(), f())


@pytest.mark.slow
def test_a_loop():
    x, w = tt.fmatrix("x"), theano.shared(np.eye(3, dtype="float32") / 2, name="w")
    states, _ = theano.scan(lambda row, state: tt.tanh(row + state.dot(w)), [x], [tt.zeros(3, "float32")])
    loss = states[-1].sum()
    f, sim = simulated([x], loss, updates=[(w, w - np.float32(0.1) * tt.grad(loss, w))])
    for steps in (4, 4, 4, 2, 5):
        data = np.random.RandomState(steps).randn(steps, 3).astype("float32")
        np.testing.assert_allclose(sim(data), f(data), rtol=1e-5)
    np.testing.assert_allclose(sim.get(w), w.get_value(), rtol=1e-5)


def test_branches_are_decided_as_they_run():
    x = tt.fmatrix("x")
    w = theano.shared(np.ones((3, 3), "float32"))
    f, sim = simulated([x], ifelse(x.sum() > 0, x.dot(w), x - w), updates=[(w, w * 2)])
    for sign in (1, -1, 1, -1):
        data = sign * np.ones((3, 3), "float32")
        np.testing.assert_allclose(sim(data), f(data))


def test_what_the_device_cannot_do_is_done_beside_it():
    x = tt.fmatrix("x")

    @as_op(itypes=[tt.fmatrix], otypes=[tt.fmatrix])
    def upside_down(a):
        return a[::-1].copy()

    w = theano.shared(np.arange(6, dtype="float32").reshape(2, 3))
    f, sim = simulated([x], upside_down(x * w) + 1, updates=[(w, w + upside_down(w))])
    for _ in range(4):
        np.testing.assert_allclose(sim(np.ones((2, 3), "float32")), f(np.ones((2, 3), "float32")))


def test_what_is_no_function_is_refused():
    with pytest.raises(TypeError, match=r"theano\.function"):
        optdb.SimulatorOCL(lambda x: x)


def test_optimize_makes_the_same_in_the_threads_words(step):
    f, _, _, _, data = step
    again = optdb.optimize(f, optdb.opencl_backend(device="dev0"))
    assert isinstance(again, optdb.SimulatorOCL)
    np.testing.assert_allclose(again(*data), f(*data), rtol=1e-5)


@pytest.mark.slow
def test_filters_that_are_updated_by_flipped_gradients_stay_where_they_are():
    rng = np.random.RandomState(0)
    image = tt.tensor4("image", dtype="float32")
    filters = theano.shared(rng.randn(4, 3, 3, 3).astype("float32"), name="filters")
    loss = (tt.nnet.conv2d(image, filters, border_mode="half") ** 2).mean()
    f = theano.function([image], loss, updates=[(filters, filters - tt.grad(loss, filters))])
    sim = optdb.SimulatorOCL(f, device="dev0")
    data = rng.randn(2, 3, 6, 6).astype("float32")
    for _ in range(4):
        np.testing.assert_allclose(sim(data), f(data), rtol=1e-4)
    assert len(sim._executable.run.plans) == 1
