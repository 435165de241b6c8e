"""Dependence analysis that finds which commands may run in parallel.

A command depends on an earlier one if either of them writes bytes that the other uses, including bytes that several
values share after buffer assignment. The commands in a *phase* are independent of each other, and a barrier separates
phases.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from optdb.runtime.background import unhurried

#: The number that stands for "before all commands".
_BEFORE = -1
#: The maximum number of phases that are searched for spare capacity.
_LOOKED_AT = 16


@dataclass(frozen=True)
class ByteRange:
    """A range of bytes that a command uses in a buffer."""

    buffer: int  #: The handle of the whole buffer.
    start: int
    stop: int  #: The position after the last byte of the range.
    is_written: bool


class _LatestNumbers:
    """The latest phase (or stage) that writes each byte of a buffer, and the latest that reads each byte."""

    def __init__(self) -> None:
        #: The start of each part, in ascending order; all bytes of a part have the same numbers.
        self._starts = [0]
        self._written = [_BEFORE]
        self._read = [_BEFORE]

    def of(self, span: ByteRange) -> int:
        """Return the largest number among the commands that must precede a command that uses this byte range."""
        parts = self._parts(span)
        written = max(self._written[parts], default=_BEFORE)
        return max([written, *self._read[parts]]) if span.is_written else written

    def note(self, span: ByteRange, number: int) -> None:
        """Record that a command with the given number uses a byte range."""
        parts = self._parts(span)
        numbers = self._written if span.is_written else self._read
        for part in range(parts.start, parts.stop):
            numbers[part] = max(numbers[part], number)

    def _parts(self, span: ByteRange) -> slice:
        """Split the parts at the range's ends, and return the parts inside the range."""
        if span.start >= span.stop:
            return slice(0, 0)
        return slice(self._divided_at(span.start), self._divided_at(span.stop))

    def _divided_at(self, position: int) -> int:
        """Split a part at a position, and return the part that begins there."""
        part = bisect_left(self._starts, position)
        if part == len(self._starts) or self._starts[part] != position:
            self._starts.insert(part, position)
            self._written.insert(part, self._written[part - 1])
            self._read.insert(part, self._read[part - 1])
        return part


def phases_of(commands: Iterable[Sequence[ByteRange]]) -> list[int]:
    """Return the phase of each command, given the commands' byte ranges in queue order.

    A command's phase is the first phase after the phases of all its dependencies. Phases are counted from 0.
    """
    return _numbered(commands, lambda latest, _: latest + 1)


def roomy_phases_of(
    commands: Sequence[Sequence[ByteRange]], tiles: Sequence[int], is_long: Sequence[bool], groups: int
) -> list[int]:
    """Return phases as `phases_of` does, but postpone commands off the critical path to phases with spare capacity.

    Work-groups process the `tiles` of a phase in waves of `groups` tiles, and a few extra tiles would cost a full wave.
    Commands off the critical path are therefore moved to phases whose last wave is not full, and long commands to
    phases with other long commands.
    """
    earliest = phases_of(commands)
    count = max(earliest, default=_BEFORE) + 1
    latest = [count - 1 - phase for phase in reversed(phases_of(reversed(commands)))]
    filled, has_long = [0] * count, [False] * count

    def place(number: int, phase: int) -> int:
        filled[phase] += tiles[number]
        has_long[phase] |= is_long[number]
        return phase

    for number, phase in enumerate(earliest):
        if latest[number] == phase:
            place(number, phase)

    def next_number(before: int, number: int) -> int:
        first, last = before + 1, latest[number]
        if earliest[number] == last:
            return last
        looked_at = range(first, min(last + 1, first + _LOOKED_AT))
        roomy = [phase for phase in looked_at if tiles[number] <= -filled[phase] % groups]
        beside_long = [phase for phase in roomy if has_long[phase]] if is_long[number] else []
        return place(number, next(iter(beside_long or roomy), first))

    return _numbered(commands, next_number)


def stages_of(commands: Sequence[Sequence[ByteRange]], kinds: Sequence[bool]) -> list[int]:
    """Return each command's stage, which is not earlier than the stages of its dependencies.

    Commands within a stage keep their order. Commands of kind False are in even stages, and commands of kind True in
    odd stages.
    """

    def stage(latest: int, number: int) -> int:
        return max(latest, 0) + (max(latest, 0) % 2 != kinds[number])

    return _numbered(commands, stage)


def _numbered(commands: Iterable[Sequence[ByteRange]], next_number: Callable[[int, int], int]) -> list[int]:
    """Return each command's number (its phase or stage), which `next_number` computes.

    The arguments of `next_number` are the largest number of the command's dependencies, and the command's index.
    """
    latest: dict[int, _LatestNumbers] = {}
    numbers = []
    for index, spans in enumerate(unhurried(commands)):
        places = [latest.setdefault(span.buffer, _LatestNumbers()) for span in spans]
        number = next_number(max((place.of(span) for place, span in zip(places, spans)), default=_BEFORE), index)
        for place, span in zip(places, spans):
            place.note(span, number)
        numbers.append(number)
    return numbers
