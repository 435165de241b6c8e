"""A function's commands with their memory in place, and the nodes that still compute in Python between them.

A :class:`Plan` is made of a recording. Steady nodes become bare commands, each other node a step that looks whether it
has to compute (see ``steps``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from optdb.host.graph import Apply
from optdb.opencl.planning.budget import check_plan
from optdb.opencl.planning.merging import Merging
from optdb.opencl.planning.recording import Recording, Wiring, same
from optdb.opencl.planning.settled import invariant, settled
from optdb.opencl.planning.steps import Bound, Guard, Stretch, Watched, in_stretches
from optdb.opencl.planning.whole import begin
from optdb.runtime.arrays import Array, copy
from optdb.runtime.bound import Room, Spans
from optdb.runtime.recording import Memory, Part

#: Later than all steps.
_AFTERWARDS = 1 << 60


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
        path = recording.path
        parts = {number: part for (number, _), part in zip(path.steps, recording.parts, strict=True)}
        unrepeatable = {node for number, node in path.steps if parts[number].trouble is not None}
        roles = path.roles if unrepeatable <= path.roles.free else path.roles_without(unrepeatable)
        stays = settled(wiring, recording, roles)
        once = invariant(wiring, recording)
        self.room = Room(spans(wiring, recording), check_plan(wiring, recording), stays.values())
        self.commands = sum(len(part.commands) for part in recording.parts) - len(stays)
        self.commands -= sum(len(parts[number].commands) for number in once)
        #: Variable to its array, for all that nodes put on the device.
        self._arrays = {
            var: self.room.array(layout) for var, layout in recording.layouts.items() if var.owner is not None
        }
        steps: list[list[Bound] | Watched | Guard] = []
        final = path.final
        for place, (number, node) in enumerate(path.steps):
            steps += [Guard(wiring.branches, one, one.chosen(path)) for where, one in path.guards if where == place]
            if place == path.final:
                final = len(steps)
            commands = [] if number in stays else parts[number].commands
            bound = [self.room.bind(command) for command in commands]
            if number in once:
                _do(bound)
                continue
            watched = node in roles.watched
            steps.append(self._watched(number, node, parts[number], bound, node in roles.free) if watched else bound)
        #: Alone are those that compute each time, and those that see what the caller gives, or what such a step gives.
        changing = set(recording.given)
        early = in_stretches(steps[:final], changing)
        self._steps = [*early, *in_stretches(steps[final:], changing)]
        self._early = len(early)
        self._stretches = [step for step in self._steps if isinstance(step, Stretch)]
        self._merging = Merging([stretch.commands for stretch in self._stretches])
        # What comes behind a call (`advance`, `release`) may have put copies in place of results.
        emptied = {id(cell) for cell in wiring.clear_before} | {id(wiring.cells[var]) for var in wiring.outputs}
        self._emptied = [(cell, value) for cell, value in self._contents() if id(cell) in emptied]

    def load(self) -> None:
        """Put the plan's arrays and values into the cells of the function."""
        for cell, value in self._contents():
            cell[0] = value
        for step in self._steps:
            step.restore()

    def unload(self) -> None:
        """Take the plan's arrays out again: whoever computes next must not write to them."""
        for var in self._arrays:
            self.wiring.cells[var][0] = None

    def run(self) -> None:
        """Do it."""
        if not self._merging.done:
            self._merge()
        self.refill()
        self.settle()
        changed = {var for var, before in self._recording.given.items() if not same(self.wiring.value(var), before)}
        for step in self._steps[: self._early]:
            step.run(changed)
        begin()
        for step in self._steps[self._early :]:
            step.run(changed)

    def expect(self, times: int) -> bool:
        """Take note that so many calls may come without Python; tell whether some have to be as ever before."""
        return self._merging.expect(times)

    def _merge(self) -> None:
        """Look at small launches, or merge them, if that is to be done before this call."""
        merged = self._merging.next()
        if merged is not None:
            for stretch, commands in zip(self._stretches, merged, strict=True):
                stretch.commands = commands

    def settle(self) -> None:
        """See to it that commands and arrays are where this call has its inputs, and wants its outputs."""
        for var, memory in self._recording.moving.items():
            self.room.move(memory, self.wiring.value(var).base_data)
        for var, memory in self._recording.landing.items():
            place = self.wiring.landing[var](self._recording.layouts[var])
            self.room.move(memory, self.room.own(memory) if place is None else place)

    def let_go(self) -> None:
        """Hold on no longer to where inputs and outputs of the last call are; the next one says it anew."""
        for memory in (*self._recording.moving.values(), *self._recording.landing.values()):
            self.room.move(memory, None)

    def refill(self) -> None:
        """Put the plan's arrays into those cells that may have lost them since the last call."""
        for cell, value in self._emptied:
            cell[0] = value

    def blindly(self) -> list[Bound] | None:
        """Return all commands of a next run in which nothing has changed; None if some node would compute in it."""
        if any(step.computes for step in self._steps):
            return None
        return [command for step in self._steps for command in step.commands]

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

    def _watched(self, number: int, node: Apply, part: Part, bound: list[Bound], free: bool) -> Watched:
        arrays = [self._arrays.get(var) for var in node.outputs]
        values = [self._recording.values.get(var) for var in node.outputs]
        layouts = [self._recording.layouts.get(var) for var in node.outputs]
        own = [layout is not None and layout.memory in part.made for layout in layouts]
        outputs = list(zip(node.outputs, arrays, values, own, strict=True))
        return Watched(self.wiring, number, self._recording.path.inputs_of(node), bound, free, outputs)


def _do(commands: list[Bound]) -> None:
    """Put commands into the queue."""
    for command in commands:
        command()


def spans(wiring: Wiring, recording: Recording) -> Spans:
    """Return the first and the last step that needs each memory that the function made.

    Each command is a step. What variables lie in is needed from the first step of a node to its last one; what a node
    makes besides, as the steps of a loop do, only by its commands.
    """
    found: dict[Memory, tuple[int, int]] = {}
    given = set(recording.moving.values())
    lain_in = {layout.memory for layout in recording.layouts.values()}

    def needed(memory: Memory | None, start: int, stop: int) -> None:
        if memory is not None and memory.buffer is None and memory not in given:
            first, last = found.get(memory, (start, stop))
            found[memory] = (min(first, start), max(last, stop))

    stop = 0
    once = invariant(wiring, recording)
    for (number, node), part in zip(recording.path.steps, recording.parts, strict=True):
        start, stop = stop + 1, stop + 1 + len(part.commands)
        for memory in part.made if number in once else ():
            needed(memory, 0, _AFTERWARDS)
        for step, command in enumerate(part.commands, start):
            for memory in command.memories():
                needed(memory, *((start, stop) if memory in lain_in else (step, step)))
        for var in (*recording.path.inputs_of(node), *node.outputs):
            if var in recording.layouts:
                needed(recording.layouts[var].memory, start, stop)
    for var in wiring.outputs:
        if var in recording.layouts:
            needed(recording.layouts[var].memory, _AFTERWARDS, _AFTERWARDS)
    return found
