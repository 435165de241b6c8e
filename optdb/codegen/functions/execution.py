"""Runs the steps of a schedule, and repeats them as recorded commands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from optdb.codegen.functions.stored import Buffer, Stored
from optdb.codegen.functions.work_units import LoopStep, OperationUnit
from optdb.codegen.kernels import CompiledKernel, compile_kernels
from optdb.codegen.kernels.sequencing import Sequencer
from optdb.codegen.operation import Kernels, Operation
from optdb.numpy_types import HostArray
from optdb.runtime.arrays import Array, DeviceArray, copy_bytes, empty, from_host
from optdb.runtime.buffer_assignment import BufferAssignment, CommandGroup, liveness
from optdb.runtime.commands import CommandList
from optdb.runtime.context import Context
from optdb.runtime.merging import Merging
from optdb.runtime.recording import Recorder, Segment

__all__ = ["DeviceSteps", "FunctionMemory", "compiled"]

Step = LoopStep | OperationUnit


class FunctionMemory:
    """The arrays of buffers on a device."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._arrays: dict[Buffer, Array] = {}
        #: The buffers whose arrays come from outside.
        self.bound: set[Buffer] = set()

    def bind(self, buffer: Buffer, array: Array) -> None:
        """Bind a buffer to an array of one axis."""
        self._arrays[buffer] = array
        self.bound.add(buffer)

    def bind_constants(self, constants: Mapping[Buffer, HostArray]) -> None:
        """Move values that never change to the device."""
        for buffer, value in constants.items():
            if buffer not in self.bound:
                self.bind(buffer, from_host(self.context, value, constant=True))

    def whole(self, buffer: Buffer) -> Array:
        """Return the array of one axis of a buffer, which is allocated if there is none."""
        if buffer not in self._arrays:
            self._arrays[buffer] = empty(self.context, (buffer.size,), buffer.dtype)
        return self._arrays[buffer]

    def array(self, stored: Stored) -> DeviceArray:
        """Return the array of a stored tensor."""
        whole = self.whole(stored.buffer)
        size = whole.dtype.itemsize
        if not stored.size:
            return DeviceArray(whole.queue, stored.shape, whole.dtype)
        return DeviceArray(
            whole.queue,
            stored.shape,
            whole.dtype,
            data=whole.base_data,
            offset=whole.offset + stored.offset * size,
            strides=tuple(step * size for step in stored.strides),
        )

    def drop(self, buffers: Iterable[Buffer]) -> None:
        """Forget the arrays of some buffers, which are computed anew before they are read."""
        for buffer in buffers:
            self._arrays.pop(buffer, None)

    @property
    def nbytes(self) -> int:
        """How many bytes all arrays take."""
        return sum(buffer.nbytes for buffer in self._arrays)


class CompiledLoop:
    """A fused kernel, ready to be launched."""

    def __init__(self, step: LoopStep, kernels: Mapping[str, CompiledKernel]) -> None:
        self.step = step
        (self._kernel,) = kernels.values()

    def __str__(self) -> str:
        return str(self.step.kernel)

    @property
    def buffers(self) -> list[Buffer]:
        """The buffers that the kernel reads and writes."""
        return self.step.kernel.buffers

    def run(self, memory: FunctionMemory) -> None:
        """Launch the kernel."""
        grid, kernel = self.step.grid, self.step.kernel
        arrays = [memory.whole(buffer) for buffer in kernel.buffers]
        self._kernel.call(grid.items, grid.group, max(kernel.points, 1), grid.chunk, grid.parts, *arrays)


class CompiledOperation:
    """An operation, ready to be run."""

    def __init__(self, unit: OperationUnit, operation: Operation, kernels: Kernels) -> None:
        self.unit = unit
        self.operation = operation
        self._kernels = kernels

    def __str__(self) -> str:
        return str(self.operation)

    @property
    def buffers(self) -> list[Buffer]:
        """The buffers that the operation reads and writes."""
        return [x.buffer for x in (*self.unit.inputs, *self.unit.outputs) if isinstance(x, Stored)]

    def run(self, memory: FunctionMemory) -> None:
        """Run the operation, and leave its outputs where they are to be."""
        inputs = [memory.array(x) if isinstance(x, Stored) else x for x in self.unit.inputs]
        outputs = [memory.array(x) for x in self.unit.outputs]
        cells: list[list[Any]] = [[array] for array in outputs]
        self.operation.run(inputs, cells, self._kernels)
        for (value,), array in zip(cells, outputs, strict=True):
            if value is not array:
                _move(self.operation, value, array)


def _move(operation: Operation, value: Array, array: DeviceArray) -> None:
    """Copy an output of an operation to where it is to be."""
    if value.shape != array.shape or value.dtype != array.dtype:
        raise ValueError(
            f"{operation} has computed {value.dtype}{list(value.shape)} where {array.dtype}{list(array.shape)} was due"
        )
    if not value.flags.c_contiguous:
        value = value.copy()
    copy_bytes(array, value)


def compiled(steps: Iterable[Step], context: Context) -> list[CompiledLoop | CompiledOperation]:
    """Return steps with their kernels compiled; within `one_program`, at its end."""
    ready: list[CompiledLoop | CompiledOperation] = []
    for step in steps:
        if isinstance(step, LoopStep):
            ready.append(CompiledLoop(step, compile_kernels([step.kernel.kernel()], context, "a fused loop")))
        else:
            operation = step.make(context)
            kernels = compile_kernels(operation.kernels(), context, str(operation))
            ready.append(CompiledOperation(step, operation, kernels))
    return ready


class DeviceSteps:
    """Compiled steps, which run once, are recorded in the second run, and are then repeated without Python.

    A step whose commands cannot be repeated runs anew each time.
    """

    def __init__(self, steps: Sequence[CompiledLoop | CompiledOperation], memory: FunctionMemory) -> None:
        self.steps = list(steps)
        #: The buffers that nothing else uses: while the steps are repeated, they share memory.
        self.local: frozenset[Buffer] = frozenset()
        self._memory = memory
        self._runs = 0
        self._repeated: list[CommandList | CompiledLoop | CompiledOperation] = []
        self._assignment: BufferAssignment | None = None
        self._merging: Merging | None = None

    @property
    def buffers(self) -> set[Buffer]:
        """All buffers that the steps use."""
        return {buffer for step in self.steps for buffer in step.buffers}

    def run(self) -> None:
        """Enqueue all steps."""
        self._runs += 1
        if self._runs == 1:
            # A function that is called once need not be recorded.
            for step in self.steps:
                step.run(self._memory)
            return
        if not self._repeated:
            self._record()
            return
        if self._merging is not None:
            self._merge(self._merging)
        for part in self._repeated:
            if isinstance(part, CommandList):
                part.enqueue()
            else:
                part.run(self._memory)

    def _merge(self, merging: Merging) -> None:
        """Time or merge small launches, if that is due before this run."""
        merged = merging.next()
        if merged is not None:
            lists = iter(merged)
            self._repeated = [
                CommandList(next(lists)) if isinstance(part, CommandList) else part for part in self._repeated
            ]
        if merging.done:
            self._merging = None

    def forget(self) -> None:
        """Forget the recorded commands, since a buffer is bound to another array."""
        self._repeated = []
        self._merging = None

    def _record(self) -> None:
        segments = self._segments()
        if self.local and any(segment.unsupported_reason is not None for segment in segments):
            # A step that runs anew needs arrays of its own.
            self.local = frozenset()
            segments = self._segments()
        self._memory.drop(self.local)
        self._assignment = BufferAssignment(liveness([CommandGroup(segment.commands) for segment in segments], ()))
        for step, segment in zip(self.steps, segments, strict=True):
            if segment.unsupported_reason is not None:
                self._repeated.append(step)
                continue
            last = self._repeated[-1] if self._repeated else None
            if not isinstance(last, CommandList):
                last = CommandList()
                self._repeated.append(last)
            last.extend(map(self._assignment.bind, segment.commands))
        lists = [part for part in self._repeated if isinstance(part, CommandList)]
        self._merging = Merging(lists, "auto", Sequencer())

    def _segments(self) -> list[Segment]:
        """Run the steps, and return their commands."""
        self._memory.drop(self.local)
        for buffer in self.buffers - self.local:
            self._memory.whole(buffer)
        recorder = Recorder()
        segments: list[Segment] = []
        for step in self.steps:
            with recorder.segment() as segment:
                step.run(self._memory)
            segments.append(segment)
        return segments


def keep_local(parts: Sequence[DeviceSteps], others: Iterable[Buffer]) -> None:
    """Tell each of several parts which of its buffers no other part uses, nor anything else."""
    taken = set(others)
    for part in parts:
        outside = {buffer for other in parts if other is not part for buffer in other.buffers}
        part.local = frozenset(part.buffers - outside - taken)
