"""All that goes into a device's queue: launches, copies, fills.

Whoever computes calls these functions, which do what their names say, at once. A *listener*, in this thread, is told
of each command, too: that is how a plan (``optdb.runtime.recording``) learns what a function does. While a function is
only *traced* (``optdb.runtime.tracing``), the listener is told, and nothing is done.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from optdb.runtime.library import cl

__all__ = [
    "Listener",
    "copy_bytes",
    "download",
    "fill",
    "launch",
    "listened",
    "listening",
    "made",
    "tracing",
    "unknown",
    "upload",
]


class Listener(Protocol):
    """What is told of commands; the parameters are those of the functions here.

    Attributes
    ----------
    tracing : bool
        Whether commands are not to be done.
    """

    tracing: bool

    def made(self, buffer: cl.Buffer, nbytes: int) -> None:
        """A buffer was made for so many bytes."""

    def launched(
        self,
        queue: cl.CommandQueue,
        kernel: cl.Kernel,
        items: Sequence[int],
        group: Sequence[int] | None,
        args: list[Any],
        arrays: Sequence[int],
    ) -> None:
        """A kernel was launched."""

    def copied(
        self,
        queue: cl.CommandQueue,
        target: cl.Buffer,
        target_offset: int,
        source: cl.Buffer,
        source_offset: int,
        nbytes: int,
    ) -> None:
        """Bytes were copied on the device."""

    def filled(self, queue: cl.CommandQueue, target: cl.Buffer, offset: int, nbytes: int, pattern: np.generic) -> None:
        """Bytes were filled with a pattern."""

    def uploaded(
        self, queue: cl.CommandQueue, target: cl.Buffer, offset: int, value: np.ndarray, constant: bool
    ) -> None:
        """Bytes came from the host."""

    def downloaded(self, nbytes: int) -> None:
        """Bytes are brought to the host."""

    def unrepeatable(self, why: str) -> None:
        """Something is about to be done that cannot be repeated without Python."""

    def queue(self, queue: cl.CommandQueue) -> cl.CommandQueue:
        """Return the queue to put a command into that is meant for `queue`."""

    def enqueued(self, event: cl.Event) -> None:
        """The command that it was told of last is in the queue."""


_state = threading.local()

#: Bytes that are copied on the host sooner than a device comes to them.
_SMALL = 1 << 16
#: PyOpenCL waits for the device when it drops the event of a copy from the host: so many are kept, for each thread.
_KEPT_EVENTS = 64


@contextmanager
def listened(listener: Listener) -> Iterator[None]:
    """Let `listener` be told of this thread's commands meanwhile."""
    outer = getattr(_state, "listener", None)
    _state.listener = listener
    try:
        yield
    finally:
        _state.listener = outer


def listening() -> Listener | None:
    """Return who is told of this thread's commands; None if nobody is."""
    return getattr(_state, "listener", None)


def tracing() -> Any:
    """Return who is told of this thread's commands in place of the device; None if they are done."""
    listener = getattr(_state, "listener", None)
    return listener if listener is not None and listener.tracing else None


def made(buffer: cl.Buffer | None, nbytes: int) -> None:
    """Tell of a new buffer for so many bytes, whose memory is its maker's own."""
    listener = getattr(_state, "listener", None)
    if listener is not None and buffer is not None:
        listener.made(buffer, nbytes)


def launch(
    queue: cl.CommandQueue,
    kernel: cl.Kernel,
    items: Sequence[int],
    group: Sequence[int] | None,
    args: list[Any],
    arrays: Sequence[int] = (),
) -> None:
    """Launch a kernel on so many work items, in groups of so many.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Where.
    kernel : pyopencl.Kernel
        Whose arguments are set to `args`, and stay so.
    items, group : sequence of int
        Numbers in each dimension; the driver chooses the group if it is None.
    args : list
        Buffers, NumPy numbers and pieces of local memory.
    arrays : sequence of int
        The places in `args` of buffers behind each of which stands where in it, in bytes, an array begins: such
        an array may move to another buffer.
    """
    listener = getattr(_state, "listener", None)
    if listener is None:
        kernel.set_args(*args)
        cl.enqueue_nd_range_kernel(queue, kernel, items, group)
        return
    listener.launched(queue, kernel, items, group, args, arrays)
    if not listener.tracing:
        kernel.set_args(*args)
        listener.enqueued(cl.enqueue_nd_range_kernel(listener.queue(queue), kernel, items, group))


def copy_bytes(
    queue: cl.CommandQueue,
    target: cl.Buffer,
    target_offset: int,
    source: cl.Buffer,
    source_offset: int,
    nbytes: int,
) -> None:
    """Copy bytes from one buffer to another one, or to another part of it."""
    listener = getattr(_state, "listener", None)
    span = {"byte_count": nbytes, "dst_offset": target_offset, "src_offset": source_offset}
    if listener is None:
        cl.enqueue_copy(queue, target, source, **span)
        return
    listener.copied(queue, target, target_offset, source, source_offset, nbytes)
    if not listener.tracing:
        listener.enqueued(cl.enqueue_copy(listener.queue(queue), target, source, **span))


def fill(queue: cl.CommandQueue, target: cl.Buffer, offset: int, nbytes: int, pattern: np.generic) -> None:
    """Fill bytes with a pattern, which fits into them a whole number of times."""
    listener = getattr(_state, "listener", None)
    if listener is None:
        cl.enqueue_fill_buffer(queue, target, pattern, offset, nbytes)
        return
    listener.filled(queue, target, offset, nbytes, pattern)
    if not listener.tracing:
        listener.enqueued(cl.enqueue_fill_buffer(listener.queue(queue), target, pattern, offset, nbytes))


def _upload(queue: cl.CommandQueue, target: cl.Buffer, offset: int, value: np.ndarray) -> cl.Event:
    if value.nbytes > _SMALL:
        return cl.enqueue_copy(queue, target, value, dst_offset=offset, is_blocking=True)
    own = np.array(value, order="C")
    event = cl.enqueue_copy(queue, target, own, dst_offset=offset, is_blocking=False)
    _on_their_way().append(event)
    return event


def _on_their_way() -> deque[Any]:
    """Return the events of this thread's latest copies from the host."""
    events = getattr(_state, "events", None)
    if events is None:
        events = _state.events = deque(maxlen=_KEPT_EVENTS)
    return events


def upload(queue: cl.CommandQueue, target: cl.Buffer, offset: int, value: np.ndarray, constant: bool = False) -> None:
    """Copy an array in C order from the host, which may change it as soon as this returns.

    A small one is copied on the host first, so that nobody waits for the device.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Where.
    target : pyopencl.Buffer
        Where to.
    offset : int
        In it, in bytes.
    value : numpy.ndarray
        What.
    constant : bool
        Whether nobody will write to that buffer again.
    """
    listener = getattr(_state, "listener", None)
    if listener is None:
        _upload(queue, target, offset, value)
        return
    listener.uploaded(queue, target, offset, value, constant)
    if not listener.tracing:
        listener.enqueued(_upload(listener.queue(queue), target, offset, value))


def download(queue: cl.CommandQueue, out: np.ndarray, source: cl.Buffer, offset: int) -> None:
    """Copy an array in C order to the host, and wait until that is done."""
    listener = getattr(_state, "listener", None)
    if listener is None:
        cl.enqueue_copy(queue, out, source, src_offset=offset, is_blocking=True)
        return
    listener.downloaded(out.nbytes)
    listener.enqueued(cl.enqueue_copy(listener.queue(queue), out, source, src_offset=offset, is_blocking=True))


def unknown(why: str) -> None:
    """Tell that something is about to be done that a listener cannot repeat."""
    listener = getattr(_state, "listener", None)
    if listener is not None:
        listener.unrepeatable(why)
