"""Loops of a function, compiled: the commands of a step are enqueued for each step, with rows that move on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from optdb.codegen.loops.body import Buffer
from optdb.device.schedule.loop_bodies import IterationUnit, MovingRow
from optdb.runtime.arrays import DeviceArray

if TYPE_CHECKING:
    from optdb.device.functions.steps import CompiledStep, FunctionMemory

__all__ = ["CompiledIteration"]


class CompiledIteration:
    """A loop, ready to be run."""

    def __init__(self, unit: IterationUnit, body: Sequence[CompiledStep]) -> None:
        self.unit = unit
        self._body = body
        moving = {row.buffer for row in unit.rows}
        written = {buffer for step in body for buffer in step.written}
        #: The buffers of the function that the body reads where they are.
        self._shared = list(
            dict.fromkeys(buffer for step in body for buffer in step.buffers if buffer not in moving | written)
        )

    def __str__(self) -> str:
        body = "; ".join(map(str, self._body))
        return f"{self.unit.iteration.steps} steps of a loop, each: {body}"

    @property
    def buffers(self) -> list[Buffer]:
        """The buffers that the loop reads and writes."""
        return list(dict.fromkeys([*(row.array.buffer for row in self.unit.rows), *self._shared, *self.written]))

    @property
    def written(self) -> list[Buffer]:
        """The buffers that the loop writes."""
        return self.unit.writes

    def overwritable(self, written: Buffer) -> set[Buffer]:
        """Return no buffers: a step may read any element after another one has written it."""
        return set()

    def run(self, memory: FunctionMemory) -> None:
        """Run all steps."""
        inner = type(memory)(memory.context)
        for buffer in self._shared:
            inner.bind(buffer, memory.whole(buffer))
        wholes = [memory.whole(row.array.buffer) for row in self.unit.rows]
        for step in range(self.unit.iteration.steps):
            for row, whole in zip(self.unit.rows, wholes):
                inner.bind(row.buffer, _row(row, whole, step))
            for compiled in self._body:
                compiled.run(inner)


def _row(row: MovingRow, whole: DeviceArray, step: int) -> DeviceArray:
    """Return the array of a row in a step, of one axis: kernels need to know where it begins."""
    if not row.buffer.size:
        return whole
    offset = whole.offset + row.offset(step) * whole.dtype.itemsize
    return DeviceArray(whole.queue, (row.buffer.size,), whole.dtype, data=whole.base_data, offset=offset)
