"""Recorded commands with their memory in place, ready to be done again.

:class:`Room` gives each recorded :class:`~optdb.runtime.recording.Memory` its place: values that the recorded function
made share one buffer, as far as their spans allow; what was there before stays where it is. `Room.bind` makes of a
command a function without arguments. A kernel that is launched at several places is several kernel objects, each with
its arguments set for good: to launch it again costs no more than to enqueue it.

A memory that moves is wherever `Room.move` was told last. Only what uses it is told of that: the commands that were
bound, the arrays, and who has asked to be told by `Room.when_moved`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from optdb.runtime.arena import pack, pack_in_pieces
from optdb.runtime.arrays import Array
from optdb.runtime.library import cl
from optdb.runtime.recording import Command, Copy, Fill, Launch, Layout, Memory, Upload

__all__ = ["BoundLaunch", "Room", "check_room", "needed"]

Spans = Mapping[Memory, tuple[int, int]]
Check = Callable[[cl.Context, int, Spans], None]

#: The places of buffers among the arguments of PyOpenCL's functions that copy and fill.
_TARGET, _SOURCE = 1, 2


class BoundLaunch(functools.partial):
    """A launch of a kernel object of its own.

    Attributes
    ----------
    arguments : tuple
        What that was given: buffers, NumPy numbers, local memory.
    moves : bool
        Whether one of them may be another one at the next call.
    """

    moves = False

    def __new__(cls, kernel: cl.Kernel, command: Launch, arguments: Sequence[Any]) -> BoundLaunch:
        """Make what enqueues a kernel as a command did."""
        made = super().__new__(cls, cl.enqueue_nd_range_kernel, command.queue, kernel, command.items, command.group)
        made.arguments = tuple(arguments)
        return made

    def exchange(self, place: int, buffer: cl.Buffer) -> None:
        """Give the kernel another buffer."""
        self.args[1].set_arg(place, buffer)
        self.arguments = (*self.arguments[:place], buffer, *self.arguments[place + 1 :])


class Room:
    """Memory for what a recorded function makes.

    Parameters
    ----------
    spans : mapping
        Each `Memory` that needs a place, to the first and the last step that need it.
    check : callable, optional
        Told, for each context, how many bytes are needed there and by what, before anything is allocated; raises if
        that is too much. If nothing is said, that is more than the device has.
    stays : iterable of Upload
        What is brought from the host once, to memory of its own.

    Attributes
    ----------
    nbytes : int
        How much memory there is, in bytes, in all contexts.
    separately : int
        How much there would be with a buffer for each value, in bytes.

    Raises
    ------
    MemoryError
        If a device has not that much.
    """

    def __init__(self, spans: Spans, check: Check | None = None, stays: Iterable[Upload] = ()) -> None:
        self._check = check or check_room
        self.separately = sum(memory.nbytes for memory in spans)
        self.nbytes = 0
        self._places: dict[Memory, tuple[cl.Buffer, int]] = {}
        self._places.update({upload.target: (_holding(upload), 0) for upload in stays})
        spans = {memory: span for memory, span in spans.items() if memory not in self._places}
        self._moved: dict[Memory, cl.Buffer] = {}
        self._dependants: dict[Memory, list[Callable[[cl.Buffer], Any]]] = {}
        #: Where a memory is that moves as long as nobody has said where; nothing is done there.
        self._nowhere: dict[cl.Context, cl.Buffer] = {}
        #: Places for memory that moves, for when nobody gives another one.
        self._own: dict[Memory, cl.Buffer] = {}
        for context in dict.fromkeys(memory.context for memory in spans):
            self._furnish(context, {memory: span for memory, span in spans.items() if memory.context == context})
        self._handles = {buffer.int_ptr for buffer, _ in self._places.values()}
        self._landing = [memory for memory in spans if memory.moves]

    def _furnish(self, context: cl.Context, spans: Spans) -> None:
        """Give places to what is in one context, in as few buffers as the device allows."""
        shared = [memory for memory in spans if not memory.bare]
        values = [(*spans[memory], memory.nbytes) for memory in shared]
        places, totals = pack_in_pieces(values, _largest_buffer(context))
        nbytes = sum(totals) + sum(memory.nbytes for memory in spans if memory.bare)
        self._check(context, nbytes, spans)
        arenas = [_buffer(context, total) for total in totals]
        self._places.update({memory: (arenas[piece], offset) for memory, (piece, offset) in zip(shared, places)})
        apart = [memory for memory in spans if memory.bare and not memory.moves]
        self._places.update({memory: (_buffer(context, memory.nbytes), 0) for memory in apart})
        self.nbytes += nbytes

    def place(self, memory: Memory) -> tuple[cl.Buffer, int]:
        """Return a buffer, and where in it a memory begins, in bytes."""
        if memory.moves:
            return self._moved.get(memory) or self._nowhere_in(memory.context), 0
        return (memory.buffer, 0) if memory.buffer is not None else self._places[memory]

    def has(self, array: Array) -> bool:
        """Tell whether an array lies in this memory."""
        if array.base_data is None:
            return False
        moved = (self._moved.get(memory) for memory in self._landing)
        return array.base_data.int_ptr in self._handles or any(array.base_data is buffer for buffer in moved)

    def move(self, memory: Memory, buffer: cl.Buffer | None) -> None:
        """Let a memory that moves be in a buffer, for commands that are done from now on.

        Parameters
        ----------
        memory : Memory
            With `moves` set.
        buffer : pyopencl.Buffer or None
            Where it is. None lets go of the one where it was: nothing that uses it is to be done until it moves again.
        """
        if self._moved.get(memory) is buffer:
            return
        if buffer is None:
            del self._moved[memory]
            buffer = self._nowhere_in(memory.context)
        else:
            self._moved[memory] = buffer
        for tell in self._dependants.get(memory, ()):
            tell(buffer)

    def own(self, memory: Memory) -> cl.Buffer:
        """Return a buffer of the room's own for a memory that moves, always the same.

        Raises
        ------
        MemoryError
            If the device has not that much.
        """
        if memory not in self._own:
            self._own[memory] = _buffer(memory.context, memory.nbytes)
        return self._own[memory]

    def when_moved(self, memory: Memory | None, tell: Callable[[cl.Buffer], Any]) -> None:
        """Call `tell` with the buffer whenever a memory has moved; never, if it is none that moves."""
        if memory is not None and memory.moves:
            self._dependants.setdefault(memory, []).append(tell)

    def array(self, layout: Layout) -> Any:
        """Return an array that lies as a recorded one did; it moves with its memory."""
        if layout.memory is None:
            return layout.array(None)
        array = layout.array(*self.place(layout.memory))
        self.when_moved(layout.memory, functools.partial(setattr, array, "base_data"))
        return array

    def bind(self, command: Command) -> Callable[[], Any]:
        """Return what does a command again; its attribute `moves` tells whether that uses memory that moves."""
        bound = self._launch(command) if isinstance(command, Launch) else self._transfer(command)
        bound.moves = any(memory.moves for memory in command.memories())
        return bound

    def _transfer(self, command: Copy | Fill | Upload) -> functools.partial:
        target, shift = self.place(command.target)
        if isinstance(command, Fill):
            bound = functools.partial(
                cl.enqueue_fill_buffer, command.queue, target, command.pattern, shift + command.offset, command.nbytes
            )
        elif isinstance(command, Upload):
            bound = self._upload(command, target, shift)
        else:
            bound = self._copy(command, target, shift)
            self.when_moved(command.source, functools.partial(_exchange, bound, _SOURCE))
        self.when_moved(command.target, functools.partial(_exchange, bound, _TARGET))
        return bound

    def _upload(self, command: Upload, target: cl.Buffer, shift: int) -> functools.partial:
        """Keep a copy on the device, so that whoever does the command again need not wait for it."""
        return functools.partial(
            *(cl.enqueue_copy, command.queue, target, _holding(command)),
            byte_count=command.value.nbytes,
            dst_offset=shift + command.offset,
            src_offset=0,
        )

    def _launch(self, command: Launch) -> BoundLaunch:
        kernel = cl.Kernel(command.kernel.program, command.kernel.function_name)
        args = list(command.args)
        for number, arg in enumerate(command.args):
            if not isinstance(arg, Memory):
                continue
            args[number], shift = self.place(arg)
            if shift:
                args[number + 1] = np.uint64(int(args[number + 1]) + shift)
        kernel.set_args(*args)
        bound = BoundLaunch(kernel, command, args)
        for number, arg in enumerate(command.args):
            if isinstance(arg, Memory):
                self.when_moved(arg, functools.partial(bound.exchange, number))
        return bound

    def _copy(self, command: Copy, target: cl.Buffer, shift: int) -> functools.partial:
        source, source_shift = self.place(command.source)
        return functools.partial(
            *(cl.enqueue_copy, command.queue, target, source),
            byte_count=command.nbytes,
            dst_offset=shift + command.target_offset,
            src_offset=source_shift + command.source_offset,
        )

    def _nowhere_in(self, context: cl.Context) -> cl.Buffer:
        if context not in self._nowhere:
            self._nowhere[context] = _buffer(context, 1)
        return self._nowhere[context]


def needed(spans: Spans) -> int:
    """Return how many bytes a `Room` would take."""
    shared = [(*span, memory.nbytes) for memory, span in spans.items() if not memory.bare]
    return pack(shared)[1] + sum(memory.nbytes for memory in spans if memory.bare)


def _holding(upload: Upload) -> cl.Buffer:
    """Return a buffer with what comes from the host."""
    flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
    return cl.Buffer(upload.target.context, flags, hostbuf=upload.value)


def _exchange(bound: functools.partial, place: int, buffer: cl.Buffer) -> None:
    """Let a bound command have another buffer. It stays the same object, which others may hold."""
    args = bound.args
    bound.__setstate__((bound.func, (*args[:place], buffer, *args[place + 1 :]), bound.keywords, bound.__dict__))


def _largest_buffer(context: cl.Context) -> int:
    return context.devices[0].max_mem_alloc_size


def _buffer(context: cl.Context, nbytes: int) -> cl.Buffer:
    try:
        return cl.Buffer(context, cl.mem_flags.READ_WRITE, max(nbytes, 1))
    except (cl.MemoryError, cl.LogicError) as error:
        name = context.devices[0].name.strip()
        raise MemoryError(f"no room for {nbytes:,} bytes in one piece on {name}: {error}") from error


def check_room(context: cl.Context, nbytes: int, spans: Spans) -> None:
    """Refuse what a device cannot have: some drivers promise any memory, and fail when it is used."""
    device = context.devices[0]
    if nbytes <= device.global_mem_size:
        return
    largest = sorted((memory.nbytes for memory in spans), reverse=True)[:3]
    raise MemoryError(
        f"the values of this function need {nbytes:,} bytes at once, and {device.name.strip()} has "
        f"{device.global_mem_size:,}; the largest take {', '.join(f'{size:,}' for size in largest)} bytes"
    )
