"""Computes a graph's variables on demand, node by node, without a plan and without overwriting values.

Each node has its own storage, and the inputs that its op overwrites are copied first, so values may be read in any
order. Branches that are not taken are not computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from optdb.host.api.graph import Apply, Constant, Variable
from optdb.host.api.linking import raise_with_op
from optdb.host.api.slots import destroyed_slots
from optdb.lifters.transfers import Traffic, count_transfers, record_transfer
from optdb.opencl.simulator.execution.io_binding import RESULTS
from optdb.runtime.arrays import deep_copy

if TYPE_CHECKING:
    from optdb.opencl.simulator.execution.executable import Executable

Values = dict[Variable, Any]
Cells = dict[Variable, list[Any]]


class NotKnown(Exception):
    """Raised if a variable cannot be computed because an input has no value."""


class NodeEvaluator:
    """Runs nodes, and keeps their thunks.

    `impl` selects the implementation, ``'py'`` or ``'c'``. With `keep`, nodes reuse the memory of their previous
    results. ``around(node, thunk, cells)`` is called to run a node, and must call `thunk`.
    """

    def __init__(
        self,
        impl: str | None = None,
        keep: bool = False,
        around: Callable[[Apply, Callable[[], Any], Cells], None] = lambda node, thunk, cells: thunk(),
    ) -> None:
        self._impl = impl
        self._keep = keep
        self._around = around
        self._steps: dict[Apply, NodeThunk] = {}

    def compute(
        self, wanted: Sequence[Variable], values: Values, computed: Callable[[Apply], None] | None = None
    ) -> list[Any]:
        """Compute variables and their dependencies, and return their values.

        New values are added to `values`. `computed` is called with each node once the node's outputs are known, and may
        remove values. An error names the node and its source line.
        """
        todo = list(wanted)[::-1]
        while todo:
            var = todo[-1]
            if var in values or isinstance(var, Constant):
                todo.pop()
                continue
            if var.owner is None:
                raise NotKnown(f"{var} has no value")
            if var.owner not in self._steps:
                self._steps[var.owner] = NodeThunk(var.owner, self._impl, self._keep)
            step = self._steps[var.owner]
            missing = step.missing(values)
            if missing:
                todo.extend(reversed(missing))
                continue
            for out, value in zip(var.owner.outputs, step.run(values, self._around), strict=True):
                values.setdefault(out, value)
            todo.pop()
            if computed is not None:
                computed(var.owner)
        return [values.get(var, getattr(var, "data", None)) for var in wanted]


class NodeThunk:
    """A node's thunk, with its own storage; the parameters are those of `NodeEvaluator`."""

    def __init__(self, node: Apply, impl: str | None, keep: bool) -> None:
        self._node = node
        self._kept = set(node.outputs) if keep else set()
        self._cells = {var: [None] for var in (*node.inputs, *node.outputs)}
        self._computed = {var: [False] for var in self._cells}
        for var in node.inputs:
            if isinstance(var, Constant):
                self._cells[var][0] = var.data
                self._computed[var][0] = True
        self._thunk = node.op.make_thunk(node, self._cells, self._computed, [], impl)
        self._lazy = getattr(self._thunk, "lazy", False)
        self._destroyed = {node.inputs[slot] for slot in destroyed_slots(node)}

    def missing(self, values: Values) -> list[Variable]:
        """Return the inputs that must be computed before the node can run."""
        if not self._lazy:
            return [var for var in self._node.inputs if var not in values and not isinstance(var, Constant)]
        self._fill(values)
        return [self._node.inputs[index] for index in self._thunk() or ()]

    def run(self, values: Values, around: Callable[..., None]) -> list[Any]:
        """Run the node and return the values of its outputs; for `around`, see `NodeEvaluator`."""
        if not self._lazy:  # a lazy thunk has already run in the last call to `missing`
            self._fill(values)
            try:
                around(self._node, self._thunk, self._cells)
            except Exception:
                raise_with_op(self._node, self._thunk, storage_map=self._cells)
        results = [self._cells[out][0] for out in self._node.outputs]
        self._clear()
        return results

    def _fill(self, values: Values) -> None:
        """Store known values in the cells, copying values that the op overwrites."""
        self._clear()
        for var in self._node.inputs:
            available = isinstance(var, Constant) or var in values
            value = var.data if isinstance(var, Constant) else values.get(var)
            self._computed[var][0] = available
            self._cells[var][0] = deep_copy(value) if available and var in self._destroyed else value

    def _clear(self) -> None:
        for var, cell in self._cells.items():
            self._computed[var][0] = False
            if var not in self._kept:
                cell[0] = None


def count_moves(executable: Executable) -> Traffic:
    """Run a call node by node, without changing values, and count the transfers."""
    with count_transfers() as traffic:
        outputs = NodeEvaluator().compute(executable.graph.fgraph.outputs, executable.given())
        for _, array in executable.downloaded(outputs):
            record_transfer(RESULTS, array.nbytes)
    return traffic
