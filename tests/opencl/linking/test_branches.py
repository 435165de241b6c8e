"""Functions with branches have plans: a guard checks which branch is taken, and the other branches are not computed."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.compile.ops import as_op
from theano.ifelse import ifelse

import optdb
from optdb.opencl.exporting import Untraceable
from optdb.opencl.linking.planned_vm import PlannedVM

pytestmark = pytest.mark.usefixtures("default", "engine_where_quick")

REFERENCE = theano.Mode("py", None)


def floats(*shape, seed=0):
    return np.random.RandomState(seed).standard_normal(shape).astype("float32")


def compiled(inputs, outputs, **kwargs):
    """Compile for the device; return the function and its virtual machine."""
    f = theano.function(inputs, outputs, mode=optdb.mode(device="dev0"), **kwargs)
    machine = f.fn.run
    assert isinstance(machine, PlannedVM)
    assert machine.linked.branches.conditions
    return f, machine


def net(x, phase, w):
    """Return a net that branches on the learning phase, like Keras's nets with noise."""
    hidden = tt.tanh(x.dot(w))
    hidden = ifelse(phase, hidden * 2, hidden)
    hidden = ifelse(phase, hidden - hidden.mean(axis=0), hidden - 1)
    return tt.nnet.softmax(hidden)


def assert_alike(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_each_phase_has_its_plan():
    x, phase, w = tt.fmatrix("x"), tt.bscalar("phase"), theano.shared(floats(4, 3), "w", target="cpu")
    loss = (net(x, phase, w) ** 2).sum()
    updates = [(w, w - np.float32(0.1) * theano.grad(loss, w))]
    expected = theano.function([x, phase], [loss], updates=updates, mode=REFERENCE)
    wanted = [(expected(floats(5, 4, seed=k), k % 4 < 2), w.get_value()) for k in range(12)]
    w.set_value(floats(4, 3))
    f, machine = compiled([x, phase], [loss], updates=updates)
    for k, (values, weights) in enumerate(wanted):
        assert_alike(f(floats(5, 4, seed=k), k % 4 < 2), values)
        np.testing.assert_allclose(w.get_value(), weights, rtol=1e-4, atol=1e-6)
    assert len(machine.plans) == 2
    assert machine.recorded is not None


def test_conditions_that_depend_on_shapes_leave_the_plans_of_others_alone():
    """Conditions are computed before a plan is selected, while the storage still has the values of the last plan."""
    x = tt.fvector("x")
    size = x.shape[0]
    outputs = [ifelse(tt.gt(size, 2), x + 1, x - 1), tt.arange(size), tt.stack([size, size * 3])]
    f, machine = compiled([x], outputs)
    for length in (2, 2, 3, 2, 3, 3, 2, 4, 4, 2, 3):
        moved, numbers, both = f(floats(length))
        np.testing.assert_allclose(moved, floats(length) + (1 if length > 2 else -1))
        np.testing.assert_array_equal(numbers, np.arange(length))
        np.testing.assert_array_equal(both, [length, length * 3])
    assert len(machine.plans) == 3


def test_where_nothing_is_overwritten_no_step_is_held_back():
    x, y = tt.fmatrix("x"), tt.fmatrix("y")
    value = x
    for number in range(3):  # conditions that the device computes become guards within the call
        value = ifelse(tt.gt(value.sum(), number), tt.tanh(value.dot(y)) + 1, value - 1)
    f, machine = compiled([x, y], value)
    expected = theano.function([x, y], value, mode=REFERENCE)
    for seed in range(4):
        assert_alike([f(floats(3, 3, seed=seed), floats(3, 3))], [expected(floats(3, 3, seed=seed), floats(3, 3))])
    assert machine.plans
    for plan in machine.plans:
        assert not plan.final_computes
        assert not plan._halves[1]


def test_no_plan_has_steps_of_the_other_branch():
    x, phase = tt.fmatrix("x"), tt.bscalar("phase")
    f, machine = compiled([x, phase], ifelse(phase, tt.tanh(x.dot(x)).dot(x), x * 2))
    for number in range(6):
        f(floats(3, 3), number % 2)
    short, long = sorted(len(path.steps) for _, path in machine._cache)
    assert short < long < len(machine.linked.nodes)


@pytest.mark.parametrize("where", ["host", "device"])
def test_a_branch_that_is_not_taken_does_not_compute(where):
    computed = []

    @as_op(itypes=[tt.fvector], otypes=[tt.fvector])
    def counted(value):
        computed.append(1)
        return value

    x, phase = tt.fvector("x"), tt.bscalar("phase")
    condition = phase if where == "host" else tt.gt(tt.exp(x).sum(), 3.5)
    f, _ = compiled([x, phase], ifelse(condition, counted(x) * 2, x + 1), on_unused_input="ignore")
    for number in range(4):
        value = np.full(3, -number, "float32")
        np.testing.assert_allclose(f(value, 0), value + 1)
    assert not computed
    for number in range(1, 5):
        value = np.full(3, number, "float32")
        np.testing.assert_allclose(f(value, 1), value * 2)
    assert len(computed) == 4


def test_what_raises_in_a_branch_raises_only_there():
    x, phase = tt.fvector("x"), tt.bscalar("phase")
    f, _ = compiled([x, phase], ifelse(phase, tt.opt.Assert("no")(x * 2, tt.gt(x.shape[0], 3)), x + 1))
    for size, chosen in ((2, 0), (2, 0), (5, 1), (5, 1), (2, 0), (5, 0)):
        np.testing.assert_allclose(f(np.ones(size, "float32"), chosen), 2)
    for _ in range(3):
        with pytest.raises(AssertionError, match="no"):
            f(np.ones(2, "float32"), 1)
        np.testing.assert_allclose(f(np.ones(2, "float32"), 0), 2)


def test_zeros_of_a_branch_that_is_not_taken_are_made_once():
    x, phase, w = tt.fmatrix("x"), tt.bscalar("phase"), theano.shared(floats(4, 4), "w", target="cpu")
    hidden = x.dot(w)
    out = ifelse(phase, hidden * tt.tanh(hidden), hidden)
    f, machine = compiled([x, phase], theano.grad((out**2).sum(), w))
    for seed in range(5):
        value = floats(3, 4, seed=seed)
        product = value.dot(w.get_value())
        squash = np.tanh(product)
        slope = 2 * product * squash * (squash + product * (1 - squash**2))
        np.testing.assert_allclose(f(value, 1), value.T.dot(slope), rtol=1e-3, atol=1e-4)
    (plan,) = machine.plans
    assert plan.commands < sum(len(segment.commands) for segment in plan._recording.segments)


def test_conditions_of_the_device_that_change_at_each_call():
    x, w = tt.fvector("x"), theano.shared(np.zeros(3, "float32"), "w", target="cpu")
    loss = ((x - w) ** 2).sum()
    step = ifelse(tt.gt(loss, 1), tt.sgn(x - w), ifelse(tt.gt(w.sum(), 2), -w, x - w))
    updates = [(w, w + np.float32(0.5) * step)]
    expected = theano.function([x], [loss, step], updates=updates, mode=REFERENCE)
    inputs = [floats(3, seed=k) * (1 + k % 3) for k in range(25)]
    wanted = [(expected(value), w.get_value()) for value in inputs]
    w.set_value(np.zeros(3, "float32"))
    f, machine = compiled([x], [loss, step], updates=updates)
    for value, (values, weights) in zip(inputs, wanted, strict=True):
        assert_alike(f(value), values)
        np.testing.assert_allclose(w.get_value(), weights, rtol=1e-4, atol=1e-6)
    assert len(machine.plans) >= 2


def test_a_condition_that_depends_on_what_overwrites_an_argument():
    x = tt.fvector("x")
    more = tt.inc_subtensor(x[::-1][:2], 1)

    def function(mode):
        outputs = [x + 1, ifelse(tt.gt(more.sum(), 0), x[:1] * 2, x[1:] * 3)]
        return theano.function([theano.In(x, mutable=True, borrow=True)], outputs, mode=mode)

    ours, theirs = function(optdb.mode(device="dev0")), function(REFERENCE)
    for shift in (3, -3, -3, 3, 3, -3):
        assert_alike(ours(floats(4) + shift), theirs(floats(4) + shift))


def test_branches_of_other_shapes_are_given_to_the_caller():
    x = tt.fmatrix("x")
    f, _ = compiled([x], ifelse(tt.gt(x.sum(), 0), tt.exp(x), tt.exp(x[:100]) * 2))
    value = np.full((400, 300), 0.5, "float32")
    for sign in (1, 1, 1, -1, -1, -1, 1, -1, 1):
        wanted = np.exp(value * sign) if sign > 0 else np.exp(value[:100] * sign) * 2
        np.testing.assert_allclose(f(value * sign), wanted, rtol=1e-5)


@pytest.mark.slow
def test_loops_with_branches_inside():
    x, phase = tt.fmatrix("x"), tt.bscalar("phase")
    total = theano.scan(
        lambda row, before: ifelse(phase, before + row, before - row), sequences=x, outputs_info=tt.zeros_like(x[0])
    )[0]
    outputs = [total, theano.grad(total[-1].sum(), x)]
    expected = theano.function([x, phase], outputs, mode=REFERENCE)
    f = theano.function([x, phase], outputs, mode=optdb.mode(device="dev0"))
    for number in range(8):
        assert_alike(f(floats(4, 3), number // 2 % 2), expected(floats(4, 3), number // 2 % 2))


def simulated():
    x, phase, w = tt.fmatrix("x"), tt.bscalar("phase"), theano.shared(floats(4, 3), "w", target="cpu")
    loss = (net(x, phase, w) ** 2).sum()
    updates = [(w, w - np.float32(0.1) * theano.grad(loss, w))]
    return theano.function([x, phase], loss, updates=updates, mode=theano.Mode("py", "fast_run"))


@pytest.mark.parametrize("phase", [0, 1])
def test_calls_in_loops(phase):
    f = simulated()
    one, loop = (optdb.SimulatorOCL(f, "dev0") for _ in range(2))
    for _ in range(12):
        last = one(floats(5, 4), phase)
    np.testing.assert_allclose(loop.call_n_times(12, floats(5, 4), phase), last, rtol=1e-5)
    np.testing.assert_allclose(loop.get("w"), one.get("w"), rtol=1e-5)


def test_reports_of_functions_with_branches(tmp_path):
    sim = optdb.SimulatorOCL(simulated(), "dev0")
    with pytest.raises(Untraceable, match="branches"):
        sim.memory(floats(5, 4), 1)
    for phase in (0, 1, 0, 1, 0, 1):
        sim(floats(5, 4), phase)
    assert sim.memory(floats(5, 4), 1).recorded
    assert sim.memory(floats(5, 4), 1).largest != sim.memory(floats(5, 4), 0).largest
    assert sim.check(floats(5, 4), 1).ok
    assert sim.profile(floats(5, 4), 0, n=2).rows
    with pytest.raises(Untraceable, match=r"branches \(ifelse\).*phase.*givens"):
        sim.export(tmp_path / "net.optdb", [(floats(5, 4), 1)])
