"""The steps of a plan: commands, and nodes whose commands are guarded by what the nodes see.

A :class:`GuardedStep` compares what its node sees with the recording, in value or in place. If nothing has changed, its
commands are repeated, else the node computes. Its outputs then go where the plan has their places, so that later nodes
find them there; only if one does not fit, as another shape does not, those nodes compute in turn. A
:class:`CommandSegment` compares once for many steps. The plan enqueues what a step says is ``due``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from optdb.host.graph import Apply, Variable
from optdb.opencl.planning.paths import Branches, Path, Round
from optdb.opencl.planning.recording import Recording, same
from optdb.runtime.arrays import Array, DeviceArray, overwrite
from optdb.runtime.commands import Command, CommandList
from optdb.runtime.recording import Segment


class Step:
    """Commands that are repeated as long as nothing changes that is looked at: here, at all times."""

    #: Whether it computes each time.
    free = False
    #: What it gives on the host.
    on_host: Sequence[Variable] = ()

    def __init__(self, commands: CommandList, inputs: Iterable[Variable] = ()) -> None:
        self.commands = commands
        #: What it looks at.
        self.inputs = frozenset(inputs)
        #: Whether it has to compute next time, whatever its inputs are.
        self.stale = False

    @property
    def computes(self) -> bool:
        """Whether it computes at the next run, even if nothing has changed."""
        return self.free or self.stale

    def restore(self) -> None:
        """Take note that the cells of host values may hold others than those of the recording.

        What is on the device is in its place again, and is computed there by the commands.
        """
        self.stale = self.stale or bool(self.on_host)

    def due(self, changed: set[Variable]) -> Sequence[Command]:
        """Return the commands that repeat the step, or compute it, and return none.

        Those outputs are added to `changed` that are not where or what they were.
        """
        if not (self.free or self.stale) and changed.isdisjoint(self.inputs):
            return self.commands
        self._compute(changed)
        return ()

    def _compute(self, changed: set[Variable]) -> None:
        """Compute anew; a step that looks at something knows how."""
        raise NotImplementedError


class GuardedStep(Step):
    """A node that may have to compute in Python: each time, if it is `free`."""

    def __init__(
        self,
        recording: Recording,
        number: int,
        node: Apply,
        segment: Segment,
        commands: CommandList,
        arrays: Mapping[Variable, DeviceArray],
    ) -> None:
        super().__init__(commands, recording.path.inputs_of(node))
        self._linked = linked = recording.linked
        self._number = number
        self.free = node in recording.roles.always_recompute
        self.on_host = [var for var in node.outputs if var not in arrays]
        layouts, values = recording.layouts, recording.values
        own = {var for var in node.outputs if var in layouts and layouts[var].memory in segment.allocated}
        #: The cell of each output, the output, its place in the plan if it is on the device, what it was if it is on
        #: the host, as `kept` gives it, and whether its memory is its own, or an input's of which it is a view.
        self._outputs = [(linked.cells[var], var, arrays.get(var), values.get(var), var in own) for var in node.outputs]

    def _compute(self, changed: set[Variable]) -> None:
        self._linked.run(self._number)
        self.stale = False
        for cell, var, array, value, own in self._outputs:
            unchanged = same(cell[0], value) if array is None else _is_in_place(cell, array, own)
            if not unchanged:
                changed.add(var)
                self.stale = True


class BranchTaken(Exception):
    """A condition is not what a plan was made for; no step of the branch has been done behind a `round`."""

    def __init__(self, round_: Round) -> None:
        super().__init__(round_)
        self.round = round_


class BranchGuard(Step):
    """A look at conditions that are known only within a call, before the steps of the branches that they choose."""

    #: Its conditions may change at each call.
    free = True

    def __init__(self, branches: Branches, path: Path, round_: Round) -> None:
        super().__init__(CommandList())
        self._branches, self._round = branches, round_
        #: What the conditions are on the path, that the round asks for.
        self._expected = tuple(path.rounds[-1].state[place] for place in round_.asked)

    def _compute(self, changed: set[Variable]) -> None:
        if self._branches.answers(self._round) != self._expected:
            raise BranchTaken(self._round)


class CommandSegment(Step):
    """Steps behind each other that are mostly repeated together, so that one look is enough for all of them."""

    def __init__(self, steps: Sequence[Step]) -> None:
        commands = CommandList(command for step in steps for command in step.commands)
        super().__init__(commands, frozenset().union(*(step.inputs for step in steps)))
        self._steps = steps

    def restore(self) -> None:
        """Take note that the cells of host values may hold others than those of the recording."""
        for step in self._steps:
            step.restore()
        self.stale = self.stale or any(step.stale for step in self._steps)

    def _compute(self, changed: set[Variable]) -> None:
        """Let each step look for itself."""
        self.stale = True  # and stays so if a node raises
        for step in self._steps:
            for command in step.due(changed):
                command.enqueue()
        self.stale = any(step.stale for step in self._steps)


def in_segments(steps: Iterable[Step], changing: set[Variable]) -> list[Step]:
    """Gather steps that stay the same together.

    Steps stay alone that compute each time, or that look at what is `changing`, as it may at each call. What these give
    on the host is added to that.
    """
    found: list[Step] = []
    together: list[Step] = []
    for step in steps:
        if not step.free and changing.isdisjoint(step.inputs):
            together.append(step)
            continue
        changing.update(step.on_host)
        if together:
            found.append(CommandSegment(together))
            together = []
        found.append(step)
    return [*found, CommandSegment(together)] if together else found


def _is_in_place(cell: list[Any], array: DeviceArray, own: bool) -> bool:
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
