"""The steps of a loop that a schedule computes: what is stored in each, and where its rows are.

The body of a loop is scheduled once. Its arguments are buffers that stand for other rows in each step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from optdb.codegen.loops.body import Buffer
from optdb.device.iterations import Carried, Iteration
from optdb.device.schedule.stored import Replacements, Stored
from optdb.device.schedule.work_units import LoopStep, OperationUnit, WorkUnit
from optdb.device.tensors import Tensor

__all__ = ["BodySchedule", "IterationUnit", "MovingRow", "scheduled"]


@dataclass(eq=False)
class MovingRow:
    """A buffer of a loop's body, and the row of a stored array that it is: in step t row ``(start + t) % length``."""

    buffer: Buffer
    array: Stored
    start: int

    def offset(self, step: int) -> int:
        """Return where the row begins in the array's buffer in a step, in elements."""
        return self.array.offset + (self.start + step) % self.array.shape[0] * self.array.strides[0]


class IterationUnit(WorkUnit):
    """A loop: the steps of its body, which are compiled once, and the rows that move on.

    Parameters
    ----------
    iteration : Iteration
        What it computes.
    rows : sequence of MovingRow
        What the body reads and writes.
    body : sequence
        The steps of the body.
    """

    def __init__(
        self, iteration: Iteration, rows: Sequence[MovingRow], body: Sequence[LoopStep | OperationUnit | IterationUnit]
    ) -> None:
        super().__init__()
        self.iteration = iteration
        self.rows = list(rows)
        self.body = list(body)


class BodySchedule(Protocol):
    """The schedule of a loop's body."""

    stored: Replacements

    def store(self, tensor: Tensor, region: Stored | None = None) -> Stored:
        """Add the units that store a tensor, in a region if one is given; return where it will be."""

    def steps(self) -> list[LoopStep | OperationUnit | IterationUnit]:
        """Return the steps that compute all that is to be stored, in order."""


def scheduled(
    iteration: Iteration, arrays: Mapping[Carried, Stored], sources: Mapping[Tensor, Stored], body: BodySchedule
) -> IterationUnit:
    """Return the unit of a loop.

    Parameters
    ----------
    iteration : Iteration
        The loop.
    arrays : mapping
        Where the arrays of its outputs are.
    sources : mapping
        Where all that it takes is.
    body : BodySchedule
        An empty schedule that knows where the loop's invariants are.
    """
    rows: list[MovingRow] = []

    def moving(array: Stored, start: int) -> Buffer:
        rows.append(MovingRow(Buffer(math.prod(array.shape[1:]), array.dtype, "a row"), array, start))
        return rows[-1].buffer

    for row in iteration.rows:
        array = arrays[row.source] if isinstance(row.source, Carried) else sources[row.source]
        body.stored[row] = Stored(moving(array, row.start), row.shape, 0, array.strides[1:])
    late: list[tuple[Stored, Stored]] = []
    for carried in iteration.carried:
        read = {row.start % carried.length for row in iteration.rows if row.source is carried}
        for start, value in carried.written:
            target = Stored(moving(arrays[carried], start), carried.row_shape)
            if start % carried.length not in read:
                body.store(value, target)
                continue
            # The step may read the row after it has computed the next one.
            region = Stored(Buffer(target.size, target.dtype), target.shape)
            late.append((body.store(value, region), target))
    steps = body.steps()
    for region, target in late:
        body.store(region, target)
    unit = IterationUnit(iteration, rows, [*steps, *body.steps()])
    unit.reads = {stored.buffer for stored in sources.values()}
    unit.writes = [array.buffer for array in arrays.values()]
    return unit
