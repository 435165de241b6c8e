"""Records a function's commands, to repeat them without Python or to export them.

A :class:`Recorder` enqueues commands and records them in *segments*, one for each step of the function, with a `Memory`
for each buffer. A :class:`Tracer` only records commands: arrays have no memory, axis lengths may be symbolic, and
uploads may have unknown values. Tracing fails at an operation that needs the values of arrays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from optdb.numpy_types import AnyDtype, HostArray
from optdb.runtime.arrays import Array, DeviceArray, lies_in_order
from optdb.runtime.build import source_of
from optdb.runtime.commands import (
    AllocateBuffer,
    CommandList,
    EnqueueDownload,
    EnqueueKernel,
    EnqueueUpload,
    HostCall,
    Memory,
    Transfer,
    allocation_number,
)
from optdb.runtime.context import Context
from optdb.runtime.deferred import DeferredArray, TableSource
from optdb.runtime.dispatch import HeldCommands, listened, listening
from optdb.runtime.library import cl
from optdb.runtime.sizes import ShapeEnv, as_int


@dataclass
class Segment:
    """The commands of one step of a function."""

    commands: CommandList = field(default_factory=CommandList)
    allocated: list[Memory] = field(default_factory=list)  #: Each `Memory` that the step allocates.
    unsupported_reason: str | None = None  #: Why the step cannot be repeated without Python; None if it can.
    #: The lookup tables uploaded by the step, each with its device array.
    tables: list[tuple[TableSource, Array]] = field(default_factory=list)


@dataclass(frozen=True)
class ArrayLayout:
    """The memory layout of an array."""

    queue: cl.CommandQueue
    memory: Memory | None  #: The array's `Memory`; None if the array has no elements.
    offset: int  #: The offset in bytes.
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: AnyDtype

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def is_whole(self) -> bool:
        """Whether the array is C-contiguous and fills its `Memory`."""
        itemsize = self.dtype.itemsize
        is_all = self.memory is not None and not self.offset and self.memory.nbytes == self.size * itemsize
        return is_all and lies_in_order(self.shape, self.strides, itemsize)

    def array(self, buffer: cl.Buffer | None, shift: int = 0) -> DeviceArray:
        """Return an array in a buffer in which the array's `Memory` starts at byte `shift`."""
        if buffer is None:
            return DeviceArray(self.queue, self.shape, self.dtype)
        return DeviceArray(
            self.queue, self.shape, self.dtype, data=buffer, offset=shift + self.offset, strides=self.strides
        )


class Recorder:
    """Records the commands of one thread and enqueues them."""

    tracing = False
    takes_bound = True

    def __init__(self) -> None:
        self._segment = Segment()
        #: Maps the id of each table computed in the current step to the table and its source.
        self._computed: dict[int, tuple[HostArray, TableSource]] = {}
        self.held: HeldCommands | None = None
        # Maps a buffer's handle to its allocation number and `Memory`. The allocation number is needed because drivers
        # reuse handles, even for buffers that another thread allocates.
        self._memories: dict[int, tuple[int, Memory]] = {}

    @contextmanager
    def segment(self) -> Iterator[Segment]:
        """Record the commands of the block into a new segment."""
        self._segment = Segment()
        self._computed = {}
        outer = listening()
        if isinstance(outer, HeldCommands):
            self.held = outer
        with listened(self):
            yield self._segment

    def layout(self, array: Array) -> ArrayLayout:
        """Return an array's layout; in a trace, its offset may be symbolic."""
        memory = self.memory(array.base_data) if array.base_data is not None and array.size else None
        return ArrayLayout(
            array.queue, memory, as_int(array.offset), tuple(array.shape), tuple(array.strides), array.dtype
        )

    def memory(self, buffer: cl.Buffer) -> Memory:
        """Return the `Memory` that represents a buffer in the recording."""
        known = self._memories.get(buffer.int_ptr)
        if known is not None and known[0] == allocation_number(buffer):
            return known[1]
        return self._keep(buffer, Memory(buffer.size, buffer.context, buffer))

    def on(self, command: Any) -> None:
        """Record a command, and enqueue it or hold it back."""
        self.write(command)
        if self.held is None:
            command.enqueue()
        else:
            self.held.on(command)

    def write(self, command: Any) -> None:
        """Record a command."""
        match command:
            case EnqueueUpload():
                self._write_upload(command)
            case AllocateBuffer():
                self.allocate(command.buffer, command.nbytes)
            case EnqueueDownload() | HostCall():
                self._segment.unsupported_reason = command.reason
            case EnqueueKernel() | Transfer():
                self._segment.commands.append(command.with_operands(self.memory))

    def on_table_computed(self, table: HostArray, source: TableSource) -> None:
        """Record the source of a computed table."""
        self._computed[id(table)] = table, source

    def on_table_uploaded(self, table: HostArray, array: Array) -> None:
        """Record the device array of a table."""
        source = self.source_of(table)
        if source is not None:
            self._segment.tables.append((source, array))

    def source_of(self, array: HostArray) -> TableSource | None:
        """Return the source of a table computed in the current step; None for other arrays."""
        _, source = self._computed.get(id(array), (None, None))
        return source

    def allocate(self, buffer: cl.Buffer, nbytes: int) -> Memory:
        """Record a new buffer and return its `Memory`."""
        memory = self._keep(buffer, Memory(nbytes, buffer.context))
        self._segment.allocated.append(memory)
        return memory

    def _keep(self, buffer: cl.Buffer, memory: Memory) -> Memory:
        self._memories[buffer.int_ptr] = allocation_number(buffer), memory
        return memory

    def _write_upload(self, command: EnqueueUpload) -> None:
        """Record an upload and its current values.

        A constant upload is not recorded: the recording keeps the target's buffer, to which no later command writes.
        """
        target = self.memory(command.target)
        if command.is_constant:
            target.buffer = command.target
            return
        # The caller may change the array after a blocking upload.
        value = np.array(command.value, order="C") if command.is_blocking else command.value
        self._segment.commands.append(EnqueueUpload(command.queue, target, command.offset, value))


@dataclass(frozen=True)
class Code:
    """A kernel: its program's source, and its name in the program."""

    source: str
    function_name: str


class Untraceable(RuntimeError):
    """Raised for an operation that cannot be traced; the message names the operation and suggests a solution."""


@dataclass(frozen=True)
class OutputSpec:
    """A result: an ArrayLayout, DeferredArray, SymInt, SymIntVector or numpy.ndarray."""

    value: Any
    dtype: AnyDtype


@dataclass
class Trace:
    """A traced function's commands, sizes and results."""

    device_kind: str
    #: The number of compute units in the example call.
    compute_units: int
    rules: ShapeEnv = field(default_factory=ShapeEnv)
    #: The shape of each argument.
    arguments: list[tuple[Any, ...]] = field(default_factory=list)
    #: Maps the `Memory` of each shared value to the value's number.
    states: dict[Memory, int] = field(default_factory=dict)
    #: Maps each `Memory` that never changes to its values.
    constants: dict[Memory, HostArray] = field(default_factory=dict)
    #: The commands, whose numbers may be symbolic and whose uploads may be deferred.
    commands: CommandList = field(default_factory=CommandList)
    outputs: list[OutputSpec] = field(default_factory=list)
    #: The dtypes that kernels use and that some devices do not support.
    flags: set[str] = field(default_factory=set)


class Tracer(Recorder):
    """Records a thread's commands in a trace instead of enqueueing them."""

    tracing = True
    takes_bound = False

    def __init__(self, trace: Trace, context: Context) -> None:
        super().__init__()
        self.trace = trace
        self._context = context
        # Keeps buffers alive, so that drivers do not reuse their handles.
        self._alive: list[Any] = []

    @contextmanager
    def following(self) -> Iterator[None]:
        """Trace the commands enqueued in the block."""
        with self.segment() as segment:
            segment.commands = self.trace.commands
            yield

    def state(self, queue: cl.CommandQueue, number: int, shape: Sequence[int], dtype: Any) -> DeviceArray:
        """Return the array of a shared value; call this method in a block of `following`."""
        array = DeviceArray(queue, tuple(shape), dtype)
        if array.base_data is not None:
            self.allocate(array.base_data, array.nbytes)
            self.trace.states[self.memory(array.base_data)] = number
        return array

    def memory(self, buffer: cl.Buffer) -> Memory:
        self._alive.append(buffer)
        return super().memory(buffer)

    def on(self, command: Any) -> None:
        """Record a command, and the source of a launched kernel; raise Untraceable if files cannot store it."""
        match command:
            case EnqueueKernel():
                source = source_of(self._context, command.kernel.program)
                if not source:
                    raise Untraceable(f"the source of the kernel {command.name} is unknown")
                self.write(replace(command, kernel=Code(source, command.name)))
            case EnqueueDownload() | HostCall():
                raise Untraceable(command.reason)
            case _:
                self.write(command)

    def allocate(self, buffer: cl.Buffer, nbytes: int) -> Memory:
        self._alive.append(buffer)
        return super().allocate(buffer, nbytes)

    def _write_upload(self, command: EnqueueUpload) -> None:
        is_known = not isinstance(command.value, DeferredArray)
        value = np.array(command.value, order="C") if is_known else command.value
        target = self.memory(command.target)
        if command.is_constant and is_known and isinstance(command.offset, int) and not command.offset:
            self.trace.constants[target] = value
            return
        self._segment.commands.append(EnqueueUpload(command.queue, target, command.offset, value))
