"""The dependencies of commands: which of them may run side by side.

A command reads and writes ranges of bytes. It depends on an earlier one where it reads what that wrote, or writes what
that read or wrote; memory that liveness gives to several values counts, too. :func:`phases_of` numbers commands so that
those of one phase are independent: a barrier between phases is all that they need. :func:`roomy_phases_of` lets some
wait for a phase that has room for them. :func:`stages_of` gathers commands of two kinds, so that few changes of kind
remain.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from optdb.runtime.background import unhurried

__all__ = ["ByteRange", "phases_of", "roomy_phases_of", "stages_of"]

#: The number of what comes before all commands.
_BEFORE = -1
#: In how many phases room is looked for.
_LOOKED_AT = 16


@dataclass(frozen=True)
class ByteRange:
    """Bytes of a buffer that a command uses."""

    buffer: int  #: The handle of the whole buffer.
    start: int
    stop: int  #: The byte after the last one.
    is_written: bool


class _LatestNumbers:
    """For each byte of a buffer, the largest numbers of the commands that write and read it."""

    def __init__(self) -> None:
        #: Where the parts begin, ascending; in each part, all bytes have the same numbers.
        self._starts = [0]
        self._written = [_BEFORE]
        self._read = [_BEFORE]

    def of(self, span: ByteRange) -> int:
        """Return the largest number of a command that one which uses a range depends on."""
        parts = self._parts(span)
        written = max(self._written[parts], default=_BEFORE)
        return max([written, *self._read[parts]]) if span.is_written else written

    def note(self, span: ByteRange, number: int) -> None:
        """Note that a command with a number uses a range."""
        parts = self._parts(span)
        numbers = self._written if span.is_written else self._read
        for part in range(parts.start, parts.stop):
            numbers[part] = max(numbers[part], number)

    def _parts(self, span: ByteRange) -> slice:
        """Return the parts of a range, after parts that it only meets have been divided."""
        if span.start >= span.stop:
            return slice(0, 0)
        return slice(self._divided_at(span.start), self._divided_at(span.stop))

    def _divided_at(self, position: int) -> int:
        """Return the part that begins at a position, which divides the one around it."""
        part = bisect_left(self._starts, position)
        if part == len(self._starts) or self._starts[part] != position:
            self._starts.insert(part, position)
            self._written.insert(part, self._written[part - 1])
            self._read.insert(part, self._read[part - 1])
        return part


def phases_of(commands: Iterable[Sequence[ByteRange]]) -> list[int]:
    """Return the phase of each command: the first one after those of all that it depends on, from 0 on.

    Parameters
    ----------
    commands : iterable of sequence of ByteRange
        What each command uses, in the order of the queue.
    """
    return _numbered(commands, lambda latest, _: latest + 1)


def roomy_phases_of(
    commands: Sequence[Sequence[ByteRange]], tiles: Sequence[int], is_long: Sequence[bool], groups: int
) -> list[int]:
    """Return the phase of each command as `phases_of`, or a later one that has room, where no command has to wait.

    The groups take the tiles of a phase in rounds, and a few tiles more than fill a round make another one. So commands
    that others do not wait for come where the last round has room: long ones, rather, beside others that are long.

    Parameters
    ----------
    commands : sequence of sequence of ByteRange
        What each command uses, in the order of the queue.
    tiles : sequence of int
        Of each command.
    is_long : sequence of bool
        Whether a tile of the command takes long.
    groups : int
        How many tiles fill a round.
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
    """Return the stage of each command: a command comes in one after those of all that it depends on, or the same.

    Commands of one stage stay in their order. Those of kind False are in even stages, those of kind True in odd ones.

    Parameters
    ----------
    commands : sequence of sequence of ByteRange
        What each command uses, in the order of the queue.
    kinds : sequence of bool
        The kind of each command.
    """

    def stage(latest: int, number: int) -> int:
        return max(latest, 0) + (max(latest, 0) % 2 != kinds[number])

    return _numbered(commands, stage)


def _numbered(commands: Iterable[Sequence[ByteRange]], next_number: Callable[[int, int], int]) -> list[int]:
    """Number commands by the largest number of those that each depends on, and by its index."""
    latest: dict[int, _LatestNumbers] = {}
    numbers = []
    for index, spans in enumerate(unhurried(commands)):
        places = [latest.setdefault(span.buffer, _LatestNumbers()) for span in spans]
        number = next_number(max((place.of(span) for place, span in zip(places, spans)), default=_BEFORE), index)
        for place, span in zip(places, spans):
            place.note(span, number)
        numbers.append(number)
    return numbers
