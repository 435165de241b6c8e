"""Liveness analysis and buffer assignment for command lists.

:class:`BufferAssignment` lets `Memory` objects with disjoint live ranges share buffers, by best-fit allocation
(`pack`). A `Memory` is *external* if the caller provides its buffer in each call; :func:`bind_io` selects the external
inputs and outputs.
"""

from __future__ import annotations

import functools
import heapq
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from optdb.runtime.arrays import Array
from optdb.runtime.commands import Command, CommandList, EnqueueUpload, Memory
from optdb.runtime.device_profiles import profile_of
from optdb.runtime.host_buffers import pays_zero_copy
from optdb.runtime.library import cl
from optdb.runtime.recording import ArrayLayout

#: The alignment of values in bytes, which the widest vector types in OpenCL require.
ALIGNMENT = 128

#: The first and the last step that needs a value, and the value's size in bytes.
Span = tuple[int, int, int]


def peak(spans: Sequence[Span]) -> int:
    """Return the maximum number of bytes live at once, a lower bound for any packing."""
    changes = sorted(change for first, last, nbytes in spans for change in ((first, 1, nbytes), (last + 1, 0, -nbytes)))
    now = most = 0
    for _, _, nbytes in changes:
        now += nbytes
        most = max(most, now)
    return most


def pack(spans: Sequence[Span], limit: int | None = None) -> tuple[list[tuple[int, int]], list[int]]:
    """Assign each value a byte range in one of several pieces of memory, starting with the value that is used first.

    Each value gets the smallest gap that fits it. A piece has at most `limit` bytes, unless it holds a single, larger
    value. Return each value's piece and offset, and each piece's size in bytes.
    """
    offsets = [(0, 0)] * len(spans)
    pieces: list[_Gaps] = []
    alive: list[tuple[int, int, int, int]] = []  # a heap: last step, piece, offset, size
    for number in sorted(range(len(spans)), key=lambda i: (spans[i][0], -spans[i][2])):
        first, last, nbytes = spans[number]
        size = -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT
        while alive and alive[0][0] < first:
            _, piece, start, past_size = heapq.heappop(alive)
            pieces[piece].give(start, past_size)
        offsets[number] = _take(pieces, size, limit)
        heapq.heappush(alive, (last, *offsets[number], size))
    return offsets, [piece.total for piece in pieces]


def _take(pieces: list[_Gaps], size: int, limit: int | None) -> tuple[int, int]:
    for number, piece in enumerate(pieces):
        start = piece.take(size, limit)
        if start is not None:
            return number, start
    pieces.append(_Gaps())
    pieces[-1].take(size, None)
    return len(pieces) - 1, 0


class _Gaps:
    """The gaps (free byte ranges) in a piece of memory of `total` bytes."""

    def __init__(self) -> None:
        self.total = 0
        #: `_ends` maps the start of each gap to the gap's end, and `_starts` maps the end to the start.
        self._ends: dict[int, int] = {}
        self._starts: dict[int, int] = {}

    def take(self, size: int, limit: int | None) -> int | None:
        """Take `size` bytes from the smallest gap that fits, or else at the end.

        Return the start; return None if no gap fits and the piece would become larger than `limit`.
        """
        fitting = [(end - start, start) for start, end in self._ends.items() if end - start >= size]
        start = min(fitting)[1] if fitting else self._starts.get(self.total, self.total)
        if not fitting and limit is not None and start + size > limit:
            return None
        end = self._ends.pop(start, start)
        self._starts.pop(end, None)
        self.total = max(self.total, start + size)
        if end > start + size:
            self._add(start + size, end)
        return start

    def give(self, start: int, size: int) -> None:
        """Free a range and merge it with adjacent gaps."""
        end = start + size
        start, end = self._starts.pop(start, start), self._ends.pop(end, end)
        self._add(start, end)

    def _add(self, start: int, end: int) -> None:
        self._ends[start] = end
        self._starts[end] = start


#: A position that follows all commands.
_AFTERWARDS = 1 << 60


@dataclass(frozen=True)
class CommandGroup:
    """Consecutive commands in a command list, for example the commands of one node."""

    commands: CommandList
    #: The `Memory` objects of the group's variables, which are live during all commands of the group.
    operands: Iterable[Memory] = ()


@dataclass(frozen=True)
class Liveness:
    """The live range of each `Memory` that needs a buffer."""

    ranges: Mapping[Memory, tuple[int, int]]  #: Maps a `Memory` to the first and the last command that needs it.
    #: Each `Memory` that must start at offset 0 of a buffer, because a kernel takes no offset for it.
    own_buffer: frozenset[Memory] = frozenset()

    def nbytes(self, io: IOBinding) -> int:
        """Return the number of bytes that a buffer assignment allocates."""
        alone = {*self.own_buffer, *io.outputs.values()}
        shared = [(*live, memory.nbytes) for memory, live in self.ranges.items() if memory not in alone]
        return sum(pack(shared)[1]) + sum(memory.nbytes for memory in self.ranges if memory in alone)

    @property
    def peak_nbytes(self) -> int:
        """The maximum number of bytes live at once, a lower bound for any assignment."""
        return peak([(*live, memory.nbytes) for memory, live in self.ranges.items()])

    @property
    def nbytes_without_reuse(self) -> int:
        """The number of bytes needed if each `Memory` had its own buffer."""
        return sum(memory.nbytes for memory in self.ranges)


def liveness(
    groups: Iterable[CommandGroup],
    results: Iterable[Memory],
    provided: Collection[Memory] = (),
    persistent: Iterable[Memory] = (),
) -> Liveness:
    """Find when each `Memory` in a list is live.

    A group's operand is live during all commands of each group that uses it; any other `Memory` is live from its first
    to its last use. The `results` stay live after all commands, and a `persistent` `Memory` is live throughout each
    run. A `Memory` that is `provided` or has a buffer gets no range.
    """
    groups = [CommandGroup(group.commands, list(group.operands)) for group in groups]
    of_variables = {memory for group in groups for memory in group.operands}
    ranges: dict[Memory, tuple[int, int]] = {}

    def extend(memory: Memory, start: int, stop: int) -> None:
        if memory.buffer is None and memory not in provided:
            first, last = ranges.get(memory, (start, stop))
            ranges[memory] = (min(first, start), max(last, stop))

    for memory in persistent:
        extend(memory, 0, _AFTERWARDS)
    stop = 0
    for group in groups:
        start, stop = stop + 1, stop + 1 + len(group.commands)
        for number, command in enumerate(group.commands, start):
            for _, memory in command.operands():
                extend(memory, *((start, stop) if memory in of_variables else (number, number)))
        for memory in group.operands:
            extend(memory, start, stop)
    for memory in results:
        extend(memory, _AFTERWARDS, _AFTERWARDS)
    own_buffer = frozenset().union(*(group.commands.needing_own_buffer() for group in groups))
    return Liveness(ranges, own_buffer)


@dataclass(frozen=True)
class IOBinding:
    """The inputs and outputs that use an external `Memory`; all other inputs and outputs of the list are copied."""

    #: Maps an input to its external `Memory`; each call may use a different buffer for the `Memory`.
    inputs: Mapping[Any, Memory] = field(default_factory=dict)
    #: Maps an output to its external `Memory`; in some calls, the `Memory` uses the assignment's own buffer
    #: (`BufferAssignment.fallback`).
    outputs: Mapping[Any, Memory] = field(default_factory=dict)

    @property
    def external(self) -> frozenset[Memory]:
        """Every external `Memory`."""
        return frozenset((*self.inputs.values(), *self.outputs.values()))


#: A function of a context, a number of bytes, and the `Memory` objects that need these bytes; it raises MemoryError if
#: the bytes do not fit.
Check = Callable[[cl.Context, int, Iterable[Memory]], None]


def check_device_memory(context: cl.Context, nbytes: int, memories: Iterable[Memory]) -> None:
    """Raise MemoryError if a device has too little memory; some drivers accept any allocation and fail later."""
    device = context.devices[0]
    if nbytes <= device.global_mem_size:
        return
    largest = sorted((memory.nbytes for memory in memories), reverse=True)[:3]
    raise MemoryError(
        f"the values of this function need {nbytes:,} bytes at once, but {device.name.strip()} has "
        f"{device.global_mem_size:,}; the largest take {', '.join(f'{size:,}' for size in largest)} bytes"
    )


@dataclass(eq=False)
class _External:
    memory: Memory
    placeholder: cl.Buffer  #: The buffer that is bound between calls, and that no command uses.
    buffer: cl.Buffer | None = None  #: The buffer that the current call uses.
    dependants: list[Callable[[cl.Buffer], Any]] = field(default_factory=list)

    @functools.cached_property
    def fallback(self) -> cl.Buffer:
        """The assignment's own buffer, reused in every call."""
        return _buffer(self.memory.context, self.memory.nbytes)


class BufferAssignment:
    """The buffers for a command list; `rebind` replaces the buffer of an external `Memory`.

    Before allocating, `check` raises MemoryError if a device has too little memory. `donated` maps a `Memory` to an
    existing buffer and an offset.
    """

    def __init__(
        self,
        live: Liveness,
        check: Check = check_device_memory,
        io: IOBinding | None = None,
        donated: Mapping[Memory, tuple[cl.Buffer, int]] | None = None,
    ) -> None:
        #: The number of bytes needed if each `Memory` had its own buffer.
        self.nbytes_without_reuse = live.nbytes_without_reuse
        #: The number of bytes allocated in all contexts.
        self.nbytes = 0
        self.io = io or IOBinding()
        placeholders = {context: _buffer(context, 1) for context in {memory.context for memory in self.io.external}}
        self._external = {memory: _External(memory, placeholders[memory.context]) for memory in self.io.external}
        self._own_buffer = {*live.own_buffer, *self.io.outputs.values()}
        self._ranges: dict[Memory, tuple[cl.Buffer, int]] = {}
        donated = donated or {}
        ranges = {memory: span for memory, span in live.ranges.items() if memory not in donated}
        for context in dict.fromkeys(memory.context for memory in ranges):
            here = {memory: span for memory, span in ranges.items() if memory.context == context}
            self._allocate(context, here, check)
        self._handles = {buffer.int_ptr for buffer, _ in self._ranges.values()}
        self._ranges.update(donated)

    def _allocate(self, context: cl.Context, ranges: Mapping[Memory, tuple[int, int]], check: Check) -> None:
        """Allocate as few buffers as the device's limits allow, and place each `Memory` in one."""
        shared = [memory for memory in ranges if memory not in self._own_buffer]
        alone = [memory for memory in ranges if memory in self._own_buffer]
        values = [(*ranges[memory], memory.nbytes) for memory in shared]
        offsets, totals = pack(values, profile_of(context.devices[0]).max_allocation_bytes)
        nbytes = sum(totals) + sum(memory.nbytes for memory in alone)
        check(context, nbytes, ranges)
        arenas = [_buffer(context, total) for total in totals]
        self._ranges.update({memory: (arenas[piece], offset) for memory, (piece, offset) in zip(shared, offsets)})
        alone = [memory for memory in alone if memory not in self._external]
        self._ranges.update({memory: (_buffer(context, memory.nbytes), 0) for memory in alone})
        self.nbytes += nbytes

    def locate(self, memory: Memory) -> tuple[cl.Buffer, int]:
        """Return the buffer that holds a `Memory`, and the byte offset in that buffer."""
        if memory in self._external:
            external = self._external[memory]
            return external.buffer or external.placeholder, 0
        return (memory.buffer, 0) if memory.buffer is not None else self._ranges[memory]

    def owns(self, array: Array) -> bool:
        """Return whether an array is in one of the assignment's buffers or in the buffer of an external output."""
        if array.base_data is None:
            return False
        external = (self._external[memory].buffer for memory in self.io.outputs.values())
        return array.base_data.int_ptr in self._handles or any(array.base_data is buffer for buffer in external)

    def rebind(self, memory: Memory, buffer: cl.Buffer | None) -> None:
        """Bind an external `Memory` to a buffer for later commands; None releases the current buffer."""
        external = self._external[memory]
        if external.buffer is buffer:
            return
        external.buffer = buffer
        for tell in external.dependants:
            tell(buffer or external.placeholder)

    def fallback(self, memory: Memory) -> cl.Buffer:
        """Return the assignment's own buffer for an external output; raise MemoryError if the buffer does not fit."""
        return self._external[memory].fallback

    def array(self, layout: ArrayLayout) -> Any:
        """Return an array with a recorded layout; rebinding its `Memory` also rebinds the array."""
        if layout.memory is None:
            return layout.array(None)
        array = layout.array(*self.locate(layout.memory))
        self.when_rebound(layout.memory, functools.partial(setattr, array, "base_data"))
        return array

    def bind(self, command: Command) -> Any:
        """Return a bound command; rebinding an operand's `Memory` also rebinds the command.

        An upload becomes a copy on the device.
        """
        if isinstance(command, EnqueueUpload):
            command = command.preloaded()
        bound = command.bind(self.locate)
        for operand, memory in command.operands():
            if memory in self._external:
                bound.is_rebindable = True
                self.when_rebound(memory, functools.partial(bound.rebind, operand))
        return bound

    def when_rebound(self, memory: Memory, tell: Callable[[cl.Buffer], Any]) -> None:
        """Call `tell` with each new buffer of a `Memory`, provided that the `Memory` is external."""
        if memory in self._external:
            self._external[memory].dependants.append(tell)


def _buffer(context: cl.Context, nbytes: int) -> cl.Buffer:
    try:
        return cl.Buffer(context, cl.mem_flags.READ_WRITE, max(nbytes, 1))
    except (cl.MemoryError, cl.LogicError) as error:
        name = context.devices[0].name.strip()
        raise MemoryError(f"cannot allocate {nbytes:,} bytes in one piece on {name}: {error}") from error


#: The time that zero-copy saves: a fixed part in seconds, and a part in seconds per byte.
_SAVED_S, _SAVED_BY_BYTE_S = 3e-5, 5e-11


def bind_io(
    inputs: Mapping[Any, Memory | None],
    outputs: Mapping[Any, ArrayLayout],
    next_values: Collection[Memory | None],
    mergeable: Iterable[Command],
) -> IOBinding:
    """Decide which inputs and outputs of a recorded call are external, and which are copied.

    On a device that shares the host's memory, arguments can be read in place, and results can be written to the
    caller's memory.
    """
    merged = Counter(memory for command in mergeable for memory in {memory for _, memory in command.operands()})
    external_inputs: dict[Hashable, Memory] = {}
    for var, memory in inputs.items():
        if memory is None or not pays_zero_copy(memory.nbytes) or not _pays(memory, merged):
            continue
        if memory in external_inputs.values():
            raise ValueError(f"{var} shares the buffer of another input, but needs one of its own")
        memory.buffer = None
        external_inputs[var] = memory
    taken = {*next_values, *external_inputs.values()}
    external_outputs: dict[Hashable, Memory] = {}
    for var, layout in outputs.items():
        memory = layout.memory
        if memory is not None and may_be_external(layout) and memory not in taken and _pays(memory, merged):
            external_outputs[var] = memory
            taken.add(memory)
    return IOBinding(external_inputs, external_outputs)


def may_be_external(layout: ArrayLayout) -> bool:
    """Return whether a value is large and fills a whole `Memory` that the function allocates."""
    memory = layout.memory
    return memory is not None and memory.buffer is None and layout.is_whole and pays_zero_copy(memory.nbytes)


def _pays(memory: Memory, merged: Counter[Memory]) -> bool:
    """Return whether making a `Memory` zero-copy saves more time than merging the commands that use it."""
    launch_s = profile_of(memory.context.devices[0]).quirks.launch_s
    return merged[memory] * launch_s < _SAVED_S + memory.nbytes * _SAVED_BY_BYTE_S
