"""Theano's machines, for functions that plans do not suit: they give inputs their next values all at once, too."""

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
    """What is added to a machine of Theano's, whose nodes overwrite no shared variable."""

    #: Called by the next call when all that may raise is done: if this raises, nothing is stored.
    before_commit: Callable[[], None] | None
    updates: Mapping[Variable, Variable]
    advancing: CellPairs
    output_cells: Sequence[list[Any]]

    def __call__(self, *args: Any, **options: Any) -> list[Any]:
        """Compute, and give the inputs their next values; return the outputs."""
        return defer_sigint(self._compute_and_commit, args, options)

    def _compute_and_commit(self, args: tuple[Any, ...], options: dict[str, Any]) -> list[Any]:
        super().__call__(*args, **options)
        for (var, following), (_, cell) in zip(self.updates.items(), self.advancing, strict=True):
            check_next_value(var, following, cell[0])
        commit_point()
        before_commit, self.before_commit = self.before_commit, None
        if before_commit is not None:
            before_commit()
        # An output may be an input, whose cell gets another value.
        outputs = [cell[0] for cell in self.output_cells]
        advance(self.advancing)
        return outputs


def committing(
    machine: VM, outputs: Sequence[Variable], updates: Mapping[Variable, Variable], cells: Mapping[Variable, list[Any]]
) -> VM:
    """Let a machine of Theano's give inputs their next values itself; return it.

    Theano's loop in C does so already, and no Python runs between two of them.

    Parameters
    ----------
    machine : VM
        As Theano makes it.
    outputs : sequence of Variable
        Of the graph.
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
