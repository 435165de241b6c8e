"""Functions that put commands into a device's queue: launches, copies, fills.

Ops call these functions, which do at once what their names say. Where a *listener* is set for the thread, each command
goes to its method `on` in place of the queue, as one of the dataclasses of ``command_list``: a recorder writes it down
and enqueues it (``recording``), a timer enqueues it on a queue of its own (``timing``), and a tracer writes it down
only (``tracing``).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from optdb.runtime.command_list import (
    AllocateBuffer,
    EnqueueCopy,
    EnqueueDownload,
    EnqueueFill,
    EnqueueKernel,
    EnqueueUpload,
    HostCall,
)
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
    """What takes a thread's commands in place of the device.

    Attributes
    ----------
    tracing : bool
        Whether commands are never enqueued: arrays have no memory then, and numbers may be symbolic.
    """

    tracing: bool

    def on(self, command: Any) -> None:
        """Take a command, and enqueue it if it is to be done; a kernel's arguments are set.

        Parameters
        ----------
        command : Command, EnqueueDownload, AllocateBuffer or HostCall
            What is to be done, with buffers as operands.
        """


_state = threading.local()

#: Arrays of at most so many bytes are copied on the host, since that is quicker than to wait for the device.
_SMALL_NBYTES = 1 << 16
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
    """Report a new buffer of `nbytes` bytes, whose memory is its maker's own."""
    listener = getattr(_state, "listener", None)
    if listener is not None and buffer is not None:
        listener.on(AllocateBuffer(buffer, nbytes))


def launch(
    queue: cl.CommandQueue,
    kernel: cl.Kernel,
    items: Sequence[int],
    group: Sequence[int] | None,
    args: list[Any],
    arrays: Sequence[int] = (),
) -> None:
    """Launch a kernel.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Where.
    kernel : pyopencl.Kernel
        Whose arguments are set to `args`, and stay so.
    items, group : sequence of int
        The global and the local size; the driver chooses the local one if it is None.
    args : list
        Buffers, NumPy numbers and pieces of local memory.
    arrays : sequence of int
        The positions in `args` of buffers that are followed by the offset, in bytes, at which an array begins: such
        an array may move to another buffer.
    """
    listener = getattr(_state, "listener", None)
    if listener is None or not listener.tracing:
        kernel.set_args(*args)
    if listener is None:
        cl.enqueue_nd_range_kernel(queue, kernel, items, group)
        return
    local_size = None if group is None else tuple(group)
    listener.on(EnqueueKernel(queue, kernel, tuple(items), local_size, tuple(args), tuple(arrays)))


def copy_bytes(
    queue: cl.CommandQueue,
    target: cl.Buffer,
    target_offset: int,
    source: cl.Buffer,
    source_offset: int,
    nbytes: int,
) -> None:
    """Copy bytes from one buffer to another one, or to another part of it."""
    _do(EnqueueCopy(queue, target, target_offset, source, source_offset, nbytes))


def fill(queue: cl.CommandQueue, target: cl.Buffer, offset: int, nbytes: int, pattern: np.generic) -> None:
    """Fill bytes with a pattern, which fits into them a whole number of times."""
    _do(EnqueueFill(queue, target, offset, nbytes, pattern))


def upload(queue: cl.CommandQueue, target: cl.Buffer, offset: int, value: np.ndarray, constant: bool = False) -> None:
    """Copy an array in C order from the host, which may change it as soon as this returns.

    A small array is copied on the host first, so that the host does not wait for the device.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Where.
    target : pyopencl.Buffer
        Where to.
    offset : int
        In it, in bytes.
    value : numpy.ndarray
        What. While a function is traced, it may be a `DeferredArray`.
    constant : bool
        Whether that buffer is never written again.
    """
    if tracing() is not None:
        _do(EnqueueUpload(queue, target, offset, value, constant))
        return
    is_small = value.nbytes <= _SMALL_NBYTES
    command = EnqueueUpload(queue, target, offset, np.array(value, order="C") if is_small else value, constant)
    command.is_blocking = not is_small
    _do(command)
    if is_small:
        _pending_uploads().append(command.event)


def _pending_uploads() -> deque[Any]:
    """Return the events of this thread's latest copies from the host."""
    events = getattr(_state, "events", None)
    if events is None:
        events = _state.events = deque(maxlen=_KEPT_EVENTS)
    return events


def download(queue: cl.CommandQueue, out: np.ndarray, source: cl.Buffer, offset: int) -> None:
    """Copy an array in C order to the host, and wait until that is done."""
    _do(EnqueueDownload(queue, out, source, offset))


def unknown(why: str) -> None:
    """Report that the host is about to do something that a listener cannot repeat."""
    listener = getattr(_state, "listener", None)
    if listener is not None:
        listener.on(HostCall(why))


def _do(command: Any) -> None:
    """Enqueue a command, or leave that to the listener."""
    listener = getattr(_state, "listener", None)
    if listener is None:
        command.enqueue()
    else:
        listener.on(command)
