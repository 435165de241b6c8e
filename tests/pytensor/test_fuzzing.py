"""Shared variables keep their invariants in every state; planted faults are found."""

from __future__ import annotations

import pytest

from fuzzing.pytensor.worker import run
from optdb.device.functions.shared_values import UpdatedArgument
from optdb.device.functions.steps import CompiledFusedKernel
from tests.effort import examples
from tests.interrupts import ctrl_c_interrupts  # noqa: F401 (a fixture)

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ctrl_c_interrupts")]

STEPS = 20
#: This number of runs is large enough to find each planted fault.
ENOUGH = 60


def test_updated_variables_keep_their_promises():
    run(0, examples(20), STEPS, shorten=False)


@pytest.mark.thorough
def test_values_that_are_overwritten_before_they_are_read_are_seen(monkeypatch):
    monkeypatch.setattr(CompiledFusedKernel, "overwritable", lambda self, written: set(self.buffers))
    with pytest.raises(Exception, match=r"."):
        run(1, ENOUGH, STEPS, shorten=False)


@pytest.mark.thorough
def test_values_that_were_set_and_are_not_sent_are_seen(monkeypatch):
    usual = UpdatedArgument.update

    def update(self, cell):
        return usual(self, cell) if self.shared is None else None

    monkeypatch.setattr(UpdatedArgument, "update", update)
    with pytest.raises(Exception, match=r"."):
        run(1, ENOUGH, STEPS, shorten=False)
