"""Copies of a function's nodes, and of the functions inside of its loops, for a trace to run.

A copy has variables, cells and thunks of its own, so that its kernels are those of the replacing context while it
is made, and the function's own stay what they are. A loop calls a function of its own once for each step: its copy has
a `Within` instead, which takes each node of the inner function as the trace takes those around the loop.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from optdb.codegen.kernels.programs import one_program
from optdb.device.plans.linked import LinkedFunction
from optdb.host.api.control_flow import Scan, scan_of
from optdb.host.api.graph import Apply, Constant, Variable
from optdb.host.api.scans import inner_function, thunk_around
from optdb.opencl.linking import PlannedVM
from optdb.opencl.linking.planned_vm import applies, as_variables
from optdb.runtime.tracing import Untraceable

__all__ = ["CopiedFunction", "copied", "thunks_of"]

#: Does one node: its cells, the node, and its thunk.
Step = Callable[[Mapping[Variable, list[Any]], Apply, Callable[[], Any]], None]


@dataclass(eq=False)
class CopiedFunction:
    """A function's nodes with variables, cells and thunks of their own."""

    nodes: list[Apply]
    thunks: list[Callable[[], Any]]
    cells: dict[Variable, list[Any]]
    inputs: list[Variable]
    outputs: list[Variable]
    #: Input to its next value.
    updates: dict[Variable, Variable]

    def value(self, var: Variable) -> Any:
        """Return the value in a variable's cell."""
        return self.cells[var][0]


def copied(linked: LinkedFunction, step: Step) -> CopiedFunction:
    """Return a function's nodes with variables, cells and thunks of their own; `step` does each, also within loops.

    A loop that cannot be traced raises `Untraceable`.
    """
    ours: dict[Variable, Variable] = {}
    nodes = []
    loops: dict[Apply, Within] = {}
    for node in applies(linked):
        outputs = [var.clone() for var in node.outputs]
        twin = Apply(node.op, [ours.get(var, var) for var in node.inputs], outputs)
        twin.tag = copy.copy(node.tag)
        ours.update(zip(node.outputs, outputs, strict=True))
        nodes.append(twin)
        if isinstance(node.op, Scan):
            loops[twin] = _traceable(node, step)
    inputs = as_variables(linked.inputs)
    outputs = [ours.get(var, var) for var in as_variables(linked.outputs)]
    variables = (*inputs, *(x for node in nodes for x in (*node.inputs, *node.outputs)), *outputs)
    cells = {var: [var.data if isinstance(var, Constant) else None] for var in variables}
    thunks: list[Callable[[], Any]] = [
        functools.partial(step, cells, node, thunk)
        for node, thunk in zip(nodes, thunks_of(nodes, cells, loops), strict=True)
    ]
    next_values = as_variables(linked.updates.values())
    updates = {var: ours.get(x, x) for var, x in zip(as_variables(linked.updates), next_values, strict=True)}
    return CopiedFunction(nodes, thunks, cells, inputs, outputs, updates)


def thunks_of(
    nodes: Sequence[Apply], cells: dict[Variable, list[Any]], loops: Mapping[Apply, Within] = MappingProxyType({})
) -> list[Any]:
    """Return the thunks of some nodes, which work on cells; `loops` run in place of the inner functions."""
    computed = {var: [False] for var in cells}

    def thunk_of(node: Apply) -> Any:
        if node in loops:
            return thunk_around(loops[node], node, cells, computed)
        return node.op.make_thunk(node, cells, computed, [], impl="py")

    with one_program():
        return [thunk_of(node) for node in nodes]


def _traceable(node: Apply, step: Step) -> Within:
    """Return the stand-in for a loop's inner function."""
    op = scan_of(node)
    if op.as_while:
        raise Untraceable(
            f"{op} ends by a condition, which the host would have to look at after each step. Let it make a number of "
            "steps that is known beforehand"
        )
    function = inner_function(node)
    if not isinstance(function.fn, PlannedVM):
        raise Untraceable(f"the function inside of {op} runs without plans: compile it with the default linker")
    if function.fn.linked.branches.conditions:
        raise Untraceable(f"the function inside of {op} has branches (ifelse), which a file cannot have")
    return Within(function, step)


class _Container:
    """Holds an input or an output of an inner function, for the loop to read and write."""

    def __init__(self, cell: list[Any]) -> None:
        self.storage = cell

    @property
    def data(self) -> Any:
        """The value in the cell."""
        return self.storage[0]

    @data.setter
    def data(self, value: Any) -> None:
        self.storage[0] = value


class Within:
    """Stands in for the function inside of a loop; it has the part of ``theano.Function`` that a loop uses."""

    def __init__(self, function: Any, step: Step) -> None:
        self.maker = function.maker
        linked = copied(function.fn.linked, step)
        self._thunks = linked.thunks
        self.input_storage = [_Container(linked.cells[var]) for var in linked.inputs]
        self.output_storage = [_Container(linked.cells[var]) for var in linked.outputs]
        # The loop itself puts the memory for each output into these cells.
        io_cell_ids = {id(linked.cells[var]) for var in (*linked.inputs, *linked.outputs)}
        made = [linked.cells[var] for node in linked.nodes for var in node.outputs]
        self._between = [cell for cell in made if id(cell) not in io_cell_ids]

    def fn(self) -> None:
        """Do one step of the loop."""
        # Each step has values of its own: the trace gives them their memory.
        for cell in self._between:
            cell[0] = None
        for thunk in self._thunks:
            thunk()

    def free(self) -> None:
        """Keep the values; the trace releases them."""
