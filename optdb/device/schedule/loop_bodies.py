"""Schedules loops: decides which tensors each step stores, and where the step's rows are.

A loop's body is scheduled once; its arguments are buffers that stand for a different row in each step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

from optdb.codegen.loops.body import Buffer
from optdb.codegen.loops.kernel import LoopGrid, LoopKernel
from optdb.codegen.loops.repeated import MovingRow, NotRepeatable, RepeatedLoops
from optdb.device.iterations import Carried, Iteration
from optdb.device.schedule.schedule_nodes import MOST_BUFFERS, FusedKernel, ScheduledOperation, ScheduleNode
from optdb.device.schedule.stored import Replacements, Stored
from optdb.device.tensors import Tensor
from optdb.runtime.device_profiles import DeviceProfile

__all__ = ["BodySchedule", "ScheduledIteration", "repeated", "scheduled"]


class ScheduledIteration(ScheduleNode):
    """A scheduled loop: the steps of its body, which are compiled once, and the rows that advance from step to step.

    Parameters
    ----------
    iteration : Iteration
        The loop.
    rows : sequence of MovingRow
        The rows that the body reads and writes.
    body : sequence
        The steps of the body.
    """

    def __init__(
        self,
        iteration: Iteration,
        rows: Sequence[MovingRow],
        body: Sequence[FusedKernel | ScheduledOperation | ScheduledIteration],
    ) -> None:
        super().__init__()
        self.iteration = iteration
        self.rows = list(rows)
        self.body = list(body)
        #: The buffers that only the body uses.
        self.own_buffers = {row.buffer for row in rows}
        for step in body:
            if isinstance(step, FusedKernel):
                self.own_buffers.update(buffer for part in step.loops for buffer in part.writes)
            else:
                self.own_buffers.update(step.writes)
            if isinstance(step, ScheduledIteration):
                self.own_buffers |= step.own_buffers


class BodySchedule(Protocol):
    """The schedule of a loop's body."""

    stored: Replacements

    def store(self, tensor: Tensor, region: Stored | None = None) -> Stored:
        """Add the nodes that store a tensor, in a region if one is given; return its location."""

    def store_in_place(self, tensor: Tensor, region: Stored) -> None:
        """Add the nodes that store a tensor in a buffer region that nothing else writes."""

    def steps(self) -> list[FusedKernel | ScheduledOperation | ScheduledIteration]:
        """Return the steps that compute all tensors to be stored, in order."""


def scheduled(
    iteration: Iteration, arrays: Mapping[Carried, Stored], sources: Mapping[Tensor, Stored], body: BodySchedule
) -> ScheduledIteration:
    """Return the schedule node for a loop.

    Parameters
    ----------
    iteration : Iteration
        The loop.
    arrays : mapping
        Maps carried arrays to their locations.
    sources : mapping
        Maps all tensors that the loop reads to their locations.
    body : BodySchedule
        An empty body schedule, in which the loop's invariants are already stored.
    """
    rows: list[MovingRow] = []

    def moving(array: Stored, start: int) -> Buffer:
        buffer = Buffer(math.prod(array.shape[1:]), array.dtype, "a row")
        rows.append(MovingRow(buffer, array.buffer, array.offset, array.strides[0], start, array.shape[0]))
        return buffer

    for row in iteration.rows:
        array = arrays[row.source] if isinstance(row.source, Carried) else sources[row.source]
        body.stored[row] = Stored(moving(array, row.start), row.shape, 0, array.strides[1:])
    for tensor, row in iteration.hoisted.items():
        body.stored[tensor] = body.stored[row]
    late: list[tuple[Stored, Stored]] = []
    for carried in iteration.carried:
        read = {row.start % carried.length for row in iteration.rows if row.source is carried}
        for start, value in carried.written:
            target = Stored(moving(arrays[carried], start), carried.row_shape)
            if start % carried.length not in read:
                body.store_in_place(value, target)
                continue
            # The step may still read the row after computing the new value, so the value is copied at the end of the
            # step.
            region = Stored(Buffer(target.size, target.dtype), target.shape)
            late.append((body.store(value, region), target))
    steps = body.steps()
    for region, target in late:
        body.store(region, target)
    node = ScheduledIteration(iteration, rows, [*steps, *body.steps()])
    node.reads = {stored.buffer for stored in sources.values()}
    node.writes = [array.buffer for array in arrays.values()]
    return node


def repeated(node: ScheduledIteration, profile: DeviceProfile) -> RepeatedLoops | None:
    """Return a loop as one kernel if a single CPU work item would compute each part of a step anyway; else None."""
    if not profile.runs_items_serially or not node.body:
        return None
    parts: list[tuple[LoopKernel, LoopGrid] | RepeatedLoops] = []
    for step in node.body:
        if isinstance(step, FusedKernel) and step.grid.items == 1:
            parts.append((step.kernel, step.grid))
            continue
        nested = repeated(step, profile) if isinstance(step, ScheduledIteration) else None
        if nested is None:
            return None
        parts.append(nested)
    try:
        loops = RepeatedLoops(node.iteration.steps, node.rows, parts)
    except NotRepeatable:
        return None
    return loops if len(loops.arrays) <= MOST_BUFFERS else None
