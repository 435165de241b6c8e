"""The byte ranges that a plan's commands read and write, for passes that reorder commands (``dependencies``)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from optdb.codegen.kernels.bodies import KernelBody, bodies_of
from optdb.codegen.kernels.programs import origin
from optdb.runtime.arrays import root_of
from optdb.runtime.buffer_assignment import BufferAssignment
from optdb.runtime.commands import Command, EnqueueCopy, EnqueueKernel, Memory
from optdb.runtime.dependencies import ByteRange

#: Returns the byte ranges that a bound command reads and writes.
Accesses = Callable[[Any], Sequence[ByteRange]]


class CommandAccesses:
    """Looks up the byte ranges that bound commands read and write."""

    def __init__(self, buffers: BufferAssignment) -> None:
        self._buffers = buffers
        #: Maps the `id` of a bound command to the recorded command, the bound command, and its read-only memory.
        self._commands: dict[int, tuple[Command, Any, Collection[Memory]]] = {}
        self._roots: dict[int, tuple[int, int]] = {}

    def note(self, recorded: Iterable[Command], bound: Iterable[Any], read: Collection[Memory]) -> None:
        """Add a node's recorded and bound commands, and the memory blocks that it only reads."""
        for command, bound_command in zip(recorded, bound, strict=True):
            self._commands[id(bound_command)] = command, bound_command, read

    def __call__(self, bound: Any) -> Sequence[ByteRange]:
        """Return the byte ranges of a bound command: for each kernel argument, its whole memory block."""
        if isinstance(bound, EnqueueCopy):
            return ranges_of_copy(bound, self._roots)
        command, _, read = self._commands[id(bound)]
        memories = dict(command.operands())
        body = body_of(bound) if isinstance(bound, EnqueueKernel) else None
        ranges = []
        for operand, buffer in bound.operands():
            memory = memories.get(operand)  # None for an upload, which is bound as a copy from another buffer
            is_read = memory in read or (body is not None and body.reads_only(operand))
            shift, nbytes = 0, buffer.size
            if memory is not None:
                (buffer, shift), nbytes = self._buffers.locate(memory), memory.nbytes
            ranges.append(_range_in(self._roots, buffer, shift, nbytes, not is_read))
        return ranges


def ranges_of_copy(copy: EnqueueCopy, roots: dict[int, tuple[int, int]]) -> list[ByteRange]:
    """Return the byte ranges of a copy; `roots` caches the root buffers of sub-buffers."""
    ends = (copy.target, copy.target_offset, True), (copy.source, copy.source_offset, False)
    return [_range_in(roots, buffer, start, copy.nbytes, is_written) for buffer, start, is_written in ends]


def _range_in(roots: dict[int, tuple[int, int]], buffer: Any, shift: int, nbytes: int, is_written: bool) -> ByteRange:
    if buffer.int_ptr not in roots:
        roots[buffer.int_ptr] = root_of(buffer)
    root, start = roots[buffer.int_ptr]
    return ByteRange(root, start + shift, start + shift + nbytes, is_written)


def body_of(command: EnqueueKernel) -> KernelBody | None:
    """Return the body of the launched kernel; None if it is unknown."""
    kernel = origin(command.kernel)
    return None if kernel is None else bodies_of(kernel[0]).kernels.get(kernel[1])
