"""The channels of C-contiguous arrays.

A channel consists of all elements with the same indexes along the kept axes. Neighbouring axes that are all kept, or
all reduced, are merged into a *run*. If the last run is reduced, a channel consists of contiguous rows. Otherwise, it
consists of columns, and neighbouring elements belong to different channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from optdb.codegen.layout import size_of
from optdb.runtime.context import Context
from optdb.runtime.sizes import largest, smallest

#: Number of columns that a CPU work item reduces at a time.
WIDTH = 16
#: Maximum number of bytes in a part: a second pass over the part must find it in the CPU's cache.
PART_BYTES = 1 << 18
PART_ROWS = 1024
#: Number of work items per compute unit of a CPU.
ITEMS_PER_UNIT = 8
#: Number of work groups that reduce rows, and number of work items that reduce columns, on devices other than CPUs.
GROUPS = 1024
ITEMS = 1 << 16


@dataclass(frozen=True)
class Runs:
    """The numbers of kept runs and of reduced runs; kernels for these numbers also accept arrays with fewer runs."""

    kept: int
    folded: int

    @classmethod
    def of(cls, ndim: int, axes: Sequence[int]) -> Runs:
        """Return the runs for an array with `ndim` axes, of which `axes` are reduced."""
        kinds = [is_kept for is_kept, _ in groupby(axis not in axes for axis in range(ndim))]
        return cls(max(kinds.count(True), 1), max(kinds.count(False), 1))


@dataclass(frozen=True)
class Channels:
    """The channels of a C-contiguous array."""

    runs: Runs
    #: Lengths of the array's runs, outermost first; no length is 1.
    lengths: tuple[int, ...]
    #: For each run, whether it is kept.
    kept: tuple[bool, ...]

    @classmethod
    def of(cls, shape: Sequence[int], axes: Sequence[int]) -> Channels:
        """Return the channels of an array with a given shape that is reduced along `axes`."""
        long = [(length, axis not in axes) for axis, length in enumerate(shape) if length != 1]
        lengths, kept_flags = [], []
        for kind, run in groupby(long, key=lambda pair: pair[1]):
            kept_flags.append(kind)
            lengths.append(size_of([length for length, _ in run]))
        return cls(Runs.of(len(shape), axes), tuple(lengths), tuple(kept_flags))

    @property
    def number(self) -> int:
        return size_of([length for length, is_kept in zip(self.lengths, self.kept) if is_kept])

    @property
    def size(self) -> int:
        """The number of elements in each channel."""
        return size_of([length for length, is_kept in zip(self.lengths, self.kept) if not is_kept])

    @property
    def in_columns(self) -> bool:
        """Whether neighbouring elements belong to different channels."""
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
        """Return the lengths of all runs, then their strides, as kernel arguments; kept runs precede reduced runs."""
        runs = list(zip(self.lengths, self.steps(), self.kept))
        kept_runs = _filled([run[:2] for run in runs if run[2]], self.runs.kept)
        folded_runs = _filled([run[:2] for run in runs if not run[2]], self.runs.folded)
        lengths, steps = zip(*kept_runs, *folded_runs)
        return [*lengths, *steps]

    def parts(self, context: Context, row_bytes: int) -> tuple[int, int]:
        """Return the number of parts per channel, and the number of elements per part.

        `row_bytes` is the total size of one element of each input, in bytes.
        """
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
        """The number of blocks of at most `WIDTH` columns."""
        return self.number // self.inner * -(-self.inner // WIDTH)


def _shared(wanted: int, number: int, size: int, least: int) -> int:
    """Return how many parts each channel needs to make `wanted` tasks, if parts have at least `least` elements."""
    parts: int = largest(1, smallest(-(-wanted // number), size // least))
    return parts


def _filled(runs: list[tuple[int, int]], number: int) -> list[tuple[int, int]]:
    return [(1, 0)] * (number - len(runs)) + runs
