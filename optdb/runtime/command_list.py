"""What a call does on a device, as data: commands, and lists of them.

A command is a dataclass. Its operands are buffers of OpenCL, where it is bound, or :class:`Memory`, which stands for a
buffer that is not chosen yet. Recording replaces buffers by `Memory` (``recording``), buffer assignment replaces
`Memory` by buffers (``buffer_assignment``). Merging, command buffers, timing, files and memory reports are passes that
read the commands. In a list that was traced, numbers may be symbolic (``sizes``).

A bound command is enqueued by `enqueue`. A buffer that differs from call to call is given to it by `rebind`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from optdb.runtime.library import cl

__all__ = [
    "AllocateBuffer",
    "Command",
    "CommandList",
    "EnqueueCopy",
    "EnqueueDownload",
    "EnqueueFill",
    "EnqueueKernel",
    "EnqueueUpload",
    "HostCall",
    "Memory",
]


@dataclass(eq=False)
class Memory:
    """A buffer in a list of commands, before buffers are assigned.

    Parameters
    ----------
    nbytes : int
        Its size.
    context : pyopencl.Context
        Where it is.
    buffer : pyopencl.Buffer or None
        The buffer, if it exists independently of the list; None if the list's buffer assignment provides it.
    """

    nbytes: int
    context: cl.Context
    buffer: cl.Buffer | None = None


#: Looked up once: it takes a microsecond, and a plan calls it for each launch.
_launch = cl.enqueue_nd_range_kernel
#: What of a kernel's arguments is an operand.
_OPERANDS = (Memory, cl.MemoryObject)
#: Replaces an operand of a command by another one.
Replace = Callable[[Any], Any]


@dataclass(eq=False, slots=True)
class EnqueueKernel:
    """A kernel launch.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Where.
    kernel : pyopencl.Kernel
        What is launched. A bound command has a kernel object of its own, whose arguments are set.
    global_size, local_size : tuple of int
        Numbers of work items in each dimension; the driver chooses the local size if it is None.
    args : tuple
        Buffers, NumPy numbers and local memory.
    array_slots : tuple of int
        The positions in `args` of buffers that are followed by the offset, in bytes, at which an array begins: such a
        buffer may be a part of a larger one.
    is_rebindable : bool
        Whether an operand may be another buffer in the next call.
    """

    kind: ClassVar[str] = "launch"
    #: What it moves besides what its kernel does.
    moved_nbytes: ClassVar[int] = 0

    queue: cl.CommandQueue
    kernel: cl.Kernel
    global_size: tuple[int, ...]
    local_size: tuple[int, ...] | None
    args: tuple[Any, ...]
    array_slots: tuple[int, ...] = ()
    is_rebindable: bool = False

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.kernel.function_name

    def enqueue(self) -> Any:
        """Launch the kernel, whose arguments are set already."""
        return _launch(self.queue, self.kernel, self.global_size, self.local_size)

    def enqueue_on(self, queue: cl.CommandQueue) -> Any:
        """Launch the kernel on another queue."""
        return _launch(queue, self.kernel, self.global_size, self.local_size)

    def operands(self) -> Iterator[tuple[int, Any]]:
        """Yield the buffers that it uses, each with the number that `rebind` knows it by."""
        return ((slot, arg) for slot, arg in enumerate(self.args) if isinstance(arg, _OPERANDS))

    def needing_own_buffer(self) -> list[Any]:
        """Return the operands that have to begin where a buffer begins, since the kernel is told no offset."""
        return [arg for slot, arg in self.operands() if slot not in self.array_slots]

    def with_operands(self, replace: Replace) -> EnqueueKernel:
        """Return the same launch with other operands, of the same kernel object."""
        args = tuple([replace(arg) if isinstance(arg, _OPERANDS) else arg for arg in self.args])
        return EnqueueKernel(self.queue, self.kernel, self.global_size, self.local_size, args, self.array_slots)

    def bind(self, locate: Callable[[Memory], tuple[cl.Buffer, int]]) -> EnqueueKernel:
        """Return the launch of a kernel object of its own, with buffers in place of `Memory`.

        Parameters
        ----------
        locate : callable
            Returns a buffer, and the offset at which a `Memory` begins in it.
        """
        args = list(self.args)
        for slot, memory in self.operands():
            args[slot], shift = locate(memory)
            if shift:
                args[slot + 1] = np.uint64(int(args[slot + 1]) + shift)
        kernel = cl.Kernel(self.kernel.program, self.kernel.function_name)
        kernel.set_args(*args)
        return EnqueueKernel(self.queue, kernel, self.global_size, self.local_size, tuple(args), self.array_slots)

    def rebind(self, operand: int, buffer: cl.Buffer) -> None:
        """Use another buffer from now on."""
        self.kernel.set_arg(operand, buffer)
        self.args = (*self.args[:operand], buffer, *self.args[operand + 1 :])


class _TransferCommand:
    """What commands that move bytes have in common."""

    __slots__ = ()

    def enqueue(self) -> Any:
        """Do it, on the command's own queue."""
        return self.enqueue_on(self.queue)

    def needing_own_buffer(self) -> list[Any]:
        """Return nothing: what is moved begins anywhere in a buffer."""
        return []


class _Write(_TransferCommand):
    """What commands with one operand, which they write, have in common."""

    __slots__ = ()

    def operands(self) -> Iterator[tuple[int, Any]]:
        """Yield the buffer that is written, with the number that `rebind` knows it by."""
        return iter(((0, self.target),))

    def rebind(self, operand: int, buffer: cl.Buffer) -> None:
        """Use another buffer from now on."""
        self.target = buffer


@dataclass(eq=False, slots=True)
class EnqueueCopy(_TransferCommand):
    """A copy of bytes from one buffer of a device to another one, or to another part of it."""

    kind: ClassVar[str] = "copy"
    name: ClassVar[str] = "copy"

    queue: cl.CommandQueue
    target: Any
    target_offset: int
    source: Any
    source_offset: int
    nbytes: int
    is_rebindable: bool = False

    @property
    def moved_nbytes(self) -> int:
        """Bytes that are read and written."""
        return 2 * self.nbytes

    def enqueue_on(self, queue: cl.CommandQueue) -> Any:
        """Copy on another queue."""
        return cl.enqueue_copy(
            *(queue, self.target, self.source),
            byte_count=self.nbytes,
            dst_offset=self.target_offset,
            src_offset=self.source_offset,
        )

    def operands(self) -> Iterator[tuple[int, Any]]:
        """Yield the buffers that it uses, each with the number that `rebind` knows it by."""
        return iter(((0, self.target), (1, self.source)))

    def with_operands(self, replace: Replace) -> EnqueueCopy:
        """Return the same copy with other operands."""
        target, source = replace(self.target), replace(self.source)
        return EnqueueCopy(self.queue, target, self.target_offset, source, self.source_offset, self.nbytes)

    def bind(self, locate: Callable[[Memory], tuple[cl.Buffer, int]]) -> EnqueueCopy:
        """Return the copy with buffers in place of `Memory`."""
        target, target_shift = locate(self.target)
        source, source_shift = locate(self.source)
        offsets = target_shift + self.target_offset, source_shift + self.source_offset
        return EnqueueCopy(self.queue, target, offsets[0], source, offsets[1], self.nbytes)

    def rebind(self, operand: int, buffer: cl.Buffer) -> None:
        """Use another buffer from now on."""
        if operand:
            self.source = buffer
        else:
            self.target = buffer


@dataclass(eq=False, slots=True)
class EnqueueFill(_Write):
    """Bytes of a buffer are filled with a pattern, which fits into them a whole number of times."""

    kind: ClassVar[str] = "fill"
    name: ClassVar[str] = "fill"

    queue: cl.CommandQueue
    target: Any
    offset: int
    nbytes: int
    pattern: np.generic
    is_rebindable: bool = False

    @property
    def moved_nbytes(self) -> int:
        """Bytes that are written."""
        return self.nbytes

    def enqueue_on(self, queue: cl.CommandQueue) -> Any:
        """Fill on another queue."""
        return cl.enqueue_fill_buffer(queue, self.target, self.pattern, self.offset, self.nbytes)

    def with_operands(self, replace: Replace) -> EnqueueFill:
        """Return the same fill with another operand."""
        return EnqueueFill(self.queue, replace(self.target), self.offset, self.nbytes, self.pattern)

    def bind(self, locate: Callable[[Memory], tuple[cl.Buffer, int]]) -> EnqueueFill:
        """Return the fill with a buffer in place of a `Memory`."""
        target, shift = locate(self.target)
        return EnqueueFill(self.queue, target, shift + self.offset, self.nbytes, self.pattern)


@dataclass(eq=False, slots=True)
class EnqueueUpload(_Write):
    """A copy of an array in C order from the host.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Where.
    target : Memory or pyopencl.Buffer
        Where to.
    offset : int
        In it, in bytes.
    value : numpy.ndarray or DeferredArray
        What. It must not change before the copy is done.
    is_constant : bool
        Whether the target is never written again.
    is_blocking : bool
        Whether to wait for the copy.
    event : pyopencl.Event or None
        Of the last copy, which holds on to the array; to drop it is to wait for it.
    """

    kind: ClassVar[str] = "upload"
    name: ClassVar[str] = "upload"

    queue: cl.CommandQueue
    target: Any
    offset: int
    value: Any
    is_constant: bool = False
    is_blocking: bool = True
    is_rebindable: bool = False
    event: Any = None

    @property
    def moved_nbytes(self) -> int:
        """Bytes that are written."""
        return self.value.nbytes

    def enqueue_on(self, queue: cl.CommandQueue) -> Any:
        """Copy on another queue."""
        if self.value.nbytes:
            self.event = cl.enqueue_copy(
                queue, self.target, self.value, dst_offset=self.offset, is_blocking=self.is_blocking
            )
        return self.event

    def bind(self, locate: Callable[[Memory], tuple[cl.Buffer, int]]) -> EnqueueUpload:
        """Return the upload with a buffer in place of a `Memory`."""
        target, shift = locate(self.target)
        return EnqueueUpload(self.queue, target, shift + self.offset, self.value, is_blocking=self.is_blocking)

    def bind_preloaded(self, locate: Callable[[Memory], tuple[cl.Buffer, int]]) -> EnqueueCopy:
        """Return a copy of the same values from a buffer that keeps them on the device: it need not be waited for."""
        target, shift = locate(self.target)
        return EnqueueCopy(self.queue, target, shift + self.offset, self.preload(), 0, self.value.nbytes)

    def preload(self) -> cl.Buffer:
        """Return a new buffer with the values."""
        flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
        return cl.Buffer(self.target.context, flags, hostbuf=self.value)


@dataclass(eq=False, slots=True)
class EnqueueDownload(_TransferCommand):
    """A copy of an array in C order to the host, which is waited for."""

    kind: ClassVar[str] = "download"
    name: ClassVar[str] = "download"

    queue: cl.CommandQueue
    out: np.ndarray
    source: Any
    offset: int

    @property
    def moved_nbytes(self) -> int:
        """Bytes that are read."""
        return self.out.nbytes

    def enqueue_on(self, queue: cl.CommandQueue) -> Any:
        """Copy on another queue."""
        return cl.enqueue_copy(queue, self.out, self.source, src_offset=self.offset, is_blocking=True)


@dataclass(eq=False, slots=True)
class AllocateBuffer:
    """A new buffer, whose memory belongs to who asked for it."""

    kind: ClassVar[str] = "allocate"

    buffer: cl.Buffer
    nbytes: int

    def enqueue(self) -> None:
        """Do nothing: the buffer exists."""


@dataclass(eq=False, slots=True)
class HostCall:
    """Something that the host does between commands, which no list can repeat.

    Parameters
    ----------
    reason : str
        Why Python has to do it each time.
    """

    kind: ClassVar[str] = "host"

    reason: str

    def enqueue(self) -> None:
        """Do nothing: the host does it itself, right after."""


#: What a recorded list consists of.
Command = EnqueueKernel | EnqueueCopy | EnqueueFill | EnqueueUpload


class CommandList(list[Command]):
    """Commands in the order of the queue."""

    def enqueue(self) -> None:
        """Enqueue all of them; they have to be bound."""
        for command in self:
            command.enqueue()

    def memories(self) -> Iterator[Any]:
        """Yield the operands of all commands, in order."""
        return (memory for command in self for _, memory in command.operands())

    def needing_own_buffer(self) -> set[Any]:
        """Return the operands that have to begin where a buffer begins."""
        return {memory for command in self for memory in command.needing_own_buffer()}
