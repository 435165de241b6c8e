"""Shared variables agree with a NumPy model after any calls and changes; planted faults are found."""

from __future__ import annotations

import numpy as np
import pytest
import theano
from click.testing import CliRunner

from fuzzing.states.__main__ import main
from fuzzing.states.expressions import Kind, Undefined, apply_numpy
from fuzzing.states.functions import compiled, shared_variables
from fuzzing.states.machine import Differs, SharedVariables
from fuzzing.states.model import Model
from fuzzing.states.separate import of_file, on_device, with_private_state
from fuzzing.states.specs import COUNT, Expression, Output, Spec
from fuzzing.states.worker import run
from optdb.opencl.linking.planned_vm import PlannedVM
from optdb.opencl.simulator.execution.io_binding import ZeroCopyScope
from optdb.opencl.simulator.execution.state import Mirror
from optdb.runtime.dispatch import HeldCommands
from tests.effort import examples

STEPS = 30


@pytest.fixture(autouse=True)
def without_compiler():
    """Compile no C code: the tests use many small functions."""
    with theano.configparser.change_flags(cxx=""):
        yield


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.thorough)])
def test_shared_variables_are_what_a_model_says(seed):
    run(seed, examples(50, share=8), STEPS)


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 12))
def test_shared_variables_are_what_a_model_says_in_more_runs(seed):
    run(seed, examples(100), STEPS)


@pytest.mark.slow
def test_a_stale_variable_is_seen(monkeypatch):
    monkeypatch.setattr(Mirror, "refresh", lambda self: None)
    with pytest.raises(Differs):
        run(1, 50, STEPS, shorten=False)


@pytest.mark.thorough
@pytest.mark.slow
def test_a_result_that_changes_later_is_seen(monkeypatch):
    kept = {}

    def give(self, *_):
        value = np.asarray(self.cell[0].get() if hasattr(self.cell[0], "get") else self.cell[0])
        home = kept.setdefault((id(self), value.shape), np.empty_like(value))
        home[...] = value
        return home

    monkeypatch.setattr("optdb.opencl.simulator.execution.io_binding.Output.give", give)
    with pytest.raises(Differs):
        run(1, 50, STEPS, shorten=False)


@pytest.mark.thorough
@pytest.mark.slow
def test_a_half_changed_variable_is_seen(monkeypatch):
    monkeypatch.setattr(HeldCommands, "takes_bound", True)
    monkeypatch.setattr(HeldCommands, "on", lambda self, command: command.enqueue())
    with pytest.raises(Differs):
        run(0, 100, STEPS, shorten=False)


@pytest.mark.thorough
@pytest.mark.slow
def test_a_borrowed_result_that_is_overwritten_as_an_argument_is_seen(monkeypatch):
    monkeypatch.setattr(PlannedVM, "_spare_arguments", lambda self: None)
    monkeypatch.setattr(ZeroCopyScope, "reusable", lambda self, last: last)
    # Which arrays share memory depends on earlier allocations of the process.
    with pytest.raises(Differs):
        for seed in (1, 0, 5, 4):
            run(seed, 200, STEPS, shorten=False)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["file", "private", "target"])
def test_a_function_with_state_of_its_own_that_is_wrong_is_seen(way):
    kind = Kind("float32", 1)
    values = {k: np.ones(3, "float32") for k in range(COUNT)}
    spec = Spec((Output(Expression(0)),), ((0, Expression(0, ("inc_head", "inc_at"))),))
    model, kinds = Model(spec, (kind,) * COUNT, frozenset()), (kind,) * COUNT
    if way == "file":
        variables = shared_variables(kinds, list(values.values()), frozenset())
        function = compiled(spec, kinds, variables, "simulator", "auto")
        stateful = of_file(function, model, values, (values[0], 1), "auto")
    elif way == "private":
        stateful = with_private_state(kind, ("inc_head", "inc_at"), values[0], "simulator", "auto")
    else:
        stateful = on_device(spec, kinds, values, compiled, "auto")
    assert stateful.difference(values[0], 1) is None
    assert stateful.difference(values[0], 9) is None
    assert stateful.difference(values[0], 2) is None
    stateful.values[0] = stateful.values[0] + np.float32(1)
    assert "expected" in stateful.difference(values[0], 1)


def vectors(length):
    """Return shared vectors of one length, and a function and a simulator that add their argument to the first one."""
    kind = Kind("float32", 1)
    state = SharedVariables()
    spec = Spec((), ((0, Expression(0, ("with_argument",))),))
    state.begin((kind,) * COUNT, ((length, 1),) * 2, 0, frozenset(), [(spec, "py"), (spec, "simulator")])
    return state


@pytest.mark.parametrize("lengths, error", [((0, 1), Undefined), ((1, 0), Undefined), ((0, 2), ValueError)])
def test_the_lengths_0_and_1_together_have_no_defined_sum(lengths, error):
    one, other = (np.zeros(length, "float32") for length in lengths)
    with pytest.raises(error):
        apply_numpy(("with_argument",), one, Kind("float32", 1), other, 0)
    with pytest.raises(ValueError, match="differ"):
        apply_numpy(("with_argument",), np.zeros((lengths[0], 4)), Kind("float64", 2), np.zeros((lengths[1], 3)), 0)


def test_calls_of_which_a_later_one_raises_are_not_made():
    """If the first of two calls would change shapes so that the second call raises, neither call is made."""
    state = SharedVariables()
    kind = Kind("float32", 2)
    spec = Spec((), ((2, Expression(0)), (0, Expression(2, ("with_argument",)))), argument=1)
    state.begin((kind,) * COUNT, ((0, 1),) * 2, 0, frozenset(), [(spec, "py")])
    state.set_value(k=0, lengths=(0, 2), other_shape=True, borrow=False, seed=0)
    state.call(number=0, error=None, index=0, longer=0, seed=0, source="new", times=2)
    state.all_are_as_expected()
    state.teardown()


@pytest.mark.parametrize("number", [0, 1])
def test_a_call_without_a_defined_outcome_is_not_made(monkeypatch, number):
    state = vectors(0)
    used = state.functions[number]
    calls = []
    monkeypatch.setattr(used, "call", lambda *args: calls.append(args))
    monkeypatch.setattr(state, "_argument", lambda *_: np.zeros(1, "float32"))
    state.call(number=number, source="new", seed=0, index=0, longer=0, times=1, error=None)
    assert calls == []
    assert not state.has_failed


def test_what_follows_from_a_failed_step_does_not_hide_it(monkeypatch):
    state = vectors(2)
    monkeypatch.setattr(state, "_expected", lambda *_: None)
    with pytest.raises(Differs, match="does not raise"):
        state.call(number=1, source="new", seed=0, index=0, longer=0, times=1, error=None)
    state.teardown()  # the simulator has been updated, and the model has not
    with pytest.raises(Differs, match="s0 of a simulator"):
        state.all_are_as_expected()


def test_the_command_line():
    done = CliRunner().invoke(main, ["--help"])
    assert done.exit_code == 0
    assert "The exit status is 1" in done.output
