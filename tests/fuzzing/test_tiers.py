"""Tiered functions keep their invariants in every state; planted faults are found."""

from __future__ import annotations

import contextlib
import shutil

import pytest
import theano
from click.testing import CliRunner
from theano.gof import cmodule

from fuzzing.tiers.__main__ import main
from fuzzing.tiers.worker import run
from optdb.host.theano.clinker.tiers import background, machines, turns
from tests.effort import examples
from tests.interrupts import ctrl_c_interrupts  # noqa: F401 (a fixture)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None or not theano.config.cxx, reason="there is no g++"),
    pytest.mark.usefixtures("ctrl_c_interrupts"),
]

STEPS = 12
#: This number of runs is large enough to find each planted fault.
ENOUGH = 60


def test_tiered_functions_keep_their_promises():
    run(0, examples(20), STEPS)


@pytest.mark.thorough
def test_lost_turns_are_seen(monkeypatch):
    monkeypatch.setattr(machines, "exclusive", contextlib.nullcontext)
    monkeypatch.setattr(machines, "uninterrupted", lambda: turns.deferred_interrupts)
    with pytest.raises(Exception, match=r"."):
        run(5, ENOUGH, STEPS)


@pytest.mark.thorough
def test_interrupts_between_two_updates_are_seen(monkeypatch):
    monkeypatch.setattr(machines, "uninterrupted", turns.exclusive)
    with pytest.raises(AssertionError):
        run(5, ENOUGH, STEPS)


@pytest.mark.thorough
def test_functions_that_are_protected_only_while_modules_are_pending_are_seen(monkeypatch):
    is_whole = machines._is_whole_in_c

    def is_whole_or_over(machine):
        return is_whole(machine) or not any(getattr(thunk, "is_pending", False) for thunk in machine.thunks)

    monkeypatch.setattr(machines, "_is_whole_in_c", is_whole_or_over)
    with pytest.raises(AssertionError):
        run(5, ENOUGH, STEPS)


@pytest.mark.thorough
def test_modules_that_need_theanos_present_cache_are_seen(monkeypatch):
    monkeypatch.setattr(background, "module_cache", lambda: cmodule.get_module_cache(theano.config.compiledir))
    with pytest.raises(AssertionError):
        run(5, ENOUGH, STEPS)


def test_the_command_counts_its_runs():
    result = CliRunner().invoke(main, ["--runs", "2", "--steps", "2", "--seed", "3"])
    assert result.exit_code == 0, result.output
    assert "2 of 2 runs, 0 processes with a difference" in result.output
