"""Pinned memory, through which some drivers copy arrays to and from a device several times faster.

The caller may change an array once it has been copied to pinned memory. For asynchronous uploads, and for arrays that
several threads copy in pieces, pinned memory is always faster; for other copies, a trial decides once per context.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

import numpy as np

from optdb.numpy_types import HostArray
from optdb.runtime.context import Context
from optdb.runtime.context_options import TransferSizes
from optdb.runtime.host_buffers import map_buffer
from optdb.runtime.library import cl

#: The maximum total size of a context's blocks, in bytes, and the maximum number of blocks of one size that are in use
#: at once. The maximum number does not apply to blocks for pieces of larger arrays. If no further block is allowed, the
#: host waits for a free block. Allocating a block takes several milliseconds.
_MAX_NBYTES, _MOST_IN_FLIGHT = 1 << 28, 4
_TRIAL_NBYTES, _TRIALS = 1 << 20, 5
#: The number of blocks that a download uses, one after another.
_DOWNLOADING = 2
#: The minimum number of bytes that a thread copies, and the maximum number of threads; more threads were not faster.
_NBYTES_PER_THREAD, _MOST_THREADS = 1 << 21, 4
#: The number of processors per copying thread; most processors remain free for threads that feed other devices.
_PROCESSORS_PER_THREAD = 4


@dataclass(eq=False)
class _Block:
    buffer: cl.Buffer  #: Keeps the memory alive.
    memory: HostArray  #: The bytes.
    event: Any = None  #: The event of the latest copy; None if there was none.
    #: Whether a download uses the block, which can last longer than the block's latest copy.
    is_downloading: bool = False

    @property
    def is_free(self) -> bool:
        """Whether the block can be reused: no download uses it, and its latest copy has completed or failed."""
        if self.is_downloading:
            return False
        return self.event is None or self.event.command_execution_status <= cl.command_execution_status.COMPLETE


class _Copiers:
    """Copies large arrays in up to `count` threads."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool = ThreadPoolExecutor(count, "optdb-copy") if count > 1 else None

    def copy(self, target: HostArray, source: HostArray) -> None:
        """Copy all elements to an array with the same shape and dtype."""
        longest = max(source.shape, default=1)
        count = min(self.count, source.nbytes // _NBYTES_PER_THREAD, longest)
        if self._pool is None or count < 2:
            np.copyto(target, source)
            return
        axis = source.shape.index(longest)
        pieces = zip(*(np.array_split(array, count, axis) for array in (target, source)), strict=True)
        copies = [self._pool.submit(np.copyto, *piece) for piece in pieces]
        try:
            for copy in copies:
                copy.result()
        finally:
            wait(copies)  # after an interrupt, the caller may reuse the target, so end all writes first


class PinnedMemory:
    """The blocks of pinned memory in a context, which any thread may use."""

    def __init__(self, queue: cl.CommandQueue, piece: int = TransferSizes.piece, is_quicker: bool = True) -> None:
        #: The maximum size of a piece, in bytes.
        self._piece = piece
        #: Whether blocking copies that are smaller than a piece are faster than the driver's own (measured as the sum
        #: of an upload and a download).
        self.is_quicker = is_quicker
        self._context = queue.context
        #: A separate queue for mapping blocks, which does not wait for commands in other queues.
        self._queue = cl.CommandQueue(queue.context, queue.device)
        self._blocks: list[_Block] = []
        self._lock = threading.Lock()
        self._copiers = _Copiers(min(_MOST_THREADS, (os.cpu_count() or 1) // _PROCESSORS_PER_THREAD))

    def is_quicker_for(self, nbytes: int) -> bool:
        """Return whether a blocking copy of this size is faster than the driver's own copy."""
        return self.is_quicker or (nbytes >= self._piece and self._copiers.count > 1)

    def upload(self, queue: cl.CommandQueue, target: cl.Buffer, offset: int, value: HostArray) -> Any:
        """Start copying an array into a buffer; return the event, or None if no block is free.

        The caller may change the array after this method returns.
        """
        with self._lock:
            event = None
            for start, piece in _pieces(value, self._piece):
                # All pieces take blocks of one size, so that later pieces can wait for blocks of earlier pieces.
                block = self._free_block(min(value.nbytes, self._piece))
                if block is None:
                    return None
                # Keep the most recently used block last.
                self._blocks.remove(block)
                self._blocks.append(block)
                content = block.memory[: piece.nbytes]
                self._copiers.copy(content.view(piece.dtype).reshape(piece.shape), piece)
                event = cl.enqueue_copy(queue, target, content, dst_offset=offset + start, is_blocking=False)
                block.event = event
            return event

    def download(self, queue: cl.CommandQueue, source: cl.Buffer, offset: int, out: HostArray) -> bool:
        """Copy from a buffer to a C-contiguous array, and wait; return False if too few blocks are free."""
        pieces = [piece for _, piece in _pieces(out, self._piece)]
        blocks: list[_Block] = []
        try:
            with self._lock:
                for _ in pieces[:_DOWNLOADING]:
                    block = self._free_block(min(out.nbytes, self._piece))
                    if block is None:
                        return False
                    block.is_downloading = True
                    blocks.append(block)
            # The lock is released first: the device may be busy for long, and other threads can upload meanwhile.
            self._download_pieces(queue, source, offset, pieces, blocks)
        finally:
            for block in blocks:
                block.is_downloading = False
        return True

    def _download_pieces(
        self, queue: cl.CommandQueue, source: cl.Buffer, offset: int, pieces: list[HostArray], blocks: list[_Block]
    ) -> None:
        """Copy consecutive pieces through alternating blocks: the driver sends one piece while threads copy another."""
        running: deque[tuple[_Block, HostArray]] = deque()

        def finish_first() -> None:
            block, piece = running.popleft()
            block.event.wait()
            content = block.memory[: piece.nbytes]
            self._copiers.copy(piece, content.view(piece.dtype).reshape(piece.shape))

        for number, piece in enumerate(pieces):
            if len(running) == len(blocks):
                finish_first()
            block = blocks[number % len(blocks)]
            content = block.memory[: piece.nbytes]
            block.event = cl.enqueue_copy(queue, content, source, src_offset=offset, is_blocking=False)
            queue.flush()
            running.append((block, piece))
            offset += piece.nbytes
        while running:
            finish_first()

    def copy(self, target: HostArray, source: HostArray) -> None:
        """Copy a host array to another host array of the same shape and dtype; several threads copy large arrays."""
        self._copiers.copy(target, source)

    def copied(self, values: HostArray) -> HostArray:
        """Return a copy of a host array; several threads copy large arrays."""
        out = np.empty_like(values)
        self._copiers.copy(out, values)
        return out

    def _free_block(self, nbytes: int) -> _Block | None:
        free = [block for block in self._blocks if block.is_free]
        fitting = [block for block in free if nbytes <= block.memory.nbytes]
        if fitting:
            return min(fitting, key=lambda block: block.memory.nbytes)
        size = 1 << (nbytes - 1).bit_length()
        while free and self._nbytes + size > _MAX_NBYTES:
            self._blocks.remove(free.pop())
        has_room = self._nbytes + size <= _MAX_NBYTES
        alike = [block for block in self._blocks if block.memory.nbytes == size and not block.is_downloading]
        are_many = size != self._piece and len(alike) >= _MOST_IN_FLIGHT
        if alike and (are_many or not has_room):
            alike[0].event.wait()
            return alike[0]
        if not has_room:
            return None
        buffer = cl.Buffer(self._context, cl.mem_flags.READ_ONLY | cl.mem_flags.ALLOC_HOST_PTR, size)
        access = cl.map_flags.READ | cl.map_flags.WRITE
        block = _Block(buffer, map_buffer(self._queue, buffer, access, 0, size))
        self._blocks.append(block)
        return block

    @property
    def _nbytes(self) -> int:
        return sum(block.memory.nbytes for block in self._blocks)


def _pieces(value: HostArray, most: int, start: int = 0) -> Iterator[tuple[int, HostArray]]:
    """Yield each part's byte offset (in C order) and the part itself, a view of at most `most` bytes of the array."""
    if value.nbytes <= most:
        yield start, value
        return
    if value.flags.c_contiguous:
        value = value.reshape(-1)
    row = value.nbytes // len(value)
    rows = most // row
    for first in range(0, len(value), max(rows, 1)):
        part = value[first : first + rows] if rows else value[first]
        yield from _pieces(part, most, start + first * row)


def pinned_memory(context: Context) -> PinnedMemory | None:
    """Return a context's pinned memory; None if its trial failed or the device shares the host's memory."""
    if __name__ not in context.kept:
        context.kept[__name__] = None if context.profile.shares_host_memory else _tried(context)
    return known_pinned_memory(context)


def known_pinned_memory(context: Context) -> PinnedMemory | None:
    """Return a context's pinned memory if its trial has succeeded, else None."""
    return context.kept.get(__name__)


def _tried(context: Context) -> PinnedMemory | None:
    """Measure whether copies through pinned memory are faster; return the memory if the copies are correct."""
    queue = context.queue
    value = np.arange(_TRIAL_NBYTES // 4, dtype=np.uint32)
    result, of_driver = np.empty_like(value), np.empty_like(value)
    try:
        pinned = PinnedMemory(queue, context.options.transfer_sizes.piece)
        buffer = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, value.nbytes)

        def through() -> None:
            pinned.upload(queue, buffer, 0, value).wait()
            pinned.download(queue, buffer, 0, result)

        def by_driver() -> None:
            cl.enqueue_copy(queue, buffer, value, is_blocking=True)
            cl.enqueue_copy(queue, of_driver, buffer, is_blocking=True)

        pinned.is_quicker = _seconds(through) < _seconds(by_driver)
    except cl.Error:  # the driver has no pinned memory, or too little of it
        return None
    return pinned if np.array_equal(result, value) else None


def _seconds(copy: Callable[[], Any]) -> float:
    copy()
    seconds = []
    for _ in range(_TRIALS):
        start = time.perf_counter()
        copy()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)
