"""Records what a function does on a device, so that it can be repeated without Python.

A :class:`Recorder` listens to commands (``optdb.runtime.commands``) and writes them into *segments*, one for each step
of the function. Buffers become :class:`~optdb.runtime.commands.Memory`: one that is allocated meanwhile gets its
place later (``optdb.runtime.buffer_assignment``); one that existed before stays what it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from optdb.numpy_types import AnyDtype, HostArray
from optdb.runtime.arrays import Array, DeviceArray, lies_in_order
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
    listened,
    listening,
)
from optdb.runtime.holding import HeldCommands
from optdb.runtime.library import cl
from optdb.runtime.sizes import as_int
from optdb.runtime.tables import TableSource


@dataclass
class Segment:
    """The commands of one step of a function."""

    commands: CommandList = field(default_factory=CommandList)
    allocated: list[Memory] = field(default_factory=list)  #: The memories that the step allocates.
    unsupported_reason: str | None = None  #: Why the step cannot be repeated without Python; None if it can.
    #: The lookup tables that it has put on the device, with the arrays that they are in.
    tables: list[tuple[TableSource, Array]] = field(default_factory=list)


@dataclass(frozen=True)
class ArrayLayout:
    """How an array lies in memory."""

    queue: cl.CommandQueue
    memory: Memory | None  #: Where it is; None if it has no elements.
    offset: int  #: In bytes, as strides are.
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: AnyDtype

    @property
    def size(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    @property
    def is_whole(self) -> bool:
        """Whether it lies in C order without gaps, and takes all of its memory."""
        itemsize = self.dtype.itemsize
        is_all = self.memory is not None and not self.offset and self.memory.nbytes == self.size * itemsize
        return is_all and lies_in_order(self.shape, self.strides, itemsize)

    def array(self, buffer: cl.Buffer | None, shift: int = 0) -> DeviceArray:
        """Return the array in a buffer, in which its memory begins at `shift`."""
        if buffer is None:
            return DeviceArray(self.queue, self.shape, self.dtype)
        return DeviceArray(
            self.queue, self.shape, self.dtype, data=buffer, offset=shift + self.offset, strides=self.strides
        )


class Recorder:
    """Records the commands of one thread, and enqueues them."""

    tracing = False
    takes_bound = True

    def __init__(self) -> None:
        self._segment = Segment()
        #: Tables that the present step has computed, by their ids, and what from.
        self._computed: dict[int, tuple[HostArray, TableSource]] = {}
        #: Takes the commands in place of the device; None if they are enqueued at once.
        self.held: HeldCommands | None = None
        # By the handle, with the number of the allocation: a driver uses the handle of a released buffer again, and
        # another thread may have allocated the new buffer, such as a table that a context keeps.
        self._memories: dict[int, tuple[int, Memory]] = {}

    @contextmanager
    def segment(self) -> Iterator[Segment]:
        """Record the commands of the block into a segment of their own."""
        self._segment = Segment()
        self._computed = {}
        outer = listening()
        if isinstance(outer, HeldCommands):
            self.held = outer
        with listened(self):
            yield self._segment

    def layout(self, array: Array) -> ArrayLayout:
        """Return how an array lies; in a trace, its offset may be a size."""
        memory = self.memory(array.base_data) if array.base_data is not None and array.size else None
        return ArrayLayout(
            array.queue, memory, as_int(array.offset), tuple(array.shape), tuple(array.strides), array.dtype
        )

    def memory(self, buffer: cl.Buffer) -> Memory:
        """Return the `Memory` that stands for a buffer in the recording."""
        known = self._memories.get(buffer.int_ptr)
        if known is not None and known[0] == allocation_number(buffer):
            return known[1]
        return self._keep(buffer, Memory(buffer.size, buffer.context, buffer))

    def on(self, command: Any) -> None:
        """Record a command, and enqueue it, or hold it back."""
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
        """Note what a table was computed from."""
        self._computed[id(table)] = table, source

    def on_table_uploaded(self, table: HostArray, array: Array) -> None:
        """Record where a table is on the device."""
        source = self.source_of(table)
        if source is not None:
            self._segment.tables.append((source, array))

    def source_of(self, array: HostArray) -> TableSource | None:
        """Return what a table of the present step was computed from; None for other arrays."""
        _, source = self._computed.get(id(array), (None, None))
        return source

    def allocate(self, buffer: cl.Buffer, nbytes: int) -> Memory:
        """Record a new buffer; return the `Memory` that stands for it."""
        memory = self._keep(buffer, Memory(nbytes, buffer.context))
        self._segment.allocated.append(memory)
        return memory

    def _keep(self, buffer: cl.Buffer, memory: Memory) -> Memory:
        """Map a buffer to a memory, but no later buffer with its handle."""
        self._memories[buffer.int_ptr] = allocation_number(buffer), memory
        return memory

    def _write_upload(self, command: EnqueueUpload) -> None:
        """Record an upload with its present values; keep the buffer instead, if it is never written again."""
        target = self.memory(command.target)
        if command.is_constant:
            target.buffer = command.target
            return
        # The caller may change an array as soon as a blocking copy is done.
        value = np.array(command.value, order="C") if command.is_blocking else command.value
        self._segment.commands.append(EnqueueUpload(command.queue, target, command.offset, value))
