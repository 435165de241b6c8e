"""The steps of a plan: commands that are repeated, and nodes that compute in Python if what they see has changed.

Steady nodes become commands, each other node a :class:`GuardedStep`, which compares the values or addresses of the
node's inputs with the recording. If nothing has changed, its commands are repeated, else the node computes. Its outputs
are then moved into the plan's buffers, where later nodes read them; only if one does not fit, as with another shape,
the later nodes compute in turn. A :class:`CommandSegment` compares once for many steps.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence, Set
from operator import itemgetter
from typing import Any

from optdb.device.plans.graph import Node, ValueId
from optdb.device.plans.paths import Branches, Path, Round
from optdb.device.plans.recording import Recording, same
from optdb.device.plans.tables import NodeTable
from optdb.numpy_types import HostArray
from optdb.runtime.arrays import Array, DeviceArray, overwrite
from optdb.runtime.commands import CommandList
from optdb.runtime.holding import enqueue_bound
from optdb.runtime.recording import Segment


class Step:
    """Commands that are repeated while the guarded inputs stay the same; here, always."""

    #: Whether it computes each time.
    free = False
    #: Its outputs on the host.
    on_host: Sequence[ValueId] = ()

    def __init__(self, commands: CommandList, inputs: Iterable[ValueId] = ()) -> None:
        self.commands = commands
        #: The inputs that it compares.
        self.inputs = frozenset(inputs)
        #: Whether it has to compute next time, even if its inputs are unchanged.
        self.stale = False

    @property
    def computes(self) -> bool:
        """Whether it computes at the next run, even if nothing has changed."""
        return self.free or self.stale

    @functools.cached_property
    def is_unseen(self) -> bool:
        """Whether no other function could see what it does: it enqueues nothing but uploads of the plan's own."""
        return not self.commands

    def is_repeated(self, changed: set[ValueId]) -> bool:
        """Tell whether it does nothing but enqueue its commands, if the variables in `changed` have other values."""
        return not self.computes and changed.isdisjoint(self.inputs)

    def restore(self) -> None:
        """Mark that the cells of host values may hold others than the recorded ones.

        The cells hold the plan's device arrays again, and the commands compute into these.
        """
        self.stale = self.stale or bool(self.on_host)

    def repeated(self, changed: set[ValueId]) -> CommandList | None:
        """Return the commands that repeat what the last run did; None if the step computes.

        The variables that are `changed` had other values than the recorded ones, and still have.
        """
        return None if self.computes or not changed.isdisjoint(self.inputs) else self.commands

    def due(self, changed: set[ValueId]) -> CommandList:
        """Return the commands that repeat the step; or compute it, and return none.

        Outputs whose value or address differs from the recorded one are added to `changed`.
        """
        if self.is_repeated(changed):
            return self.commands
        self._compute(changed)
        return CommandList()

    def _compute(self, changed: set[ValueId]) -> None:
        """Compute anew; steps with guarded inputs override this."""
        raise NotImplementedError


class GuardedStep(Step):
    """A node that may have to compute in Python: each time, if it is `free`."""

    def __init__(
        self,
        recording: Recording,
        number: int,
        node: Node,
        segment: Segment,
        commands: CommandList,
        arrays: Mapping[ValueId, DeviceArray],
    ) -> None:
        super().__init__(commands, recording.path.inputs_of(node))
        self._linked = linked = recording.linked
        self._number = number
        self.free = node in recording.roles.always_recompute
        self.on_host = [var for var in node.outputs if var not in arrays]
        layouts, values = recording.layouts, recording.values
        owned = {var for var in node.outputs if var in layouts and layouts[var].memory in segment.allocated}
        #: For each output: its cell, the variable, its array in the plan if it is on the device, its recorded value
        #: from `kept` if it is on the host, and whether it has its own memory, and is no view of an input.
        self._outputs = [
            (linked.cells[var], var, arrays.get(var), values.get(var), var in owned) for var in node.outputs
        ]

    @functools.cached_property
    def is_unseen(self) -> bool:
        return not self.commands and self._linked.is_unseen(self._linked.nodes[self._number])

    def _compute(self, changed: set[ValueId]) -> None:
        self._linked.run(self._number)
        self.stale = False
        for cell, var, array, value, owns_memory in self._outputs:
            unchanged = same(cell[0], value) if array is None else _ensure_in_plan_memory(cell, array, owns_memory)
            if not unchanged:
                changed.add(var)
                self.stale = True


class KeptUpload(GuardedStep):
    """A node whose arrays stay in memory of their own while its inputs are those of the recording."""

    @functools.cached_property
    def is_unseen(self) -> bool:
        node = self._linked.nodes[self._number]
        return not any(map(self._linked.on_device, node.inputs)) and self._linked.exposed.isdisjoint(node.outputs)

    def repeated(self, changed: set[ValueId]) -> CommandList:
        """Return no commands: the memory holds what the last run has computed."""
        return self.commands

    def _compute(self, changed: set[ValueId]) -> None:
        # Until the node has computed from the recorded inputs again, no command restores the recorded values.
        self.stale = True
        differs = not changed.isdisjoint(self.inputs)
        super()._compute(changed)
        self.stale = self.stale or differs


class TableUpload(Step):
    """Writes the tables that the kernels of a node read, as of the present values of the host.

    Where there are none, as for a class out of bounds, it adds its `failure` to the changed variables: the node's step
    is guarded by that, and the node computes, and raises its own error.
    """

    def __init__(self, recording: Recording, tables: Sequence[NodeTable]) -> None:
        super().__init__(CommandList(), [table.var for table in tables])
        self._linked, self._tables = recording.linked, tables
        #: Stands for tables that could not be written.
        self.failure: ValueId = object()

    def repeated(self, changed: set[ValueId]) -> CommandList:
        """Return no commands: the tables are as of the last run."""
        return self.commands

    def _compute(self, changed: set[ValueId]) -> None:
        self.stale = True
        written: list[HostArray] = []
        for table in self._tables:
            values = table.of(self._linked.value(table.var))
            if values is None:
                changed.add(self.failure)
                return
            written.append(values)
        for table, values in zip(self._tables, written, strict=True):
            table.write(values)
        self.stale = not changed.isdisjoint(self.inputs)


class TableUploads:
    """The uploads of tables of a plan, each where commands are separated anyway, or else where its values are known.

    The last such position before the table is read is best: the device is at work by then.

    Parameters
    ----------
    recording : Recording
        Has the tables.
    halves : pair of list of Step
        The steps so far, to which steps are appended meanwhile.
    """

    def __init__(self, recording: Recording, halves: tuple[list[Step], list[Step]]) -> None:
        self._recording, self._halves = recording, halves
        #: Where a value of the host is known: in which half, and after how many steps.
        self._known: dict[ValueId, tuple[int, int]] = {}
        self._round_begin = 0, 0
        #: The first position of each, and the step that reads its tables.
        self._uploads: list[tuple[tuple[int, int], TableUpload, Step]] = []

    def begin_round(self) -> None:
        """Note that the next steps are computed only if conditions that were evaluated before allow it."""
        self._round_begin = self._end

    def precede(self, number: int, step: Step) -> None:
        """Let an upload precede a node's step, which values of the host then do not guard, if that is possible."""
        tables = self._recording.tables.get(number)
        if tables is None or step.free or type(step) is not GuardedStep:
            return
        upload = TableUpload(self._recording, tables)
        known = [self._known.get(table.var, self._round_begin) for table in tables]
        step.inputs = step.inputs - upload.inputs | {upload.failure}
        self._uploads.append((max(self._round_begin, *known), upload, step))

    def follow(self, step: Step) -> None:
        """Note that the last step has computed its values of the host."""
        self._known.update(dict.fromkeys(step.on_host, self._end))

    def insert(self, changing: Iterable[ValueId]) -> None:
        """Insert the uploads into the steps; `changing` are variables that may change at each call."""
        apart = self._apart(set(changing))
        found = [(self._position(first, step, apart), upload) for first, upload, step in self._uploads]
        for (half, position), upload in sorted(found, key=itemgetter(0), reverse=True):
            self._halves[half].insert(position, upload)

    def _apart(self, changing: set[ValueId]) -> tuple[list[int], list[int]]:
        """Return the positions, in each half, of steps that stay apart from others: there, no commands follow."""
        found: tuple[list[int], list[int]] = [], []
        for half, steps in enumerate(self._halves):
            for position, step in enumerate(steps):
                if stays_apart(step, changing):
                    changing.update(step.on_host)
                    found[half].append(position)
        return found

    def _position(self, first: tuple[int, int], step: Step, apart: tuple[list[int], list[int]]) -> tuple[int, int]:
        """Return where an upload goes: before the step that reads its tables, and not before its first position."""
        half, start = first
        steps = self._halves[half]
        end = next((position for position, other in enumerate(steps) if other is step), len(steps))
        return half, max([start, *(position for position in apart[half] if start <= position <= end)])

    @property
    def _end(self) -> tuple[int, int]:
        before, final = self._halves
        return (1, len(final)) if final else (0, len(before))


class BranchTaken(Exception):
    """A condition differs from the plan's; no step after the `round` has run."""

    def __init__(self, round_: Round) -> None:
        super().__init__(round_)
        self.round = round_


class BranchGuard(Step):
    """Checks the conditions that are evaluated within a call, before the steps of the branches that they select."""

    #: Its conditions may change at each call.
    free = True
    #: They may depend on what other functions compute.
    is_unseen = False

    def __init__(self, branches: Branches, path: Path, round_: Round) -> None:
        super().__init__(CommandList())
        self._branches, self._round = branches, round_
        #: The values on the path of the conditions that the round asks for.
        self._expected = tuple(path.rounds[-1].state[index] for index in round_.asked)

    def _compute(self, changed: set[ValueId]) -> None:
        if self._branches.answers(self._round) != self._expected:
            raise BranchTaken(self._round)


class CommandSegment(Step):
    """Consecutive steps that are mostly repeated together, so that one comparison covers all of them."""

    def __init__(self, steps: Sequence[Step]) -> None:
        commands = CommandList(command for step in steps for command in step.commands)
        super().__init__(commands, frozenset().union(*(step.inputs for step in steps)))
        self._steps = steps

    @functools.cached_property
    def is_unseen(self) -> bool:
        return not self.commands and all(step.is_unseen for step in self._steps)

    def restore(self) -> None:
        """Mark that the cells of host values may hold others than the recorded ones."""
        for step in self._steps:
            step.restore()
        self.stale = self.stale or any(step.stale for step in self._steps)

    def repeated(self, changed: set[ValueId]) -> CommandList | None:
        """Return the commands, merged as they may be, that repeat all steps; None if one computes."""
        return None if any(step.repeated(changed) is None for step in self._steps) else self.commands

    def _compute(self, changed: set[ValueId]) -> None:
        """Enqueue the commands of steps that are repeated, and compute the others."""
        self.stale = True  # and stays so if a node raises
        for step in self._steps:
            enqueue_bound(step.due(changed))
        self.stale = any(step.stale for step in self._steps)


def stays_apart(step: Step, changing: Set[ValueId]) -> bool:
    """Tell whether a step computes each time, or compares a variable that may change at each call."""
    return step.free or not changing.isdisjoint(step.inputs)


def in_segments(steps: Iterable[Step], changing: set[ValueId]) -> list[Step]:
    """Gather consecutive steps whose inputs rarely change into segments.

    Steps stay alone if they compute each time, or compare a variable that is `changing`, as it may at each call. Their
    host outputs are added to `changing`.
    """
    gathered: list[Step] = []
    together: list[Step] = []
    for step in steps:
        if not stays_apart(step, changing):
            together.append(step)
            continue
        changing.update(step.on_host)
        if together:
            gathered.append(CommandSegment(together))
            together = []
        gathered.append(step)
    return [*gathered, CommandSegment(together)] if together else gathered


def _ensure_in_plan_memory(cell: list[Any], array: DeviceArray, own: bool) -> bool:
    """Tell whether an output lies in the plan's array; move it there if possible."""
    value = cell[0]
    if value is array:
        return True
    if not _same_memory(value, array) and not (own and overwrite(array, value)):
        return False
    cell[0] = array
    return True


def _same_memory(value: Any, array: Array) -> bool:
    return (
        isinstance(value, Array)
        and value.shape == array.shape
        and value.strides == array.strides
        and value.offset == array.offset
        and (value.base_data is array.base_data or value.base_data == array.base_data)
    )
