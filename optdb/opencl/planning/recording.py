"""What one call of a function did: the commands of each node, and what its variables were.

:func:`record` runs the nodes, and gives a :class:`Recording`, which holds no array of the device that the call has
made, only how it lay; so the call needs no more memory than any other.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from optdb.host.graph import Apply, Variable
from optdb.host.linking import raise_with_op
from optdb.opencl.planning.paths import Branches, Path, Round, final_nodes
from optdb.opencl.planning.roles import is_foreign, on_device
from optdb.opencl.planning.sigint import commit_point
from optdb.runtime.arrays import Array
from optdb.runtime.buffer_assignment import IOBinding
from optdb.runtime.commands import unknown
from optdb.runtime.recording import ArrayLayout, Segment

#: Values of the host with more elements are not compared, but taken for changed.
COMPARED = 64


class RecorderProtocol(Protocol):
    """What writes down what nodes do, and knows of what is needed no longer."""

    def node(self, node: Apply) -> AbstractContextManager[Segment]:
        """Write what a node does into a segment of its own."""

    def layout(self, array: Array) -> ArrayLayout:
        """Return how an array lies."""

    def settle(self, outputs: Sequence[tuple[Variable, ArrayLayout]]) -> None:
        """Take note that a node is done, and where its outputs lie."""

    def drop(self, variables: Sequence[Variable]) -> None:
        """Take note that variables are needed no longer."""


@dataclass(eq=False)
class LinkedFunction:
    """A compiled function: its nodes, what runs them, and the cells of their variables.

    Parameters
    ----------
    nodes : list of Apply
        In the order in which they run.
    thunks : list of callable
        What computes each.
    cells : dict
        Variable to the list of one element that holds its value.
    clear_before : list of list
        Cells to be emptied before a call: what views of results for the caller are views of must be new each time.
    clear_after : list of list or None
        For each node, the cells to be emptied behind it.
    inputs, outputs : list of Variable
        Of the function.
    updates : dict
        Input to the output that is its next value.
    rebindable_inputs : frozenset of Variable
        Inputs on the device that may be in another buffer in each call, if they are large: in C order, all of a buffer
        that no other input is in, and not overwritten.
    external_outputs : dict
        Output on the device to what says in each call into which buffer its value is to be computed: it is told
        how the value lies, and returns a buffer, or None if that is all the same.
    branches : Branches or None
        What finds out which nodes a call computes; None if it computes all of them.
    """

    nodes: list[Apply]
    thunks: list[Callable[[], Any]]
    cells: dict[Variable, list[Any]]
    clear_before: list[list[Any]]
    clear_after: Sequence[Sequence[list[Any]]] | None
    inputs: list[Variable]
    outputs: list[Variable]
    updates: dict[Variable, Variable]
    rebindable_inputs: frozenset[Variable] = frozenset()
    external_outputs: dict[Variable, Callable[[ArrayLayout], Any]] = field(default_factory=dict)
    branches: Branches | None = None

    @functools.cached_property
    def final(self) -> frozenset[int]:
        """The numbers of the nodes that overwrite what the function was given."""
        return final_nodes(self.nodes, self.inputs)

    @functools.cached_property
    def path(self) -> Path:
        """The path of a call that computes all nodes."""
        return Path(self.nodes, range(len(self.nodes)), self.inputs, self.outputs, self.final)

    @functools.cached_property
    def advancing(self) -> list[tuple[Variable, Variable]]:
        """Shared arrays on the device and their next values, but for those whose present values are results."""
        pairs = self.updates.items()
        return [(var, following) for var, following in pairs if on_device(var) and var not in self.outputs]

    def value(self, var: Variable) -> Any:
        """Return what a variable's cell holds."""
        return self.cells[var][0]

    def run(self, number: int) -> None:
        """Compute one node.

        Raises
        ------
        Exception
            What the node raises, with the node and where it comes from.
        """
        if number in self.foreign:
            self._prepare_foreign(self.nodes[number])
        try:
            self.thunks[number]()
        except Exception:
            raise_with_op(self.nodes[number], self.thunks[number], storage_map=self.cells)

    @functools.cached_property
    def foreign(self) -> frozenset[int]:
        """The numbers of the nodes that may do to the device what nobody records."""
        return frozenset(number for number, node in enumerate(self.nodes) if is_foreign(node))

    def _prepare_foreign(self, node: Apply) -> None:
        """Say that a node cannot be repeated, and let its results begin where a buffer does.

        Its kernels may be told no offset of an array that it has made by `empty` in an earlier call.
        """
        unknown(f"{node.op} launches kernels by itself")
        for var in node.outputs:
            value = self.value(var)
            if isinstance(value, Array) and value.offset:
                self.cells[var][0] = None

    def walk(
        self,
        compute: Callable[[int], Any],
        behind: Callable[[list[Variable]], Any],
        first: Round | None = None,
    ) -> Path:
        """Compute what a call needs, and return its path; empty the cells that are needed no longer.

        Parameters
        ----------
        compute : callable
            Computes a node by its number.
        behind : callable
            Told behind each node of the variables whose cells have been emptied.
        first : Round, optional
            Where it begins, if the function has branches and the early conditions have been looked at.
        """
        if self.branches is None:
            for number in range(len(self.nodes)):
                compute(number)
                behind(self.clear(number))
            return self.path

        def clear(variables: list[Variable]) -> None:
            for var in variables:
                self.cells[var][0] = None
            behind(variables)

        return self.branches.walk(compute, clear, first or self.branches.first(self.run))

    def clear(self, number: int) -> list[Variable]:
        """Empty the cells that nobody needs behind a node; return their variables."""
        if self.clear_after is None:
            return []
        for cell in self.clear_after[number]:
            cell[0] = None
        return [self._variables[id(cell)] for cell in self.clear_after[number]]

    def forget(self) -> None:
        """Empty the cells of all that nodes have made for the device."""
        for var, cell in self.cells.items():
            if var.owner is not None and isinstance(cell[0], Array):
                cell[0] = None

    @functools.cached_property
    def _variables(self) -> dict[int, Variable]:
        return {id(cell): var for var, cell in self.cells.items()}


@dataclass(eq=False)
class Recording:
    """What a call did.

    Parameters
    ----------
    path : Path
        Which nodes it computed.
    segments : list of Segment
        The commands of each of these.
    layouts : dict
        Device variable to how it lay.
    values : dict
        Host variable to its value, as `kept` keeps it.
    fixed : dict
        Output of a steady node on the host to its value, in full.
    given : dict
        Host input of the function to its value.
    io : IOBinding
        How inputs and outputs are bound (see ``rebinding``).
    """

    path: Path | None = None
    segments: list[Segment] = field(default_factory=list)
    layouts: dict[Variable, ArrayLayout] = field(default_factory=dict)
    values: dict[Variable, Any] = field(default_factory=dict)
    fixed: dict[Variable, Any] = field(default_factory=dict)
    given: dict[Variable, Any] = field(default_factory=dict)
    io: IOBinding = field(default_factory=IOBinding)


def record(linked: LinkedFunction, recorder: RecorderProtocol, first: Round | None = None) -> Recording:
    """Run a function's nodes, and write down what they do.

    Parameters
    ----------
    linked : LinkedFunction
        The function.
    recorder : RecorderProtocol
        What writes it down; may stop the function.
    first : Round, optional
        The first round of a function with branches, whose early conditions have been looked at.
    """
    recording = Recording()
    copies: dict[Variable, Any] = {}
    for var in linked.inputs:
        _note(recording, recorder, var, linked.value(var))
        if var in recording.values:
            recording.given[var] = recording.values.pop(var)

    def compute(number: int) -> None:
        node = linked.nodes[number]
        if number in linked.final:
            commit_point()
        with recorder.node(node) as segment:
            linked.run(number)
        recording.segments.append(segment)
        for var in node.inputs:
            if var.owner is None and var not in recording.layouts and on_device(var):  # a constant
                recording.layouts[var] = recorder.layout(linked.value(var))
        for var in node.outputs:
            _note(recording, recorder, var, linked.value(var))
            if var in recording.values and node not in surely_watched:
                copies[var] = copy.copy(linked.value(var))
        recorder.settle([(var, recording.layouts[var]) for var in node.outputs if var in recording.layouts])

    # With branches, which nodes are watched is known only when the path is.
    surely_watched = linked.path.roles.value_dependent if linked.branches is None else frozenset()
    recording.path = linked.walk(compute, recorder.drop, first)
    watched = recording.path.roles.value_dependent
    recording.fixed = {var: value for var, value in copies.items() if var.owner not in watched}
    return recording


def _note(recording: Recording, recorder: RecorderProtocol, var: Variable, value: Any) -> None:
    if isinstance(value, Array):
        recording.layouts[var] = recorder.layout(value)
    else:
        recording.values[var] = kept(value)


def kept(value: Any) -> Any:
    """Return what to compare a later value with: a copy of a small array, else what equals nothing."""
    if isinstance(value, np.ndarray | np.generic) and value.size <= COMPARED and value.dtype != object:
        return np.array(value)
    return None


def same(value: Any, before: Any) -> bool:
    """Tell whether a value is certainly what `kept` has kept of an earlier one."""
    if before is None or not isinstance(value, np.ndarray | np.generic) or value.shape != before.shape:
        return False
    return value.tobytes() == before.tobytes()
