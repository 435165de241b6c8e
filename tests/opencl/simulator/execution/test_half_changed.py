"""After a call that raises, all shared variables are unchanged, wherever and however the call is stopped."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.ifelse import ifelse

import optdb
from optdb.device.plans import machine as vm
from optdb.device.plans.linked import LinkedFunction
from optdb.opencl import contexts
from optdb.opencl.registry import context_of

FOUR = np.ones(4, "float32")


def two_chains(dtype):
    s, t = shared(dtype, 4), shared(dtype, 5)
    return [s, t], lambda e, i, b: [(s, tt.inc_subtensor(s[0], one(dtype))), (t, tt.inc_subtensor(t[i], one(dtype)))]


def one_chain(dtype):
    s = shared(dtype, 4)
    return [s], lambda e, i, b: [(s, tt.inc_subtensor(tt.set_subtensor(s[:2], one(dtype))[i], one(dtype)))]


def two_shapes(dtype):
    s, t = shared(dtype, 4), shared(dtype, 4)
    return [s, t], lambda e, i, b: [(s, s + one(dtype)), (t, t + tt.cast(e, dtype))]


def exchanged(dtype):
    s, t = shared(dtype, 4), shared(dtype, 4)
    return [s, t], lambda e, i, b: [(s, tt.inc_subtensor(t[1:], one(dtype))), (t, tt.set_subtensor(s[i], one(dtype)))]


def in_branch(dtype):
    s, t = shared(dtype, 4), shared(dtype, 4)
    changed = lambda i: tt.inc_subtensor(tt.set_subtensor(s[:2], one(dtype))[i], one(dtype))  # noqa: E731
    return [s, t], lambda e, i, b: [(s, ifelse(b, changed(i), s)), (t, t + one(dtype))]


def in_loop(dtype):
    s = shared(dtype, 4)

    def step(k):
        return {s: tt.inc_subtensor(tt.set_subtensor(s[:2], one(dtype))[k], one(dtype))}

    return [s], lambda e, i, b: list(theano.scan(step, sequences=[tt.arange(2) * i])[1].items())


def in_loop_that_stops(dtype):
    """Return updates: state is overwritten, and then a loop reads its condition from the device in each step."""
    s, t = shared(dtype, 4), shared(dtype, 5)
    changed = tt.set_subtensor(s[:2], one(dtype))

    def step(sums):
        sums += changed
        return sums, theano.scan_module.until(sums.sum() > 1000)

    rows, _ = theano.scan(step, outputs_info=[tt.zeros_like(s)], n_steps=3)
    following = lambda i: tt.set_subtensor(tt.cast(rows.sum(axis=0), dtype)[i], one(dtype))  # noqa: E731
    return [s, t], lambda e, i, b: [(s, changed), (t, following(i))]


def at_indexes(dtype):
    s = shared(dtype, 4)
    indexes = np.array([0, 1])
    return [s], lambda e, i, b: [
        (s, tt.inc_subtensor(tt.inc_subtensor(s[indexes], one(dtype))[tt.stack([0, i])], one(dtype)))
    ]


CASES = [two_chains, one_chain, two_shapes, exchanged, in_branch, in_loop, in_loop_that_stops, at_indexes]


def shared(dtype, length):
    return theano.shared(np.arange(length).astype(dtype), f"s{length}")


def one(dtype):
    return np.ones((), dtype)


def made(case, dtype, way):
    """Return shared variables, a function that updates them, and a function that reads a variable."""
    e, i, b = tt.fvector("e"), tt.iscalar("i"), tt.bscalar("b")
    variables, updates = case(dtype)
    options = {"updates": updates(e, i, b), "on_unused_input": "ignore"}
    if way == "mode":
        f = theano.function([e, i, b], e * 2, mode=optdb.mode(device="opencl"), **options)
        return variables, f, lambda var: var.get_value()
    f = theano.function([e, i, b], e * 2, mode=theano.Mode("py", "fast_run"), **options)
    sim = optdb.SimulatorOCL(f, "opencl")
    calls = {
        "simulator": sim,
        "loop": lambda *args: sim.call_n_times(3, *args),
        "later": lambda *args: sim.run_async(*args).wait(),
    }
    return variables, calls[way], sim.get


@pytest.fixture(autouse=True)
def without_compiler():
    """Do not compile C for nodes that stay on the host: it takes longer than the rest."""
    with theano.configparser.change_flags(cxx=""):
        yield


@pytest.mark.pairwise
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("way", ["mode", "simulator", "loop", "later"])
@pytest.mark.parametrize("case", CASES)
def test_a_call_that_raises_changes_nothing_in_any_way(case, way, dtype):
    check_that_a_call_that_raises_changes_nothing(case, way, dtype)


@pytest.mark.parametrize("way, dtype", [("mode", "int32"), ("simulator", "float32")])
@pytest.mark.parametrize("case", [one_chain, two_shapes])
def test_a_call_that_raises_changes_nothing(case, way, dtype):
    check_that_a_call_that_raises_changes_nothing(case, way, dtype)


def check_that_a_call_that_raises_changes_nothing(case, way, dtype):
    variables, f, get = made(case, dtype, way)
    wrong = [(FOUR, 100, 1), (np.ones(5, "float32"), 100, 1)]
    raised = 0
    for call in (*wrong, (FOUR, 1, 1), *wrong, (FOUR, 1, 1), (FOUR, 1, 1), *wrong, (FOUR, 2, 1)):
        before = [get(var) for var in variables]
        try:
            f(*call)
        except (IndexError, ValueError):
            raised += 1
            for var, value in zip(variables, before, strict=True):
                np.testing.assert_array_equal(get(var), value)
    assert raised >= 3


def test_a_call_without_plans_that_raises_changes_nothing():
    with theano.configparser.change_flags(**{"optdb.plans": False}):
        (s,), f, get = made(one_chain, "float32", "simulator")
    with pytest.raises(IndexError):
        f(FOUR, 100, 1)
    np.testing.assert_array_equal(get(s), [0, 1, 2, 3])


def test_a_call_that_does_not_fit_its_plans_changes_nothing(monkeypatch):
    monkeypatch.setattr("optdb.device.plans.machine.MAX_UNUSED_RECORDINGS", 0)
    (s,), f, get = made(one_chain, "float32", "simulator")
    with pytest.raises(IndexError):
        f(FOUR, 100, 1)
    np.testing.assert_array_equal(get(s), [0, 1, 2, 3])
    f(FOUR, 1, 1)
    np.testing.assert_array_equal(get(s), [1, 2, 2, 3])


@pytest.mark.parametrize("calls", [0, 1, 3])
def test_too_little_memory_at_the_end_changes_nothing(monkeypatch, calls):
    (s, t), f, get = made(two_chains, "float32", "simulator")
    for _ in range(calls):
        f(FOUR, 1, 1)
    before = [get(s), get(t)]
    overwritten = []
    run = LinkedFunction.run

    def run_out_of_memory(self, number):
        if number in self.branches.final:
            overwritten.append(number)
        if len(overwritten) > 1:
            raise MemoryError("no room")
        run(self, number)

    with monkeypatch.context() as patch:
        patch.setattr(LinkedFunction, "run", run_out_of_memory)
        with pytest.raises(MemoryError, match="no room"):
            # Call with several indexes, because nodes that read the last call's index again need not run.
            f(FOUR, 2, 1)
            f(FOUR, 3, 1)
            overwritten.append(None)
            f(FOUR, 0, 1)
    np.testing.assert_array_equal(get(t)[-1:], before[1][-1:])
    assert get(s)[0] - before[0][0] == get(t).sum() - before[1].sum()


def test_results_that_do_not_come_home_leave_variables_of_one_call(monkeypatch):
    n = theano.shared(np.zeros((), "int64"), "n")
    s = theano.shared(np.zeros(3, "float32"), "s")
    x = tt.fvector("x")
    updates = [(n, n + 1), (s, s + x)]
    f = theano.function([x], s * 2, updates=updates, mode=optdb.mode(device="opencl"))
    data = np.ones(3, "float32")
    f(data)

    def to_host(*_):
        raise MemoryError("no room at home")

    for name in (
        "optdb.opencl.simulator.execution.io_binding.to_host",
        "optdb.opencl.simulator.execution.state.to_host",
    ):
        with monkeypatch.context() as patch:
            patch.setattr(name, to_host)
            with pytest.raises(MemoryError, match="no room at home"):
                f(data)
        np.testing.assert_array_equal(s.get_value(), np.full(3, n.get_value()))
    f(data)
    np.testing.assert_array_equal(s.get_value(), np.full(3, n.get_value()))


def test_arrays_of_the_device_are_changed_wholly_or_not_at_all():
    with contexts.as_default(context_of("opencl")) as name:
        s = theano.shared(np.arange(4, dtype="float32"), target=name)
        i = tt.iscalar("i")
        following = tt.inc_subtensor(tt.set_subtensor(s[:2], np.float32(9))[i], np.float32(1))
        f = theano.function([i], updates=[(s, following)], mode=theano.compile.get_default_mode().including("opencl"))
    for _ in range(3):
        with pytest.raises(IndexError):
            f(100)
    np.testing.assert_array_equal(s.get_value(), [0, 1, 2, 3])


def test_an_error_does_not_show_values_that_are_not_computed():
    _, f, _ = made(one_chain, "float32", "simulator")
    with pytest.raises(IndexError, match="not computed yet") as caught:
        f(FOUR, 100, 1)
    assert "Inputs shapes: [(4,)" in str(caught.value)


class ClaimsOneRow(theano.Op):
    """An op that copies a matrix; the copy's type says that it has one row, which is wrong for other matrices."""

    __props__ = ()

    def make_node(self, x):
        return theano.Apply(self, [x], [tt.TensorType(x.dtype, (True, False))()])

    def perform(self, node, inputs, outputs, params=None):
        outputs[0][0] = inputs[0].copy()

    def infer_shape(self, node, shapes):
        return shapes


@pytest.mark.parametrize("way", ["mode", "simulator"])
@pytest.mark.parametrize("is_last", [True, False])
def test_a_next_value_that_breaks_its_type_leaves_other_variables(way, is_last):
    s = shared("float32", 4)
    row = theano.shared(np.ones((1, 3), "float32"), "row", broadcastable=(True, False))
    m = tt.fmatrix("m")
    updates = [(s, tt.inc_subtensor(s[:2], np.float32(1))), (row, ClaimsOneRow()(m))][:: 1 if is_last else -1]
    f = theano.function([m], updates=updates, mode=optdb.mode(device="opencl") if way == "mode" else "FAST_COMPILE")
    f = f if way == "mode" else optdb.SimulatorOCL(f, "opencl")
    get = f.get if way == "simulator" else lambda var: var.get_value()
    for number in range(4):
        with pytest.raises(ValueError, match="length 1"):
            f(np.ones((2, 3), "float32"))
        np.testing.assert_array_equal(get(s), [number, 1 + number, 2, 3])
        assert get(row).shape == (1, 3)
        f(np.full((1, 3), number, "float32"))


def test_commands_are_held_only_where_python_may_raise(monkeypatch):
    held = []

    class Counted(vm.HeldCommands):
        def __init__(self):
            super().__init__()
            held.append(self)

    monkeypatch.setattr(vm, "HeldCommands", Counted)
    s, i = shared("float32", 4), tt.iscalar("i")
    x = tt.fvector("x")
    updates = [(s, tt.inc_subtensor(s[i], x.sum()))]
    f = optdb.SimulatorOCL(theano.function([x, i], s.sum(), updates=updates, mode="FAST_COMPILE"), "opencl")
    for _ in range(4):
        f(FOUR, 1)
    held.clear()
    f(2 * FOUR, 1)
    assert not held, "all commands are bound, and the commit is recorded"
    f(FOUR, 2)
    assert held, "another index is checked in Python"
    np.testing.assert_array_equal(f.get(s), [0, 25, 6, 3])


def test_held_launches_of_one_kernel_keep_their_arguments():
    s, i = shared("float32", 4), tt.iscalar("i")
    following = tt.inc_subtensor(tt.inc_subtensor(s[i], np.float32(1))[i + 1], np.float32(1))
    f = optdb.SimulatorOCL(theano.function([i], updates=[(s, following)], mode="FAST_COMPILE"), "opencl")
    for number in (0, 1, 2, 0, 1, 2):
        f(number)
    np.testing.assert_array_equal(f.get(s), [2, 5, 6, 5])
