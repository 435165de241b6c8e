"""The compiled steps of a schedule, and the arrays of their buffers."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from optdb.codegen.kernels import CompiledKernel, compile_kernels
from optdb.codegen.kernels.programs import one_program
from optdb.codegen.loops.body import Buffer
from optdb.codegen.loops.code import LoopCode
from optdb.codegen.loops.grids import LoopGrid
from optdb.codegen.loops.kernel import LoopKernel
from optdb.codegen.loops.repeated import MovingRow, NotRepeatable, RepeatedLoops
from optdb.codegen.loops.sizes import packed
from optdb.codegen.loops.targets import ColumnSum
from optdb.codegen.operation import Kernels, Operation
from optdb.device.functions.shared_values import PairedBuffer
from optdb.device.plans.linked import Node, ValueId
from optdb.device.schedule.schedule_nodes import MOST_BUFFERS, FusedKernel, ScheduledIteration, ScheduledOperation, Step
from optdb.device.tensors import Stored
from optdb.numpy_types import HostArray
from optdb.runtime.arrays import Array, DeviceArray, copy_bytes, empty, from_host
from optdb.runtime.context import Context
from optdb.runtime.device_profiles import DeviceProfile
from optdb.runtime.sizes import SymInt


class FunctionMemory:
    """The cells (one-element lists) of a function's values: arrays of bound or written buffers, and other values.

    `value_of`, if it is given, returns the value of a symbolic length; the memory's arrays then have these lengths.
    """

    def __init__(self, context: Context, value_of: Callable[[SymInt], int] | None = None) -> None:
        self.context = context
        self._value_of = value_of
        self.cells: dict[ValueId, list[Any]] = {}
        self.bound: dict[Buffer, Array] = {}
        #: The bound buffers that only the function's own steps use.
        self.internal: set[Buffer] = set()

    def number(self, number: Any) -> Any:
        """Return the value of a number that may be symbolic; the number itself if the memory has symbolic lengths."""
        if self._value_of is None or not isinstance(number, SymInt):
            return number
        return self._value_of(number)

    def numbers(self, numbers: Iterable[Any]) -> list[Any]:
        return list(map(self.number, numbers))

    def bind(self, buffer: Buffer, array: Array) -> None:
        self.bound[buffer] = array
        self.cells.setdefault(buffer, [None])[0] = array

    def place(self, buffer: Buffer, array: Array, offset: int) -> None:
        """Place an internal buffer in an array of bytes."""
        self.bind(
            buffer,
            DeviceArray(array.queue, (buffer.size,), np.dtype(buffer.dtype), data=array.base_data, offset=offset),
        )
        self.internal.add(buffer)

    def whole(self, buffer: Buffer) -> Array:
        """Return the one-dimensional array of a buffer; allocate it on first use."""
        cell = self.cells.setdefault(buffer, [None])
        if cell[0] is None:
            bound = self.bound.get(buffer)
            cell[0] = empty(self.context, (self.number(buffer.size),), buffer.dtype) if bound is None else bound
        array: Array = cell[0]
        return array

    def within(self, buffers: Iterable[Buffer]) -> FunctionMemory:
        """Return a new memory for a loop's body; it shares the given buffers with this memory."""
        inner = FunctionMemory(self.context, self._value_of)
        for buffer in buffers:
            inner.bind(buffer, self.whole(buffer))
        return inner

    def array(self, stored: Stored) -> DeviceArray:
        whole = self.whole(stored.buffer)
        size, shape = whole.dtype.itemsize, tuple(self.numbers(stored.shape))
        if not self.number(stored.size):
            return DeviceArray(whole.queue, shape, whole.dtype)
        return DeviceArray(
            whole.queue,
            shape,
            whole.dtype,
            data=whole.base_data,
            offset=whole.offset + self.number(stored.offset) * size,
            strides=tuple(self.number(step) * size for step in stored.strides),
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

    def __init__(self, step: FusedKernel, context: Context) -> None:
        self.step = step
        self._context = context
        code = LoopCode(step.kernel)
        self._kernel = compile_kernels([code.kernel()], context, "a fused loop")["loop"]
        self._numbers = code.numbers(step.grid)
        self._items = step.kernel.items(step.grid)
        self.buffers = code.buffers
        self.written = step.writes
        if step.kernel.in_quads and any(isinstance(number, SymInt) for number in self._numbers):
            # After the schedule, nothing may add symbolic numbers.
            _ = self._for_any_offsets

    def __str__(self) -> str:
        return str(self.step.kernel)

    def overwritable(self, written: Buffer) -> set[Buffer]:
        return self.step.kernel.overwritable(written)

    def run(self, memory: FunctionMemory) -> None:
        arrays = [memory.whole(buffer) for buffer in self.buffers]
        if self.step.kernel.fits(arrays):
            numbers = packed(memory.numbers(self._numbers))
            self._kernel.call(memory.number(self._items), self.step.grid.group, *numbers, *arrays)
        else:
            self._for_any_offsets.run(memory)

    @functools.cached_property
    def _for_any_offsets(self) -> CompiledFusedKernel:
        kernel = replace(self.step.kernel, takes_quads=False)
        return CompiledFusedKernel(replace(self.step, kernel=kernel), self._context)


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

    def overwritable(self, written: Buffer) -> set[Buffer]:
        return self.node.overwritable(written)

    def run(self, memory: FunctionMemory) -> None:
        inputs = [memory.array(x) if isinstance(x, Stored) else memory.number(x) for x in self.node.inputs]
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


class CompiledLoops(CompiledStep):
    """A kernel that is ready to launch; its only work item runs fused kernels and loops in order."""

    def __init__(
        self,
        parts: Sequence[FusedKernel | ScheduledIteration],
        loops: RepeatedLoops,
        kernels: Mapping[str, CompiledKernel],
        arena: Arena | None,
    ) -> None:
        self._parts = parts
        self._loops = loops
        (self._kernel,) = kernels.values()
        self._arena = [arena.array] if arena is not None and loops.uses_arena else []
        own = {buffer for part in parts if isinstance(part, ScheduledIteration) for buffer in part.own_buffers}
        self.written = list(dict.fromkeys(buffer for part in parts for buffer in part.writes))
        self.buffers = list(dict.fromkeys([*(x for x in loops.buffers if x not in own), *self.written]))

    def __str__(self) -> str:
        return str(self._loops)

    def overwritable(self, written: Buffer) -> set[Buffer]:
        """Return the buffers that no part reads after `written` is written; parts run one after another."""
        numbers = [number for number, part in enumerate(self._parts) if written in part.writes]
        writer = self._parts[numbers[0]]
        if len(numbers) > 1 or not isinstance(writer, FusedKernel):
            return set()
        found = {buffer for part in self._parts[: numbers[0]] for buffer in buffers_read(part)} - buffers_read(writer)
        found |= writer.kernel.overwritable(written)
        later = {buffer for part in self._parts[numbers[0] + 1 :] for buffer in buffers_read(part)}
        return found - later - set(self.written)

    def run(self, memory: FunctionMemory) -> None:
        inner = memory.within(self.buffers)
        arrays = [_from(inner.whole(buffer), memory.number(offset)) for buffer, offset in self._loops.arrays]
        numbers = packed(memory.numbers(self._loops.numbers))
        self._kernel.call(1, 1, *numbers, *self._arena, *arrays)


def buffers_read(step: Step) -> set[Buffer]:
    """Return the buffers that a step reads, other than those that only a loop's body uses."""
    if isinstance(step, FusedKernel):
        matrices = (target.matrix for target in step.kernel.targets if isinstance(target, ColumnSum))
        return {*step.kernel.body.buffers_read, *matrices}
    if isinstance(step, ScheduledOperation):
        return step.reads
    inner = {buffer for part in step.body for buffer in buffers_read(part)}
    return {row.array for row in step.rows} | (inner - step.own_buffers)


def _from(whole: Array, first: int) -> DeviceArray:
    """Return an array that begins at element `first` of a one-dimensional array."""
    offset = whole.offset + first * whole.dtype.itemsize
    return DeviceArray(whole.queue, whole.shape, whole.dtype, data=whole.base_data, offset=offset)


#: A loop that one CPU work item computes, with its grid; or a repetition of such loops.
Part = tuple[LoopKernel, LoopGrid] | RepeatedLoops
#: The maximum size in bytes of a constant in an arena.
_MOST_BYTES_OF_CONSTANT = 1 << 14
_ALIGNMENT = 128


class Arena:
    """One array for a function's small constants and intermediate values, so that its kernels take few arguments.

    In PoCL, each argument of a kernel takes 0.15 microseconds in each launch.
    """

    def __init__(self, memory: FunctionMemory, values: Mapping[Buffer, HostArray | None]) -> None:
        #: The offset of each buffer in bytes; None for buffers in earlier arenas.
        self.offsets: dict[Buffer, int | None] = dict.fromkeys(memory.internal)
        offsets: dict[Buffer, int] = {}
        nbytes = 0
        for buffer in values:
            offsets[buffer] = nbytes
            nbytes += -(-buffer.nbytes // _ALIGNMENT) * _ALIGNMENT
        paired = PairedBuffer(memory.context, (nbytes,), "uint8")
        self.array = paired.array
        for buffer, value in values.items():
            memory.place(buffer, self.array, offsets[buffer])
            if value is not None:
                paired.host[offsets[buffer] :][: buffer.nbytes] = np.ascontiguousarray(value).view("uint8")
        self.offsets |= offsets


def compiled_steps(
    steps: Sequence[Step],
    constants: Mapping[Buffer, HostArray],
    memory: FunctionMemory,
    takes_arena: bool = False,
    apart: Collection[Buffer] = (),
) -> list[CompiledStep]:
    """Compile the steps of a schedule into one program, and upload the schedule's constants.

    If `takes_arena` is set, kernels use an `Arena` for all buffers except those in `apart`. An arena requires that all
    arrays that are already bound begin at offset 0 of a buffer, except for arrays in an arena.
    """
    parts = [(step, _part(step, memory.context.profile)) for step in steps]
    loops: list[Any] = [step for step, part in parts if part is not None]
    arena = _arena(loops, constants, memory, apart) if loops and takes_arena else None
    for buffer, value in constants.items():
        if buffer not in memory.bound:
            memory.bind(buffer, from_host(memory.context, value, constant=True))
    with one_program():
        return _compiled(parts, memory.context, arena)


def _arena(
    loops: Iterable[FusedKernel | ScheduledIteration],
    constants: Mapping[Buffer, HostArray],
    memory: FunctionMemory,
    apart: Collection[Buffer],
) -> Arena:
    """Return an arena with all small constants, and with the buffers that loops write for each other."""
    values: dict[Buffer, HostArray | None] = {
        buffer: value for buffer, value in constants.items() if buffer.nbytes <= _MOST_BYTES_OF_CONSTANT
    }
    for loop in loops:
        values.update(dict.fromkeys(loop.writes))
        if isinstance(loop, ScheduledIteration):
            values.update(dict.fromkeys(loop.own_buffers - {row.buffer for row in loop.rows}))
    outside = {*memory.bound, *apart}
    return Arena(memory, {buffer: value for buffer, value in values.items() if buffer not in outside})


def _compiled(
    parts: Iterable[tuple[Step, Part | None]], context: Context, arena: Arena | None = None
) -> list[CompiledStep]:
    """Compile steps; to save launches, consecutive loops that one CPU work item computes become one kernel."""
    ready: list[CompiledStep] = []
    for has_parts, group in itertools.groupby(parts, key=lambda pair: pair[1] is not None):
        run = list(group)
        ready += _sequence(run, context, arena) if has_parts else [_compiled_alone(step, context) for step, _ in run]
    return ready


def _compiled_alone(step: Step, context: Context) -> CompiledStep:
    if isinstance(step, FusedKernel):
        return CompiledFusedKernel(step, context)
    if isinstance(step, ScheduledIteration):
        body = [(inner, _part(inner, context.profile)) for inner in step.body]
        return CompiledIteration(step, _compiled(body, context))
    operation = step.make(context)
    return CompiledOperation(step, operation, compile_kernels(operation.kernels(), context, str(operation)))


def _part(step: Step, profile: DeviceProfile) -> Part | None:
    """Return a step as a part of a kernel if a single CPU work item computes it anyway, else None."""
    if not profile.runs_items_serially:
        return None
    if isinstance(step, FusedKernel):
        return (step.kernel, step.grid) if step.grid.items == 1 else None
    if not isinstance(step, ScheduledIteration) or not step.body:
        return None
    parts = [part for inner in step.body if (part := _part(inner, profile)) is not None]
    return _repeated(step.iteration.steps, step.rows, parts) if len(parts) == len(step.body) else None


def _repeated(
    steps: int, rows: Sequence[MovingRow], parts: Sequence[Part], arena: Arena | None = None
) -> RepeatedLoops | None:
    try:
        loops = RepeatedLoops(steps, rows, parts, None if arena is None else arena.offsets)
    except NotRepeatable:
        return None
    return loops if len(loops.arrays) <= MOST_BUFFERS else None


def _sequence(run: Sequence[tuple[Any, Any]], context: Context, arena: Arena | None) -> list[CompiledStep]:
    """Compile steps to one kernel, or to several kernels if one kernel would have too many arguments."""
    steps, parts = zip(*run, strict=True)
    if len(run) == 1 and arena is None:
        loops = parts[0] if isinstance(parts[0], RepeatedLoops) else None
    else:
        loops = _repeated(1, (), parts, arena)
    if loops is not None:
        kernels = compile_kernels([loops.kernel()], context, "a sequence of loops")
        return [CompiledLoops(steps, loops, kernels, arena)]
    if len(run) == 1:
        return [_compiled_alone(steps[0], context)]
    half = len(run) // 2
    return [*_sequence(run[:half], context, arena), *_sequence(run[half:], context, arena)]


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
