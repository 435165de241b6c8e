"""How arrays in C order divide into channels: all elements that share their places along the axes that are kept.

Neighbouring axes that are all kept, or all folded, count as one, a run. A channel's elements lie
in rows if the last run is folded, and in columns, side by side with those of other channels, if
it is kept. `Channels` works out lengths and steps for one shape; kernels know only how many runs
there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from optdb.codegen.layout import size_of
from optdb.runtime.sizes import largest, smallest

if TYPE_CHECKING:
    from optdb.runtime.context import Context

#: Columns that one work item of a processor folds side by side.
WIDTH = 16
#: The most bytes of a row, or rows of columns, in a part: a second pass finds them in a processor's cache.
PART_BYTES = 1 << 18
PART_ROWS = 1024
#: Work items for each unit of a processor; elsewhere, groups for rows, and items for columns.
ITEMS_PER_UNIT = 8
GROUPS = 1024
ITEMS = 1 << 16


@dataclass(frozen=True)
class Runs:
    """How many runs the axes of an array make, at most."""

    #: Of each kind; at least one.
    kept: int
    folded: int

    @classmethod
    def of(cls, ndim: int, axes: Sequence[int]) -> Runs:
        """Return those of an array of which `axes` are folded."""
        kinds = [is_kept for is_kept, _ in groupby(axis not in axes for axis in range(ndim))]
        return cls(max(kinds.count(True), 1), max(kinds.count(False), 1))

    @property
    def outer(self) -> int:
        """How many there are besides the last one."""
        return self.kept + self.folded - 1


@dataclass(frozen=True)
class Channels:
    """The channels of an array in C order."""

    #: The number of runs that the kernels take.
    runs: Runs
    #: Of the runs of this shape, outermost first; none is 1.
    lengths: tuple[int, ...]
    #: Which of them are kept.
    kept: tuple[bool, ...]

    @classmethod
    def of(cls, shape: Sequence[int], axes: Sequence[int]) -> Channels:
        """Return the channels of an array of a shape, of which `axes` are folded."""
        long = [(length, axis not in axes) for axis, length in enumerate(shape) if length != 1]
        lengths, kept_flags = [], []
        for kind, run in groupby(long, key=lambda pair: pair[1]):
            kept_flags.append(kind)
            lengths.append(size_of([length for length, _ in run]))
        return cls(Runs.of(len(shape), axes), tuple(lengths), tuple(kept_flags))

    @property
    def number(self) -> int:
        """How many channels there are."""
        return size_of([length for length, is_kept in zip(self.lengths, self.kept) if is_kept])

    @property
    def size(self) -> int:
        """How many elements each has."""
        return size_of([length for length, is_kept in zip(self.lengths, self.kept) if not is_kept])

    @property
    def in_columns(self) -> bool:
        """Whether neighbours belong to different channels."""
        return bool(self.kept) and self.kept[-1]

    @property
    def inner(self) -> int:
        """The length of the last run."""
        return self.lengths[-1] if self.lengths else 1

    def steps(self) -> list[int]:
        """Return the stride of each run, in elements."""
        steps, step = [], 1
        for length in reversed(self.lengths):
            steps.append(step)
            step *= length
        return steps[::-1]

    def fold_args(self) -> list[int]:
        """Return lengths of kept and folded runs, then steps of both, for the kernels that fold."""
        runs = list(zip(self.lengths, self.steps(), self.kept))
        kept_runs = _filled([run[:2] for run in runs if run[2]], self.runs.kept)
        folded_runs = _filled([run[:2] for run in runs if not run[2]], self.runs.folded)
        lengths, steps = zip(*kept_runs, *folded_runs)
        return [*lengths, *steps]

    def place_args(self) -> list[int]:
        """Return the length of the last run; those of the others; by how many channels each of these steps."""
        outer, channels = [], self.inner if self.in_columns else 1
        for length, is_kept in zip(self.lengths[-2::-1], self.kept[-2::-1]):
            outer.append((length, channels if is_kept else 0))
            channels *= length if is_kept else 1
        lengths, steps = zip(*_filled(outer[::-1], self.runs.outer))
        return [self.inner, *lengths, *steps]

    def parts(self, context: Context, row_bytes: int) -> tuple[int, int]:
        """Return the number of parts of a channel, and the elements of each; `row_bytes` is the size of one element."""
        most = self.size
        if not most:
            return 0, 0
        if context.profile.runs_items_serially:
            target_items = context.profile.compute_units * ITEMS_PER_UNIT
            if self.in_columns:
                parts = largest(_shared(target_items, self.blocks, most, 64), -(-most // PART_ROWS))
            else:
                parts = largest(_shared(target_items, self.number, most, 4096), -(-most * row_bytes // PART_BYTES))
        elif self.in_columns:
            parts = _shared(ITEMS, self.number, most, 64)
        else:
            parts = _shared(GROUPS, self.number, most, 4096)
        part = -(-most // parts)
        return -(-most // part), part

    @property
    def blocks(self) -> int:
        """How many pieces of at most `WIDTH` columns there are."""
        return self.number // self.inner * -(-self.inner // WIDTH)


def _shared(wanted: int, number: int, size: int, least: int) -> int:
    """Return how many parts, of at least `least` elements, divide `number` channels into `wanted` pieces of work."""
    parts: int = largest(1, smallest(-(-wanted // number), size // least))
    return parts


def _filled(runs: list[tuple[int, int]], number: int) -> list[tuple[int, int]]:
    """Return `number` runs, as a kernel takes them: pad in front with runs of length 1."""
    return [(1, 0)] * (number - len(runs)) + runs
