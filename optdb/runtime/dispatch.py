"""Dispatches a thread's commands to the device's queue, or to the thread's *listener*.

A recorder records and enqueues commands, a timer enqueues them on its own queue, and a tracer only records them.
`HeldCommands` holds a call's commands until no further step can raise an error, so that all or none are enqueued.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from optdb.numpy_types import HostArray
from optdb.runtime.commands import AllocateBuffer, CommandList, EnqueueDownload, EnqueueKernel, EnqueueUpload, HostCall
from optdb.runtime.deferred import DeferredArray
from optdb.runtime.library import cl

#: The size in bytes up to which copying an array on the host is faster than waiting for the device.
_SMALL_NBYTES = 1 << 16
#: The number of upload events that each thread keeps, since an event's destructor waits for the upload.
_KEPT_EVENTS = 64


class Listener(Protocol):
    """An object that receives a thread's commands in place of the device's queue."""

    #: Whether commands are only recorded. Arrays then have no memory, and numbers may be symbolic.
    tracing: bool
    #: Whether a launch's arguments are set on the kernel object before `on` is called.
    takes_bound: bool

    def on(self, command: Any) -> None:
        """Receive a command whose operands are buffers; enqueue it unless the listener traces."""


class _ThreadState(threading.local):
    listener: Listener | None = None

    def __init__(self) -> None:
        self.events: deque[Any] = deque(maxlen=_KEPT_EVENTS)


_state = _ThreadState()


@contextmanager
def listened(listener: Listener | None) -> Iterator[None]:
    """Pass this thread's commands to `listener` until the block exits; if `listener` is None, enqueue them."""
    outer = listening()
    _state.listener = listener
    try:
        yield
    finally:
        _state.listener = outer


def listening() -> Listener | None:
    """Return this thread's listener; None if there is none."""
    return _state.listener


def tracing() -> Any:
    """Return the listener that traces this thread's commands; None if the commands are enqueued."""
    listener = _state.listener
    return listener if listener is not None and listener.tracing else None


def enqueue(command: Any) -> None:
    """Enqueue a command, or pass it to the thread's listener.

    If there is no listener, or if the listener `takes_bound`, the caller must already have set a launch's arguments.
    """
    listener = _state.listener
    if listener is None:
        command.enqueue()
    else:
        listener.on(command)


def upload(
    queue: cl.CommandQueue,
    target: cl.Buffer,
    offset: int,
    value: HostArray | DeferredArray,
    constant: bool = False,
    events: list[Any] | None = None,
) -> None:
    """Copy a C-contiguous array from the host; the caller may change the array when this function returns.

    A small array is first copied on the host. If a list `events` is given, an array of any size is copied first, and
    the upload's event is appended to the list. In a trace, the array may be a `DeferredArray`. A `constant` target is
    never written again.
    """
    command = EnqueueUpload(queue, target, offset, value, constant)
    if tracing() is None and (events is not None or value.nbytes <= _SMALL_NBYTES):
        command.value, command.is_blocking = np.array(value, order="C"), False
    enqueue(command)
    if events is not None:
        events.append(command.event)
    elif not command.is_blocking:
        keep_event(command.event)


def keep_event(holder: Any) -> None:
    """Keep the event of a non-blocking copy, or the command that holds the event, so that the array stays alive."""
    _state.events.append(holder)


@dataclass(eq=False, slots=True)
class _HeldLaunch:
    launch: EnqueueKernel

    def enqueue(self) -> Any:
        launch = self.launch
        with launch.lock:
            launch.kernel.set_args(*launch.args)
            return launch.enqueue()


class HeldCommands:
    """A listener that holds the commands of one thread until `release` or `enqueue` is called."""

    tracing = False
    takes_bound = False

    def __init__(self) -> None:
        self._commands: list[Any] = []

    def on(self, command: Any) -> None:
        """Hold a command; if it is a download or a host call, enqueue the held commands and then this command."""
        match command:
            case AllocateBuffer():
                pass
            case HostCall() | EnqueueDownload():
                self.enqueue()
                command.enqueue()
            case EnqueueUpload(is_constant=True):
                # Upload constants immediately: later calls may reuse the buffer without an upload.
                command.enqueue()
            case EnqueueUpload(is_blocking=True):
                # The caller may change the array when this method returns.
                value = np.array(command.value, order="C")
                self._hold_upload(replace(command, value=value, is_blocking=False))
            case EnqueueUpload():
                self._hold_upload(command)
            case EnqueueKernel() if command.lock is not None:
                # Keep the arguments, since a shared kernel object may get other arguments before this launch is
                # enqueued.
                self._commands.append(_HeldLaunch(command))
            case _:
                self._commands.append(command)

    def hold(self, commands: CommandList) -> None:
        """Hold bound commands."""
        self._commands.append(commands)

    def release(self) -> list[Any]:
        """Return and forget the held commands; the caller enqueues them."""
        commands, self._commands = self._commands, []
        return commands

    def enqueue(self) -> None:
        for command in self.release():
            command.enqueue()

    def _hold_upload(self, command: EnqueueUpload) -> None:
        self._commands.append(command)
        keep_event(command)  # the command gets its event when it is enqueued


def enqueue_bound(commands: CommandList) -> None:
    """Enqueue bound commands, or hold them if this thread's commands are held."""
    listener = listening()
    if isinstance(listener, HeldCommands):
        listener.hold(commands)
    else:
        commands.enqueue()
