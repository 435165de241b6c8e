"""Commits updates: copies the next values of shared arrays over the current values.

If a call replaced the arrays, their addresses would change, and no plan could be used twice. If an overwritten buffer
also holds another value that is still needed, for example because a function returns the current value itself, this
value is first copied elsewhere.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

from optdb.device.launches.copies import copies_course
from optdb.device.launches.merging import LaunchMerging
from optdb.device.plans.linked import LinkedFunction
from optdb.runtime.arrays import Array, copy, overwrite
from optdb.runtime.buffer_assignment import BufferAssignment, CommandGroup, liveness
from optdb.runtime.commands import CommandList
from optdb.runtime.dispatch import enqueue_bound
from optdb.runtime.recording import Recorder

#: The maximum number of times that a plan's commit is recorded. Recordings are useless if arrays move in each call.
MAX_RECORDINGS = 3

#: Pairs of an input's cell (a one-element list) and the cell of the input's next value.
CellPairs = Sequence[tuple[list[Any], list[Any]]]


def advance(pairs: CellPairs) -> None:
    """Read all next values, and then store them in the inputs' cells."""
    for cell, value in [(cell, following[0]) for cell, following in pairs]:
        cell[0] = value


def check_updates(linked: LinkedFunction) -> None:
    """Raise ValueError if a next value does not have the length that its shared variable requires."""
    for var, check in linked.next_value_checks.items():
        check(linked.value(linked.updates[var]))


def commit(linked: LinkedFunction) -> None:
    """Copy next values of shared arrays over the current values."""
    check_updates(linked)
    updates = [((var, following), linked.value(var), linked.value(following)) for var, following in linked.advancing]
    cells = [linked.cells[var] for var in dict.fromkeys([*linked.outputs, *linked.updates.values()])]
    changes = find_commit(updates, [(cell, cell[0]) for cell in cells], buffer_of, _is_in_place)
    for cell in changes.aliased:
        cell[0] = copy(cell[0])
    for var, following in changes.written:
        present = linked.value(var)
        if overwrite(present, linked.value(following)):
            linked.cells[following][0] = present


class Commit(NamedTuple):
    """The copies to make at the end of a call."""

    written: list[Any]  #: The keys of the updates whose next values are copied over the current ones.
    aliased: list[Any]  #: The keys of other values in the overwritten buffers; these values are copied first.


def find_commit(
    updates: Iterable[tuple[Any, Any, Any]],
    values: Iterable[tuple[Any, Any]],
    buffer_of: Callable[[Any], Hashable | None],
    is_in_place: Callable[[Any, Any], bool],
) -> Commit:
    """Find the next values to write, and the values to copy before they are overwritten.

    `updates` lists the key, the current value and the next value of each update. `values` lists keys and values that
    are needed after the commit. `buffer_of` returns the id of a value's buffer, or None. `is_in_place` returns whether
    a next value already uses the current value's memory.
    """
    moved = [(key, present) for key, present, following in updates if not is_in_place(present, following)]
    overwritten = {buffer_of(present) for _, present in moved} - {None}
    aliased = [key for key, value in values if buffer_of(value) in overwritten] if overwritten else []
    return Commit([key for key, _ in moved], aliased)


def buffer_of(value: Any) -> int | None:
    """Return the id of a device array's buffer; None for other values."""
    return value.base_data.int_ptr if isinstance(value, Array) and value.size else None


def _is_in_place(present: Array, following: Array) -> bool:
    """Return whether a next value needs no copy, because it is in the current value's buffer or has no elements."""
    return not (present.size and following.size) or buffer_of(present) == buffer_of(following)


class CommitUpdates:
    """A recorded commit for one plan, whose arrays are usually the same in each call."""

    def __init__(self, linked: LinkedFunction, max_recordings: int) -> None:
        self._linked = linked
        pairs = [var for pair in linked.advancing for var in pair]
        concerned = dict.fromkeys([*pairs, *filter(linked.on_device, linked.outputs)] if pairs else [])
        self._cells = [linked.cells[var] for var in concerned]
        #: Whether a length check applies to a next value that is not among the compared arrays.
        self._checks = any(linked.updates[var] not in concerned for var in linked.next_value_checks)
        contexts = {linked.contexts[var] for var in concerned}
        #: The context of the arrays; None if they are in several contexts.
        self._context = contexts.pop() if len(contexts) == 1 else None
        #: The recorded arrays; None before a recording.
        self._before: list[Any] | None = None if self._cells else []
        self._after: list[Any] = []
        self._commands = CommandList()
        self._recordings_left = max_recordings
        #: Merges the recorded copies; None before a recording, or if the copies are on several devices.
        self._merging: LaunchMerging | None = None

    def commands(self) -> CommandList | None:
        """Return the commands that commit the current values in the cells; None if they were not recorded."""
        return self._commands if self._is_recorded([cell[0] for cell in self._cells]) else None

    @property
    def is_final(self) -> bool:
        """Whether all later runs only enqueue the same commands."""
        return not self._checks and (self._merging is None or self._merging.done)

    def is_ready(self) -> bool:
        """Return whether `run` only enqueues recorded commands for the current values in the cells."""
        return not self._checks and self._is_recorded([cell[0] for cell in self._cells])

    def run(self) -> None:
        before = [cell[0] for cell in self._cells]
        if self._is_recorded(before):
            if self._checks:
                check_updates(self._linked)
            merged = None if self._merging is None else self._merging.next()
            if merged is not None:
                (self._commands,) = merged
            enqueue_bound(self._commands)
            for cell, value in zip(self._cells, self._after):
                cell[0] = value
        elif self._recordings_left:
            self._recordings_left -= 1
            self._record(before)
        else:
            commit(self._linked)

    def _is_recorded(self, before: list[Any]) -> bool:
        return self._before is not None and all(map(operator.is_, before, self._before))

    def _record(self, before: list[Any]) -> None:
        recorder = Recorder()
        with recorder.segment() as segment:
            commit(self._linked)
        self._after = [cell[0] for cell in self._cells]
        allocated = set(segment.allocated)
        # A commit that makes copies for the caller cannot be repeated, because the copies must be new in each call.
        is_new = any(isinstance(array, Array) and recorder.layout(array).memory in allocated for array in self._after)
        if segment.unsupported_reason is not None or is_new:
            self._before = None
            return
        buffers = BufferAssignment(liveness([CommandGroup(segment.commands, segment.allocated)], ()))
        self._before, self._commands = before, CommandList(map(buffers.bind, segment.commands))
        self._merging = None
        if self._context is not None:
            self._merging = LaunchMerging(copies_course(self._context, self._commands, self._linked.merge_launches))
