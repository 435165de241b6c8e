"""The compiled steps of a schedule, and the arrays of the buffers that they read and write."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from optdb.codegen.kernels import CompiledKernel, compile_kernels
from optdb.codegen.loops.body import Buffer
from optdb.codegen.loops.repeated import RepeatedLoops
from optdb.codegen.operation import Kernels, Operation
from optdb.device.plans.graph import Node, ValueId
from optdb.device.schedule.loop_bodies import ScheduledIteration, repeated
from optdb.device.schedule.schedule_nodes import FusedKernel, ScheduledOperation
from optdb.device.schedule.stored import Stored
from optdb.numpy_types import HostArray
from optdb.runtime.arrays import Array, DeviceArray, copy_bytes, empty, from_host
from optdb.runtime.context import Context

__all__ = ["CompiledStep", "FunctionMemory", "compiled", "device_node"]


class FunctionMemory:
    """A function's values in one-element cells: the device arrays of its buffers, and other values.

    A bound buffer keeps its array until it is bound to another array. The cell of any other buffer stays empty until a
    step writes the buffer, or a plan stores its own array there.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.cells: dict[ValueId, list[Any]] = {}
        #: The buffers that are bound to arrays from outside the function.
        self.bound: dict[Buffer, Array] = {}

    def bind(self, buffer: Buffer, array: Array) -> None:
        """Bind a buffer to a one-dimensional array."""
        self.bound[buffer] = array
        self.cells.setdefault(buffer, [None])[0] = array

    def bind_constants(self, constants: Mapping[Buffer, HostArray]) -> None:
        """Upload constants to the device."""
        for buffer, value in constants.items():
            if buffer not in self.bound:
                self.bind(buffer, from_host(self.context, value, constant=True))

    def whole(self, buffer: Buffer) -> Array:
        """Return the one-dimensional array of a buffer; allocate it if there is none."""
        cell = self.cells.setdefault(buffer, [None])
        if cell[0] is None:
            bound = self.bound.get(buffer)
            cell[0] = empty(self.context, (buffer.size,), buffer.dtype) if bound is None else bound
        array: Array = cell[0]
        return array

    def within(self, buffers: Iterable[Buffer]) -> FunctionMemory:
        """Return the memory for a loop's body; it shares some of this memory's buffers."""
        inner = FunctionMemory(self.context)
        for buffer in buffers:
            inner.bind(buffer, self.whole(buffer))
        return inner

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


class CompiledFusedKernel:
    """A fused kernel that is ready to launch."""

    def __init__(self, step: FusedKernel, kernels: Mapping[str, CompiledKernel]) -> None:
        self.step = step
        (self._kernel,) = kernels.values()

    def __str__(self) -> str:
        return str(self.step.kernel)

    @property
    def buffers(self) -> list[Buffer]:
        """The buffers that the kernel reads and writes."""
        return self.step.kernel.buffers

    @property
    def written(self) -> list[Buffer]:
        """The buffers that the kernel writes."""
        return list(dict.fromkeys(buffer for loop in self.step.loops for buffer in loop.writes))

    def overwritable(self, written: Buffer) -> set[Buffer]:
        """Return the buffers that may share memory with a buffer that the kernel writes."""
        return self.step.kernel.overwritable(written)

    def run(self, memory: FunctionMemory) -> None:
        """Launch the kernel."""
        grid, kernel = self.step.grid, self.step.kernel
        arrays = [memory.whole(buffer) for buffer in kernel.buffers]
        self._kernel.call(grid.items, grid.group, max(kernel.points, 1), grid.chunk, grid.parts, *arrays)


class _NoAliasStep:
    """Base class of steps whose outputs must not alias inputs, since a step may read elements after writing others."""

    node: ScheduledOperation | ScheduledIteration

    @property
    def written(self) -> list[Buffer]:
        """The buffers that the step writes."""
        return self.node.writes

    def overwritable(self, written: Buffer) -> set[Buffer]:
        """Return no buffers, since the step must not overwrite a buffer that it reads."""
        return set()


class CompiledOperation(_NoAliasStep):
    """An operation that is ready to run."""

    def __init__(self, node: ScheduledOperation, operation: Operation, kernels: Kernels) -> None:
        self.node: ScheduledOperation = node
        self.operation = operation
        self._kernels = kernels

    def __str__(self) -> str:
        return str(self.operation)

    @property
    def buffers(self) -> list[Buffer]:
        """The buffers that the operation reads and writes."""
        return [x.buffer for x in (*self.node.inputs, *self.node.outputs) if isinstance(x, Stored)]

    def run(self, memory: FunctionMemory) -> None:
        """Run the operation, and store its outputs in their arrays."""
        inputs = [memory.array(x) if isinstance(x, Stored) else x for x in self.node.inputs]
        outputs = [memory.array(x) for x in self.node.outputs]
        cells: list[list[Any]] = [[array] for array in outputs]
        self.operation.run(inputs, cells, self._kernels)
        for (value,), array in zip(cells, outputs, strict=True):
            if value is not array:
                _move(self.operation, value, array)


def _move(operation: Operation, value: Array, array: DeviceArray) -> None:
    """Copy an output of an operation to its array."""
    if value.shape != array.shape or value.dtype != array.dtype:
        raise ValueError(
            f"{operation} computed {value.dtype}{list(value.shape)} instead of {array.dtype}{list(array.shape)}"
        )
    if not value.flags.c_contiguous:
        value = value.copy()
    copy_bytes(array, value)


class CompiledIteration(_NoAliasStep):
    """A loop that is ready to run: each step runs the body on that step's rows."""

    def __init__(self, node: ScheduledIteration, body: Sequence[CompiledStep]) -> None:
        self.node: ScheduledIteration = node
        self._body = body
        shared = [buffer for step in body for buffer in step.buffers if buffer not in node.own_buffers]
        #: The buffers that the loop reads and writes.
        self.buffers: list[Buffer] = list(dict.fromkeys([*(row.array for row in node.rows), *shared, *node.writes]))

    def __str__(self) -> str:
        return f"{self.node.iteration.steps} steps of a loop, each: {'; '.join(map(str, self._body))}"

    def run(self, memory: FunctionMemory) -> None:
        """Run all steps."""
        inner = memory.within(self.buffers)
        wholes = [memory.whole(row.array) for row in self.node.rows]
        for step in range(self.node.iteration.steps):
            for row, whole in zip(self.node.rows, wholes, strict=True):
                inner.bind(row.buffer, _from(whole, row.at(step)) if row.buffer.size else whole)
            for part in self._body:
                part.run(inner)


class CompiledRepetition(_NoAliasStep):
    """A loop within a single kernel that is ready to launch."""

    def __init__(self, node: ScheduledIteration, loops: RepeatedLoops, kernels: Mapping[str, CompiledKernel]) -> None:
        self.node: ScheduledIteration = node
        self._loops = loops
        (self._kernel,) = kernels.values()
        taken = [buffer for buffer, _ in loops.arrays if buffer not in node.own_buffers]
        #: The buffers that the loop reads and writes.
        self.buffers: list[Buffer] = list(dict.fromkeys([*taken, *node.writes]))

    def __str__(self) -> str:
        return f"{self._loops.steps} steps of a loop in one kernel, each: {self._loops}"

    def run(self, memory: FunctionMemory) -> None:
        """Launch the kernel."""
        inner = memory.within(self.buffers)
        arrays = [_from(inner.whole(buffer), offset) for buffer, offset in self._loops.arrays]
        self._kernel.call(1, 1, self._loops.steps, *arrays)


def _from(whole: Array, first: int) -> DeviceArray:
    """Return the part of a one-dimensional array that begins at an element; kernels take the part's offset."""
    offset = whole.offset + first * whole.dtype.itemsize
    return DeviceArray(whole.queue, whole.shape, whole.dtype, data=whole.base_data, offset=offset)


CompiledStep = CompiledFusedKernel | CompiledOperation | CompiledIteration | CompiledRepetition


def compiled(
    steps: Iterable[FusedKernel | ScheduledOperation | ScheduledIteration], context: Context
) -> list[CompiledStep]:
    """Return the steps with their kernels; a `one_program` block compiles the kernels when it exits."""
    ready: list[CompiledStep] = []
    for step in steps:
        if isinstance(step, FusedKernel):
            ready.append(CompiledFusedKernel(step, compile_kernels([step.kernel.kernel()], context, "a fused loop")))
        elif isinstance(step, ScheduledIteration):
            ready.append(_compiled_iteration(step, context))
        else:
            operation = step.make(context)
            kernels = compile_kernels(operation.kernels(), context, str(operation))
            ready.append(CompiledOperation(step, operation, kernels))
    return ready


def _compiled_iteration(node: ScheduledIteration, context: Context) -> CompiledStep:
    loops = repeated(node, context.profile)
    if loops is None:
        return CompiledIteration(node, compiled(node.body, context))
    return CompiledRepetition(node, loops, compile_kernels([loops.kernel()], context, "a loop"))


def device_node(step: CompiledStep, memory: FunctionMemory) -> Node:
    """Return the plan node for a step that reads and writes buffers of `memory`."""
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
