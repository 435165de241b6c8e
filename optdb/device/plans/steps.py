"""The steps of a plan: commands that are repeated, and nodes that run in Python if their inputs have changed.

A :class:`GuardedStep` compares the values or addresses of a node's inputs with the recording. If a value or address has
changed, the node runs, and its outputs are copied to the plan's buffers for later nodes. If an output does not fit, for
example because its shape has changed, the nodes that read it also run.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from optdb.device.plans.linked import Branches, Node, Path, Round, ValueId
from optdb.device.plans.recording import NodeTable, Recording, same
from optdb.numpy_types import HostArray
from optdb.runtime.arrays import Array, DeviceArray, overwrite
from optdb.runtime.commands import CommandList
from optdb.runtime.dispatch import enqueue_bound
from optdb.runtime.recording import Segment


class PlanStep:
    """Commands that are repeated while the guarded inputs are unchanged."""

    #: Whether the step runs in Python in every run of the plan.
    free = False
    on_host: Sequence[ValueId] = ()

    def __init__(self, commands: CommandList, inputs: Iterable[ValueId] = ()) -> None:
        self.commands = commands
        self.inputs = frozenset(inputs)
        #: Whether the step must run in Python in the next run, even if its inputs are unchanged.
        self.stale = False

    @functools.cached_property
    def is_unobservable(self) -> bool:
        """Whether the step enqueues only uploads to the plan's own memory, which no other function can observe."""
        return not self.commands

    def is_repeated(self, changed: set[ValueId]) -> bool:
        """Return whether the step repeats its commands without Python if the variables in `changed` have changed."""
        return not (self.free or self.stale) and changed.isdisjoint(self.inputs)

    def restore(self) -> None:
        """Record that cells may hold host values that differ from the recorded values."""
        self.stale = self.stale or bool(self.on_host)

    def repeated(self, changed: set[ValueId]) -> CommandList | None:
        """Return the commands that repeat the last run; None if the step must run in Python.

        The variables in `changed` differ from their recorded values, both now and in the last run.
        """
        return self.commands if self.is_repeated(changed) else None

    def due(self, changed: set[ValueId]) -> CommandList:
        """Return the commands that repeat the step; if that is not possible, run it in Python and return no commands.

        Outputs whose value or address differs from the recording are added to `changed`.
        """
        if self.is_repeated(changed):
            return self.commands
        self._compute(changed)
        return CommandList()

    def _compute(self, changed: set[ValueId]) -> None:
        raise NotImplementedError


class GuardedStep(PlanStep):
    """A node that may have to run in Python; a `free` step runs in Python every time."""

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
        #: For each output: its cell; the variable; the plan's array, for a device output; the recorded value, for a
        #: host output; and whether the node allocated its memory, so that it is not a view of an input.
        self._outputs = [
            (linked.cells[var], var, arrays.get(var), values.get(var), var in owned) for var in node.outputs
        ]

    @functools.cached_property
    def is_unobservable(self) -> bool:
        node = self._linked.nodes[self._number]
        return not self.commands and node.is_pure and not self._linked.touches_device(node)

    def _compute(self, changed: set[ValueId]) -> None:
        self._linked.run(self._number)
        self.stale = False
        for cell, var, array, value, owns_memory in self._outputs:
            unchanged = same(cell[0], value) if array is None else _ensure_in_plan_memory(cell, array, owns_memory)
            if not unchanged:
                changed.add(var)
                self.stale = True


class KeptUpload(GuardedStep):
    """A node whose results in separate memory are reused while its inputs equal the recorded ones."""

    @functools.cached_property
    def is_unobservable(self) -> bool:
        node = self._linked.nodes[self._number]
        return not any(map(self._linked.on_device, node.inputs)) and self._linked.exposed.isdisjoint(node.outputs)

    def repeated(self, changed: set[ValueId]) -> CommandList:
        return self.commands

    def _compute(self, changed: set[ValueId]) -> None:
        # After this run, the memory does not hold the recorded results, and no command restores them. The node must
        # therefore run again, even with the recorded inputs.
        self.stale = True
        differs = not changed.isdisjoint(self.inputs)
        super()._compute(changed)
        self.stale = self.stale or differs


class TableUpload(PlanStep):
    """Computes a node's lookup tables from the current host values, and uploads them.

    If a table cannot be computed, for example because a class index is out of bounds, the node runs and raises its
    error.
    """

    def __init__(self, recording: Recording, tables: Sequence[NodeTable]) -> None:
        super().__init__(CommandList(), [table.var for table in tables])
        self._linked, self._tables = recording.linked, tables
        #: A pseudo-variable on which the node's step depends; it changes if a table cannot be computed.
        self.failure: ValueId = object()

    def repeated(self, changed: set[ValueId]) -> CommandList:
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
    """Inserts table uploads into `halves`, the plan's steps, at the positions where host values become known."""

    def __init__(self, recording: Recording, halves: tuple[list[PlanStep], list[PlanStep]]) -> None:
        self._recording, self._halves = recording, halves
        #: Maps a host value to the position from which it is known: the half, and the number of earlier steps in the
        #: half.
        self._known: dict[ValueId, tuple[int, int]] = {}
        self._round_begin = 0, 0
        #: The uploads, each with its position.
        self._uploads: list[tuple[tuple[int, int], TableUpload]] = []

    def begin_round(self) -> None:
        """Begin a round, whose steps run only if the conditions evaluated so far have their recorded values."""
        self._round_begin = self._end

    def precede(self, number: int, step: PlanStep) -> None:
        """If a node reads host values only through tables, upload them before its step, which then needs no guards."""
        tables = self._recording.tables.get(number)
        if tables is None or step.free or type(step) is not GuardedStep:
            return
        upload = TableUpload(self._recording, tables)
        known = [self._known.get(table.var, self._round_begin) for table in tables]
        step.inputs = step.inputs - upload.inputs | {upload.failure}
        self._uploads.append((max(self._round_begin, *known), upload))

    def follow(self, step: PlanStep) -> None:
        """Record that the host outputs of `step` are known from this position on."""
        self._known.update(dict.fromkeys(step.on_host, self._end))

    def insert(self) -> None:
        for (half, position), upload in sorted(self._uploads, key=itemgetter(0), reverse=True):
            self._halves[half].insert(position, upload)

    @property
    def _end(self) -> tuple[int, int]:
        before, final = self._halves
        return (1, len(final)) if final else (0, len(before))


class BranchTaken(Exception):
    """Raised if a condition differs from its value in the plan; no step after the `round` has run."""

    def __init__(self, round_: Round) -> None:
        super().__init__(round_)
        self.round = round_


class BranchGuard(PlanStep):
    """Checks conditions before nodes of the selected branches run."""

    #: Conditions may change in each call, so they are evaluated every time.
    free = True
    #: Conditions may depend on results of other functions.
    is_unobservable = False

    def __init__(self, branches: Branches, path: Path, round_: Round) -> None:
        super().__init__(CommandList())
        self._branches, self._round = branches, round_
        #: The values that the round's conditions have on this path.
        self._expected = tuple(path.rounds[-1].state[index] for index in round_.asked)

    def _compute(self, changed: set[ValueId]) -> None:
        if self._branches.answers(self._round) != self._expected:
            raise BranchTaken(self._round)


class CommandSegment(PlanStep):
    """Consecutive steps that usually repeat together, so that one comparison covers them all."""

    def __init__(self, steps: Sequence[PlanStep]) -> None:
        commands = CommandList(command for step in steps for command in step.commands)
        super().__init__(commands, frozenset().union(*(step.inputs for step in steps)))
        self._steps = steps

    @functools.cached_property
    def is_unobservable(self) -> bool:
        return not self.commands and all(step.is_unobservable for step in self._steps)

    def restore(self) -> None:
        for step in self._steps:
            step.restore()
        self.stale = self.stale or any(step.stale for step in self._steps)

    def repeated(self, changed: set[ValueId]) -> CommandList | None:
        return None if any(step.repeated(changed) is None for step in self._steps) else self.commands

    def _compute(self, changed: set[ValueId]) -> None:
        self.stale = True  # remains set if a node raises
        for step in self._steps:
            enqueue_bound(step.due(changed))
        self.stale = any(step.stale for step in self._steps)


def in_segments(steps: Iterable[PlanStep], changing: set[ValueId]) -> list[PlanStep]:
    """Group consecutive steps into segments, except steps that run in Python in most calls.

    The excepted steps are `free` or depend on a variable in `changing`; this function adds their host outputs to
    `changing`.
    """
    gathered: list[PlanStep] = []
    together: list[PlanStep] = []
    for step in steps:
        if not step.free and changing.isdisjoint(step.inputs):
            together.append(step)
            continue
        changing.update(step.on_host)
        if together:
            gathered.append(CommandSegment(together))
            together = []
        gathered.append(step)
    return [*gathered, CommandSegment(together)] if together else gathered


def _ensure_in_plan_memory(cell: list[Any], array: DeviceArray, own: bool) -> bool:
    """Copy an output to the plan's array unless it is already there; return False if the output cannot be copied."""
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
