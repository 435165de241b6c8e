"""What a function did on a device, written down so that it can be done again without Python.

A :class:`Recorder` listens to commands (``optdb.runtime.commands``) and writes them into *parts*, one for each step of
the function. Buffers become :class:`Memory`: what was made meanwhile is known by when it is needed and how large it
is, and gets its place later (``optdb.runtime.arena``); what was there before stays what it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from optdb.runtime.arrays import Array, DeviceArray
from optdb.runtime.commands import listened
from optdb.runtime.library import cl

__all__ = ["Command", "Copy", "Fill", "Launch", "Layout", "Memory", "Part", "Recorder", "Upload"]


@dataclass(eq=False)
class Memory:
    """A buffer.

    Parameters
    ----------
    nbytes : int
        Its size.
    context : pyopencl.Context
        Where it is.
    buffer : pyopencl.Buffer or None
        The buffer, if it was there before or has constants in it; None if it was made while it was recorded.
    bare : bool
        Whether a kernel takes it without an offset, so that it has to begin where a buffer begins.
    moves : bool
        Whether it is all of a buffer, but of another one each time that the recording is repeated.
    """

    nbytes: int
    context: cl.Context
    buffer: cl.Buffer | None = None
    bare: bool = False
    moves: bool = False


@dataclass(frozen=True)
class Launch:
    """A launch of a kernel; its buffers are `Memory`, and offsets stand behind those at the places in `arrays`."""

    queue: cl.CommandQueue
    kernel: cl.Kernel
    items: tuple[int, ...]
    group: tuple[int, ...] | None
    args: tuple[Any, ...]
    arrays: tuple[int, ...]

    def memories(self) -> list[Memory]:
        """Return what it touches."""
        return [arg for arg in self.args if isinstance(arg, Memory)]


@dataclass(frozen=True)
class Copy:
    """A copy of bytes on the device."""

    queue: cl.CommandQueue
    target: Memory
    target_offset: int
    source: Memory
    source_offset: int
    nbytes: int

    def memories(self) -> list[Memory]:
        """Return what it touches."""
        return [self.target, self.source]


@dataclass(frozen=True)
class Fill:
    """Bytes filled with a pattern."""

    queue: cl.CommandQueue
    target: Memory
    offset: int
    nbytes: int
    pattern: np.generic

    def memories(self) -> list[Memory]:
        """Return what it touches."""
        return [self.target]


@dataclass(frozen=True, eq=False)
class Upload:
    """An array from the host, as it was when it was recorded."""

    queue: cl.CommandQueue
    target: Memory
    offset: int
    value: np.ndarray

    def memories(self) -> list[Memory]:
        """Return what it touches."""
        return [self.target]


Command = Launch | Copy | Fill | Upload


@dataclass
class Part:
    """The commands of one step.

    Parameters
    ----------
    commands : list
        In order.
    made : list of Memory
        What was allocated meanwhile.
    trouble : str or None
        Why the step cannot be repeated without Python; None if it can.
    """

    commands: list[Command] = field(default_factory=list)
    made: list[Memory] = field(default_factory=list)
    trouble: str | None = None


@dataclass(frozen=True)
class Layout:
    """How an array lies in memory.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Of the array.
    memory : Memory or None
        Where it is; None if it has no elements.
    offset : int
        In bytes.
    shape, strides : tuple of int
        In elements and in bytes.
    dtype : numpy.dtype
        Of the elements.
    """

    queue: cl.CommandQueue
    memory: Memory | None
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype

    @property
    def is_whole(self) -> bool:
        """Whether it lies in C order without gaps, and takes all of its memory."""
        nbytes = self.dtype.itemsize
        for length, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if length != 1 and stride != nbytes:
                return False
            nbytes *= length
        return self.memory is not None and not self.offset and self.memory.nbytes == nbytes

    def array(self, buffer: cl.Buffer | None, shift: int = 0) -> DeviceArray:
        """Return the array in a buffer, in which its memory begins at `shift`."""
        if buffer is None:
            return DeviceArray(self.queue, self.shape, self.dtype)
        return DeviceArray(
            self.queue, self.shape, self.dtype, data=buffer, offset=shift + self.offset, strides=self.strides
        )


class Recorder:
    """Listens to the commands of one thread, and writes them down."""

    tracing = False

    def __init__(self) -> None:
        self._part = Part()
        # By the handle: a buffer that has gone leaves it to a later one, which is told of when it is made.
        self._known: dict[int, Memory] = {}

    @contextmanager
    def part(self) -> Iterator[Part]:
        """Write what is done meanwhile into a part of its own."""
        self._part = Part()
        with listened(self):
            yield self._part

    def layout(self, array: Array) -> Layout:
        """Return how an array lies."""
        memory = self.memory(array.base_data) if array.base_data is not None and array.size else None
        return Layout(array.queue, memory, int(array.offset), tuple(array.shape), tuple(array.strides), array.dtype)

    def memory(self, buffer: cl.MemoryObject) -> Memory:
        """Return what a buffer is called in the recording."""
        handle = buffer.int_ptr
        known = self._known.get(handle)
        if known is None:
            known = self._known[handle] = Memory(buffer.size, _context(buffer), buffer)
        return known

    def made(self, buffer: cl.Buffer, nbytes: int) -> None:
        """Write down a new buffer."""
        memory = Memory(nbytes, _context(buffer))
        self._known[buffer.int_ptr] = memory
        self._part.made.append(memory)

    def launched(
        self,
        queue: cl.CommandQueue,
        kernel: cl.Kernel,
        items: Sequence[int],
        group: Sequence[int] | None,
        args: list[Any],
        arrays: Sequence[int],
    ) -> None:
        """Write down a launch."""
        recorded = [self.memory(arg) if isinstance(arg, cl.MemoryObject) else arg for arg in args]
        for place, arg in enumerate(recorded):
            if isinstance(arg, Memory) and place not in arrays:
                arg.bare = True
        groups = None if group is None else tuple(group)
        self._part.commands.append(Launch(queue, kernel, tuple(items), groups, tuple(recorded), tuple(arrays)))

    def copied(
        self,
        queue: cl.CommandQueue,
        target: cl.Buffer,
        target_offset: int,
        source: cl.Buffer,
        source_offset: int,
        nbytes: int,
    ) -> None:
        """Write down a copy."""
        self._part.commands.append(
            Copy(queue, self.memory(target), target_offset, self.memory(source), source_offset, nbytes)
        )

    def filled(self, queue: cl.CommandQueue, target: cl.Buffer, offset: int, nbytes: int, pattern: np.generic) -> None:
        """Write down a fill."""
        self._part.commands.append(Fill(queue, self.memory(target), offset, nbytes, pattern))

    def uploaded(
        self, queue: cl.CommandQueue, target: cl.Buffer, offset: int, value: np.ndarray, constant: bool
    ) -> None:
        """Write down an upload, with the values of now; keep the buffer instead, if nobody will write to it again."""
        if constant:
            self.memory(target).buffer = target
            return
        self._part.commands.append(Upload(queue, self.memory(target), offset, np.array(value, order="C")))

    def downloaded(self, nbytes: int) -> None:
        """Note that the present part needs Python each time: what it reads may differ."""
        self.unrepeatable("values are read by the host")

    def unrepeatable(self, why: str) -> None:
        """Note that the present part needs Python each time."""
        self._part.trouble = why

    def queue(self, queue: cl.CommandQueue) -> cl.CommandQueue:
        """Return the queue itself: what is written down is done, too."""
        return queue

    def enqueued(self, event: cl.Event) -> None:
        """Let the event go: nobody will ask when the command ran."""


def _context(buffer: cl.MemoryObject) -> cl.Context:
    return buffer.get_info(cl.mem_info.CONTEXT)
