"""A function's commands with their memory in place, and the nodes that still compute in Python between them.

A :class:`Plan` is made of a recording. Steady nodes become bare commands. Each other node becomes a :class:`Watched`
step, which looks whether something that the node sees has changed since the recording, in value or in place; if
nothing has, its commands are repeated, too; else it computes. What it then gives goes where the plan has its place
for it, so that nodes behind it find it there; only if it does not fit, as another shape does not, those are told of a
change, and compute in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from optdb.host.graph import Apply, Variable
from optdb.opencl.planning.recording import Recording, Wiring, same
from optdb.opencl.planning.roles import find_roles
from optdb.runtime.arrays import Array, DeviceArray, copy, overwrite
from optdb.runtime.bound import Room
from optdb.runtime.recording import Memory

#: Later than all steps.
_AFTERWARDS = 1 << 60

Bound = Callable[[], Any]


class Plan:
    """What a function does for inputs of some shapes, ready to be done again.

    Parameters
    ----------
    wiring : Wiring
        The function.
    recording : Recording
        What it did.

    Attributes
    ----------
    room : Room
        The memory of its values.
    commands : int
        How many commands are enqueued if nothing changes.
    """

    def __init__(self, wiring: Wiring, recording: Recording) -> None:
        self.wiring = wiring
        self._recording = recording
        unrepeatable = {node for node, part in zip(wiring.nodes, recording.parts) if part.trouble is not None}
        roles = wiring.roles
        if not unrepeatable <= roles.free:
            roles = find_roles(wiring.nodes, wiring.inputs, wiring.outputs, unrepeatable)
        self.room = Room(_spans(wiring, recording))
        self.commands = sum(len(part.commands) for part in recording.parts)
        #: Variable to its array, for all that nodes put on the device.
        self._arrays = {
            var: self.room.array(layout) for var, layout in recording.layouts.items() if var.owner is not None
        }
        self._steps: list[list[Bound] | Watched] = []
        for number, node in enumerate(wiring.nodes):
            bound = [self.room.bind(command) for command in recording.parts[number].commands]
            if node in roles.watched:
                self._steps.append(self._watched(number, node, bound, node in roles.free))
            elif self._steps and isinstance(self._steps[-1], list):
                self._steps[-1].extend(bound)
            else:
                self._steps.append(bound)
        # What comes behind a call (`advance`, `release`) may have put copies in place of results.
        emptied = {id(cell) for cell in wiring.clear_before} | {id(wiring.cells[var]) for var in wiring.outputs}
        self._emptied = [(cell, value) for cell, value in self._contents() if id(cell) in emptied]

    def load(self) -> None:
        """Put the plan's arrays and values into the cells of the function."""
        for cell, value in self._contents():
            cell[0] = value
        for step in self._steps:
            if isinstance(step, Watched):
                step.restore()

    def unload(self) -> None:
        """Take the plan's arrays out again: whoever computes next must not write to them."""
        for var in self._arrays:
            self.wiring.cells[var][0] = None

    def run(self) -> None:
        """Do it."""
        for cell, value in self._emptied:
            cell[0] = value
        changed = {var for var, before in self._recording.given.items() if not same(self.wiring.value(var), before)}
        for step in self._steps:
            if isinstance(step, list):
                for command in step:
                    command()
            else:
                step.run(changed)

    def release(self, borrowed: frozenset[int]) -> None:
        """Give the caller results of its own: the plan's are overwritten by the next call.

        Parameters
        ----------
        borrowed : frozenset of int
            Places of outputs that the caller has allowed to be overwritten.
        """
        for place, var in enumerate(self.wiring.outputs):
            cell = self.wiring.cells[var]
            if place not in borrowed and isinstance(cell[0], Array) and self.room.has(cell[0]):
                cell[0] = copy(cell[0])

    def _contents(self) -> Iterator[tuple[list[Any], Any]]:
        """Yield the cells of the plan's arrays, and of what is the same at each call, with what belongs into them."""
        for var, value in (*self._arrays.items(), *self._recording.fixed.items()):
            yield self.wiring.cells[var], value

    def _watched(self, number: int, node: Apply, bound: list[Bound], free: bool) -> Watched:
        arrays = [self._arrays.get(var) for var in node.outputs]
        values = [self._recording.values.get(var) for var in node.outputs]
        made = self._recording.parts[number].made
        layouts = [self._recording.layouts.get(var) for var in node.outputs]
        own = [layout is not None and layout.memory in made for layout in layouts]
        return Watched(self.wiring, number, bound, free, list(zip(node.outputs, arrays, values, own, strict=True)))


class Watched:
    """A node that may have to compute in Python.

    Parameters
    ----------
    wiring : Wiring
        The function.
    number : int
        Of the node in it.
    commands : list of callable
        What repeats the node, if nothing has changed.
    free : bool
        Whether it computes each time.
    outputs : list of (Variable, DeviceArray or None, object, bool)
        Each output; if it is on the device, its place in the plan; if it is on the host, what it was, as `kept`
        gives it; and whether its memory is its own, or an input's of which it is a view.
    """

    def __init__(
        self,
        wiring: Wiring,
        number: int,
        commands: list[Bound],
        free: bool,
        outputs: list[tuple[Variable, DeviceArray | None, Any, bool]],
    ) -> None:
        self._wiring = wiring
        self._number = number
        self._node = wiring.nodes[number]
        self._commands = commands
        self._free = free
        self._outputs = outputs
        self._cells = [wiring.cells[var] for var, *_ in outputs]
        self._stale = False

    def restore(self) -> None:
        """Take note that the cells of host values may hold others than those of the recording."""
        self._stale = True

    def run(self, changed: set[Variable]) -> None:
        """Repeat the node or compute it; add those outputs to `changed` that are not where or what they were."""
        if not (self._free or self._stale) and changed.isdisjoint(self._node.inputs):
            for command in self._commands:
                command()
            return
        self._wiring.run(self._number)
        self._stale = False
        for cell, (var, array, value, own) in zip(self._cells, self._outputs):
            unchanged = same(cell[0], value) if array is None else _settled(cell, array, own)
            if not unchanged:
                changed.add(var)
                self._stale = True


def _settled(cell: list[Any], array: DeviceArray, own: bool) -> bool:
    """Tell whether an output lies in its place; bring it there if that can be done."""
    got = cell[0]
    if got is array:
        return True
    if not _lies_like(got, array) and not (own and overwrite(array, got)):
        return False
    cell[0] = array
    return True


def _lies_like(one: Any, other: Array) -> bool:
    return (
        isinstance(one, Array)
        and one.shape == other.shape
        and one.strides == other.strides
        and one.offset == other.offset
        and (one.base_data is other.base_data or one.base_data == other.base_data)
    )


def _spans(wiring: Wiring, recording: Recording) -> dict[Memory, tuple[int, int]]:
    """Return the first and the last node that needs each memory that the function made."""
    spans: dict[Memory, tuple[int, int]] = {}

    def needed(memory: Memory | None, number: int) -> None:
        if memory is not None and memory.buffer is None:
            first, last = spans.get(memory, (number, number))
            spans[memory] = (min(first, number), max(last, number))

    for number, (node, part) in enumerate(zip(wiring.nodes, recording.parts)):
        for memory in part.made:
            needed(memory, number)
        for command in part.commands:
            for memory in command.memories():
                needed(memory, number)
        for var in (*node.inputs, *node.outputs):
            if var in recording.layouts:
                needed(recording.layouts[var].memory, number)
    for var in wiring.outputs:
        if var in recording.layouts:
            needed(recording.layouts[var].memory, _AFTERWARDS)
    return spans
