"""Shared variables are what a model in NumPy says, whoever uses and changes them; and what is wrong is seen."""

from __future__ import annotations

import numpy as np
import pytest
import theano
from click.testing import CliRunner

from fuzzing.states.__main__ import main
from fuzzing.states.machine import Differs
from fuzzing.states.worker import run
from optdb.opencl.simulator.opencl_linker import Mirror

STEPS = 30


@pytest.fixture(autouse=True)
def without_compiler():
    """Compile no C: functions are many and small."""
    with theano.configparser.change_flags(cxx=""):
        yield


@pytest.mark.parametrize("seed", range(2))
def test_shared_variables_are_what_a_model_says(seed):
    run(seed, 50, STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 14))
def test_shared_variables_are_what_a_model_says_in_more_runs(seed):
    run(seed, 100, STEPS)


@pytest.mark.slow
def test_a_stale_variable_is_seen(monkeypatch):
    monkeypatch.setattr(Mirror, "refresh", lambda self: None)
    with pytest.raises(Differs):
        run(0, 50, STEPS)


@pytest.mark.slow
def test_a_result_that_changes_later_is_seen(monkeypatch):
    kept = {}

    def give(self, *_):
        value = np.asarray(self.cell[0].get() if hasattr(self.cell[0], "get") else self.cell[0])
        home = kept.setdefault((id(self), value.shape), np.empty_like(value))
        home[...] = value
        return home

    monkeypatch.setattr("optdb.opencl.simulator.io_binding.Output.give", give)
    with pytest.raises(Differs):
        run(0, 50, STEPS)


def test_the_command_line():
    done = CliRunner().invoke(main, ["--help"])
    assert done.exit_code == 0
    assert "The exit status is 1" in done.output
