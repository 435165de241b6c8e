"""Which bytes the commands of a plan read and write, for passes that change their order (``dependencies``)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from optdb.codegen.kernels.persistent_launches import body_of
from optdb.runtime.arrays import root_of
from optdb.runtime.buffer_assignment import BufferAssignment
from optdb.runtime.commands import Command, EnqueueCopy, EnqueueKernel, Memory
from optdb.runtime.dependencies import ByteRange

__all__ = ["CommandAccesses"]


class CommandAccesses:
    """The bytes that bound commands use."""

    def __init__(self, buffers: BufferAssignment) -> None:
        self._buffers = buffers
        #: By the `id` of a bound command: the command as it was recorded, the bound one, and what it only reads.
        self._commands: dict[int, tuple[Command, Any, Collection[Memory]]] = {}
        self._roots: dict[int, tuple[int, int]] = {}

    def note(self, recorded: Iterable[Command], bound: Iterable[Any], read: Collection[Memory]) -> None:
        """Note the commands of a node, as they were recorded and bound, and the memories that it only reads."""
        for command, bound_command in zip(recorded, bound, strict=True):
            self._commands[id(bound_command)] = command, bound_command, read

    def __call__(self, bound: Any) -> Sequence[ByteRange]:
        """Return the bytes that a bound command uses; of a kernel's arguments, all that they may lie in."""
        if isinstance(bound, EnqueueCopy):
            ends = (bound.target, bound.target_offset, True), (bound.source, bound.source_offset, False)
            return [self._bytes(buffer, start, bound.nbytes, is_written) for buffer, start, is_written in ends]
        command, _, read = self._commands[id(bound)]
        memories = dict(command.operands())
        ranges = []
        for operand, buffer in bound.operands():
            memory = memories.get(operand)  # an upload is bound as a copy from another buffer
            is_read = memory in read or _reads_only(bound, operand)
            ranges.append(self._range(memory, buffer, not is_read))
        return ranges

    def _range(self, memory: Memory | None, buffer: Any, is_written: bool) -> ByteRange:
        buffer, shift, nbytes = (
            (buffer, 0, buffer.size) if memory is None else (*self._buffers.locate(memory), memory.nbytes)
        )
        return self._bytes(buffer, shift, nbytes, is_written)

    def _bytes(self, buffer: Any, shift: int, nbytes: int, is_written: bool) -> ByteRange:
        if buffer.int_ptr not in self._roots:
            self._roots[buffer.int_ptr] = root_of(buffer)
        root, start = self._roots[buffer.int_ptr]
        return ByteRange(root, start + shift, start + shift + nbytes, is_written)


def _reads_only(command: Any, operand: int) -> bool:
    """Tell whether a kernel does not write to one of its operands."""
    body = body_of(command) if isinstance(command, EnqueueKernel) else None
    return body is not None and body.reads_only(operand)
