"""Theano's machines (VMs) for functions without plans, extended to store all next values at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from optdb.device.plans.updates import CellPairs, advance
from optdb.host.api.graph import Variable
from optdb.host.api.linking import VM
from optdb.opencl.linking.planned_vm import check_next_value
from optdb.runtime.sigint import commit_point, defer_sigint

__all__ = ["CommittingVM", "committing"]


class CommittingVM(VM):
    """Mixin for a Theano machine whose nodes overwrite no shared variable; it stores the next values at the end."""

    #: Called once, by the next call, after everything else that may raise: if it raises, nothing is stored.
    before_commit: Callable[[], None] | None
    updates: Mapping[Variable, Variable]
    advancing: CellPairs
    output_cells: Sequence[list[Any]]

    def __call__(self, *args: Any, **options: Any) -> list[Any]:
        """Compute, and store the next values of the inputs; return the outputs."""
        return defer_sigint(self._compute_and_commit, args, options)

    def _compute_and_commit(self, args: tuple[Any, ...], options: dict[str, Any]) -> list[Any]:
        super().__call__(*args, **options)
        for (var, following), (_, cell) in zip(self.updates.items(), self.advancing, strict=True):
            check_next_value(var, following, cell[0])
        commit_point()
        before_commit, self.before_commit = self.before_commit, None
        if before_commit is not None:
            before_commit()
        # An output may be an input, whose cell is about to get its next value.
        outputs = [cell[0] for cell in self.output_cells]
        advance(self.advancing)
        return outputs


def committing(
    machine: VM, outputs: Sequence[Variable], updates: Mapping[Variable, Variable], cells: Mapping[Variable, list[Any]]
) -> VM:
    """Make one of Theano's machines store the next values of inputs itself; return the machine.

    Theano's loop in C already does, and no Python code runs between two stores.

    Parameters
    ----------
    machine : VM
        The machine that Theano makes.
    outputs : sequence of Variable
        The outputs of the graph.
    updates : mapping
        Inputs to the variables of their next values.
    cells : mapping
        The cells of variables.
    """
    if not machine.need_update_inputs:
        return machine
    machine.__class__ = type(type(machine).__name__, (CommittingVM, type(machine)), {})
    assert isinstance(machine, CommittingVM)
    machine.need_update_inputs, machine.before_commit = False, None
    machine.updates, machine.output_cells = updates, [cells[var] for var in outputs]
    machine.advancing = [(cells[var], cells[following]) for var, following in updates.items()]
    return machine
