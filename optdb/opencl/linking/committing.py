"""Theano's virtual machines for functions without plans, extended to store all next values at once."""

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
    """Mixin for a Theano VM whose nodes overwrite no shared variable; stores next values at the end of a call."""

    #: Called once, in the next call, after everything else that may raise; if it raises, nothing is stored.
    before_commit: Callable[[], None] | None
    updates: Mapping[Variable, Variable]
    advancing: CellPairs
    output_cells: Sequence[list[Any]]

    def __call__(self, *args: Any, **options: Any) -> list[Any]:
        """Run the function, store the inputs' next values, and return the outputs."""
        return defer_sigint(self._compute_and_commit, args, options)

    def _compute_and_commit(self, args: tuple[Any, ...], options: dict[str, Any]) -> list[Any]:
        super().__call__(*args, **options)
        for (var, following), (_, cell) in zip(self.updates.items(), self.advancing, strict=True):
            check_next_value(var, following, cell[0])
        commit_point()
        before_commit, self.before_commit = self.before_commit, None
        if before_commit is not None:
            before_commit()
        # An output may be an input whose cell is about to receive its next value.
        outputs = [cell[0] for cell in self.output_cells]
        advance(self.advancing)
        return outputs


def committing(
    machine: VM, outputs: Sequence[Variable], updates: Mapping[Variable, Variable], cells: Mapping[Variable, list[Any]]
) -> VM:
    """Make one of Theano's VMs store the inputs' next values itself, and return the VM.

    Theano's C loop already does this, and runs no Python code between two stores.

    Parameters
    ----------
    machine : VM
        The VM that Theano has created.
    outputs : sequence of Variable
        The outputs of the graph.
    updates : mapping
        Maps inputs to the variables of their next values.
    cells : mapping
        Maps variables to their cells.
    """
    if not machine.need_update_inputs:
        return machine
    machine.__class__ = type(type(machine).__name__, (CommittingVM, type(machine)), {})
    assert isinstance(machine, CommittingVM)
    machine.need_update_inputs, machine.before_commit = False, None
    machine.updates, machine.output_cells = updates, [cells[var] for var in outputs]
    machine.advancing = [(cells[var], cells[following]) for var, following in updates.items()]
    return machine
