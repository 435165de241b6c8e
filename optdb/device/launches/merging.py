"""Replaces a plan's commands with fewer launches if that pays off (:class:`LaunchMerging`).

A generator, the *course*, decides which commands are merged, and when. To wait while calls continue, the generator
yields a :class:`Pause`; finally, it returns the merged commands. :class:`CommandAccesses` determines which commands may
be reordered.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from optdb.codegen.kernels.bodies import KernelBody, bodies_of
from optdb.codegen.kernels.programs import origin
from optdb.runtime.arrays import root_of
from optdb.runtime.background import in_background
from optdb.runtime.buffer_assignment import BufferAssignment
from optdb.runtime.commands import Command, CommandList, EnqueueCopy, EnqueueKernel, Memory
from optdb.runtime.dependencies import ByteRange

Result = TypeVar("Result")
#: A plan's commands in segments; each segment's commands are enqueued in order.
Segments = Sequence[CommandList]


@dataclass(frozen=True, eq=False)
class Pause:
    """A pause in the merging of launches: when it ends, and which commands are enqueued until then."""

    segments: Segments | None = None  #: The segments to enqueue from the next call on; None to leave them unchanged.
    calls: int = 0  #: Total number of calls to the plan after which merging continues.
    is_ready: Callable[[], bool] = lambda: True  #: Returns whether merging may continue after `calls` calls.
    is_watched: bool = False  #: Whether each call during the wait has to run in Python.
    call_ended: Callable[[], None] = lambda: None  #: Called whenever all commands of a call have been enqueued.


#: A generator that decides which commands are merged; returns the final segments, or None for no change.
Course = Generator[Pause, None, "Segments | None"]


class LaunchMerging:
    """Applies the decisions of a `Course` to a plan's launches; the constructor runs it up to its first pause."""

    def __init__(self, course: Course) -> None:
        self._course = course
        self._calls = 0
        self._pause: Pause | None = None
        self._advance()

    @property
    def done(self) -> bool:
        return self._pause is None

    def next(self) -> Segments | None:
        """Return the new segments for the next calls; None if the segments do not change."""
        self._calls += 1
        pause = self._pause
        if pause is None or self._calls <= pause.calls or not pause.is_ready():
            return None
        return self._advance()

    def call_ended(self) -> None:
        if self._pause is not None:
            self._pause.call_ended()

    def expect(self, times: int) -> bool:
        """Count `times` calls that may run without Python; return whether one of them must run in Python."""
        pause = self._pause
        if pause is None or not pause.is_ready():
            return False
        if pause.is_watched:
            return True
        self._calls = min(self._calls + times, pause.calls)
        return self._calls >= pause.calls

    def _advance(self) -> Segments | None:
        self._pause = None
        try:
            self._pause = next(self._course)
        except StopIteration as end:
            segments: Segments | None = end.value
            return segments
        return self._pause.segments


def in_thread(work: Callable[[], Result]) -> Generator[Pause, None, Result | None]:
    """Run `work` in a background thread while calls continue; return its result, or None if the process exits."""
    future = in_background(work, "optdb-merging")
    if future is None:
        return None
    yield Pause(is_ready=future.done)
    return future.result()


#: Returns the byte ranges that a bound command reads and writes.
Accesses = Callable[[Any], Sequence[ByteRange]]


class CommandAccesses:
    """Looks up the byte ranges that bound commands read and write."""

    def __init__(self, buffers: BufferAssignment) -> None:
        self._buffers = buffers
        #: Maps the `id` of a bound command to the recorded command, the bound command, and the memory that its node
        #: only reads.
        self._commands: dict[int, tuple[Command, Any, Collection[Memory]]] = {}
        self._roots: dict[int, tuple[int, int]] = {}

    def note(self, recorded: Iterable[Command], bound: Iterable[Any], read: Collection[Memory]) -> None:
        """Add a node's recorded and bound commands, and the memory blocks that the node only reads."""
        for command, bound_command in zip(recorded, bound, strict=True):
            self._commands[id(bound_command)] = command, bound_command, read

    def __call__(self, bound: Any) -> Sequence[ByteRange]:
        """Return the byte ranges that a bound command accesses: for each kernel argument, its whole memory block."""
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
    """Return the byte ranges that a copy accesses; `roots` caches the root buffers of sub-buffers."""
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
