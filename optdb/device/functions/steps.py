"""The compiled steps of a schedule, and the arrays of their buffers."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from optdb.codegen.kernels import CompiledKernel, compile_kernels
from optdb.codegen.kernels.programs import one_program
from optdb.codegen.loops.body import Buffer
from optdb.codegen.loops.kernel import LoopGrid, LoopKernel
from optdb.codegen.loops.repeated import NotRepeatable, RepeatedLoops
from optdb.codegen.operation import Kernels, Operation
from optdb.device.plans.linked import Node, ValueId
from optdb.device.schedule.schedule_nodes import MOST_BUFFERS, FusedKernel, ScheduledIteration, ScheduledOperation, Step
from optdb.device.tensors import Stored
from optdb.numpy_types import HostArray
from optdb.runtime.arrays import Array, DeviceArray, copy_bytes, empty, from_host
from optdb.runtime.context import Context
from optdb.runtime.device_profiles import DeviceProfile


class FunctionMemory:
    """The cells that hold a function's values: the arrays of bound or written buffers, and other values."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.cells: dict[ValueId, list[Any]] = {}
        self.bound: dict[Buffer, Array] = {}

    def bind(self, buffer: Buffer, array: Array) -> None:
        self.bound[buffer] = array
        self.cells.setdefault(buffer, [None])[0] = array

    def whole(self, buffer: Buffer) -> Array:
        """Return the one-dimensional array of a buffer; allocate it on first use."""
        cell = self.cells.setdefault(buffer, [None])
        if cell[0] is None:
            bound = self.bound.get(buffer)
            cell[0] = empty(self.context, (buffer.size,), buffer.dtype) if bound is None else bound
        array: Array = cell[0]
        return array

    def within(self, buffers: Iterable[Buffer]) -> FunctionMemory:
        """Return the memory for a loop's body, which shares the given buffers of this memory."""
        inner = FunctionMemory(self.context)
        for buffer in buffers:
            inner.bind(buffer, self.whole(buffer))
        return inner

    def array(self, stored: Stored) -> DeviceArray:
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


class CompiledStep:
    """A step that is ready to run, with the buffers that it reads and writes."""

    buffers: list[Buffer]
    written: list[Buffer]

    def overwritable(self, written: Buffer) -> set[Buffer]:
        """Return the buffers that may share memory with a written buffer."""
        return set()

    def run(self, memory: FunctionMemory) -> None:
        raise NotImplementedError


class CompiledFusedKernel(CompiledStep):
    """A fused kernel that is ready to launch."""

    def __init__(self, step: FusedKernel, kernels: Mapping[str, CompiledKernel]) -> None:
        self.step = step
        self.buffers = step.kernel.buffers
        self.written = list(dict.fromkeys(buffer for loop in step.loops for buffer in loop.writes))
        (self._kernel,) = kernels.values()

    def __str__(self) -> str:
        return str(self.step.kernel)

    def overwritable(self, written: Buffer) -> set[Buffer]:
        return self.step.kernel.overwritable(written)

    def run(self, memory: FunctionMemory) -> None:
        grid, kernel = self.step.grid, self.step.kernel
        arrays = [memory.whole(buffer) for buffer in kernel.buffers]
        self._kernel.call(grid.items, grid.group, max(kernel.points, 1), grid.chunk, grid.parts, *arrays)


class CompiledOperation(CompiledStep):
    """An operation that is ready to run."""

    def __init__(self, node: ScheduledOperation, operation: Operation, kernels: Kernels) -> None:
        self.node = node
        self.buffers = [x.buffer for x in (*node.inputs, *node.outputs) if isinstance(x, Stored)]
        self.written = node.writes
        self.operation = operation
        self._kernels = kernels

    def __str__(self) -> str:
        return str(self.operation)

    def run(self, memory: FunctionMemory) -> None:
        inputs = [memory.array(x) if isinstance(x, Stored) else x for x in self.node.inputs]
        outputs = [memory.array(x) for x in self.node.outputs]
        cells: list[list[Any]] = [[array] for array in outputs]
        self.operation.run(inputs, cells, self._kernels)
        for (value,), array in zip(cells, outputs, strict=True):
            if value is not array:
                _move(self.operation, value, array)


def _move(operation: Operation, value: Array, array: DeviceArray) -> None:
    if value.shape != array.shape or value.dtype != array.dtype:
        raise ValueError(
            f"{operation} computed {value.dtype}{list(value.shape)} instead of {array.dtype}{list(array.shape)}"
        )
    if not value.flags.c_contiguous:
        value = value.copy()
    copy_bytes(array, value)


class CompiledIteration(CompiledStep):
    """A loop that is ready to run; each step runs the body on the step's rows."""

    def __init__(self, node: ScheduledIteration, body: Sequence[CompiledStep]) -> None:
        self.node = node
        self._body = body
        shared = [buffer for step in body for buffer in step.buffers if buffer not in node.own_buffers]
        self.buffers = list(dict.fromkeys([*(row.array for row in node.rows), *shared, *node.writes]))
        self.written = node.writes

    def __str__(self) -> str:
        return f"{self.node.iteration.steps} steps of a loop, each: {'; '.join(map(str, self._body))}"

    def run(self, memory: FunctionMemory) -> None:
        inner = memory.within(self.buffers)
        wholes = [memory.whole(row.array) for row in self.node.rows]
        for step in range(self.node.iteration.steps):
            for row, whole in zip(self.node.rows, wholes, strict=True):
                inner.bind(row.buffer, _from(whole, row.at(step)) if row.buffer.size else whole)
            for part in self._body:
                part.run(inner)


class CompiledRepetition(CompiledStep):
    """A loop within a single kernel that is ready to launch."""

    def __init__(self, node: ScheduledIteration, loops: RepeatedLoops, kernels: Mapping[str, CompiledKernel]) -> None:
        self._loops = loops
        (self._kernel,) = kernels.values()
        taken = [buffer for buffer, _ in loops.arrays if buffer not in node.own_buffers]
        self.buffers = list(dict.fromkeys([*taken, *node.writes]))
        self.written = node.writes

    def __str__(self) -> str:
        return f"{self._loops.steps} steps of a loop in one kernel, each: {self._loops}"

    def run(self, memory: FunctionMemory) -> None:
        inner = memory.within(self.buffers)
        arrays = [_from(inner.whole(buffer), offset) for buffer, offset in self._loops.arrays]
        self._kernel.call(1, 1, self._loops.steps, *arrays)


def _from(whole: Array, first: int) -> DeviceArray:
    """Return the part of a one-dimensional array that begins at an element."""
    offset = whole.offset + first * whole.dtype.itemsize
    return DeviceArray(whole.queue, whole.shape, whole.dtype, data=whole.base_data, offset=offset)


def compiled_steps(
    steps: Sequence[Step], constants: Mapping[Buffer, HostArray], memory: FunctionMemory
) -> list[CompiledStep]:
    """Compile the steps of a schedule in one program, and upload the schedule's constants."""
    for buffer, value in constants.items():
        if buffer not in memory.bound:
            memory.bind(buffer, from_host(memory.context, value, constant=True))
    with one_program():
        return _compiled(steps, memory.context)


def _compiled(steps: Iterable[Step], context: Context) -> list[CompiledStep]:
    ready: list[CompiledStep] = []
    for step in steps:
        if isinstance(step, FusedKernel):
            ready.append(CompiledFusedKernel(step, compile_kernels([step.kernel.kernel()], context, "a fused loop")))
        elif isinstance(step, ScheduledIteration):
            loops = _repeated(step, context.profile)
            if loops is None:
                ready.append(CompiledIteration(step, _compiled(step.body, context)))
            else:
                ready.append(CompiledRepetition(step, loops, compile_kernels([loops.kernel()], context, "a loop")))
        else:
            operation = step.make(context)
            kernels = compile_kernels(operation.kernels(), context, str(operation))
            ready.append(CompiledOperation(step, operation, kernels))
    return ready


def _repeated(node: ScheduledIteration, profile: DeviceProfile) -> RepeatedLoops | None:
    """Return a loop as one kernel if a single CPU work item computes each part of a step anyway, else None."""
    if not profile.runs_items_serially or not node.body:
        return None
    parts: list[tuple[LoopKernel, LoopGrid] | RepeatedLoops] = []
    for step in node.body:
        if isinstance(step, FusedKernel) and step.grid.items == 1:
            parts.append((step.kernel, step.grid))
            continue
        nested = _repeated(step, profile) if isinstance(step, ScheduledIteration) else None
        if nested is None:
            return None
        parts.append(nested)
    try:
        loops = RepeatedLoops(node.iteration.steps, node.rows, parts)
    except NotRepeatable:
        return None
    return loops if len(loops.arrays) <= MOST_BUFFERS else None


def device_node(step: CompiledStep, memory: FunctionMemory) -> Node:
    """Return the plan node for a step on buffers of `memory`."""
    written = set(step.written)
    return Node(
        step,
        [buffer for buffer in dict.fromkeys(step.buffers) if buffer not in written],
        list(step.written),
        functools.partial(step.run, memory),
        is_repeatable=True,
        is_loop=isinstance(step, CompiledIteration),
        overwritable={buffer: frozenset(step.overwritable(buffer)) for buffer in step.written},
    )
