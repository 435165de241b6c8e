"""Holds commands back until nothing can raise any more, so that they change memory wholly or not at all.

A function may overwrite its shared arrays step by step: each step is Python code that checks arguments, allocates,
and enqueues. If a later step raises, the earlier ones must not have happened. So the commands of such steps are held,
and enqueued together once the last step has returned.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from optdb.runtime.commands import (
    AllocateBuffer,
    CommandList,
    EnqueueDownload,
    EnqueueKernel,
    EnqueueUpload,
    HostCall,
    keep_event,
    listening,
)

__all__ = ["HeldCommands", "enqueue_bound"]


@dataclass(eq=False, slots=True)
class _HeldLaunch:
    """A launch whose kernel object gets its arguments when it is enqueued."""

    launch: EnqueueKernel

    def enqueue(self) -> Any:
        launch = self.launch
        with launch.lock:
            launch.kernel.set_args(*launch.args)
            return launch.enqueue()


class HeldCommands:
    """Listens to the commands of one thread, and keeps them until `release` or `enqueue`."""

    tracing = False
    takes_bound = False

    def __init__(self) -> None:
        self._commands: list[Any] = []

    def on(self, command: Any) -> None:
        """Keep a command.

        Work of the host that reads values needs them now: the held commands are enqueued before it.
        """
        match command:
            case AllocateBuffer():
                pass
            case HostCall() | EnqueueDownload():
                self.enqueue()
                command.enqueue()
            case EnqueueUpload(is_constant=True):
                # It is written once, into memory of its own, and an op may keep it for later calls.
                command.enqueue()
            case EnqueueUpload(is_blocking=True):
                # The caller may change the array as soon as this returns.
                value = np.array(command.value, order="C")
                self._hold_upload(replace(command, value=value, is_blocking=False))
            case EnqueueUpload():
                self._hold_upload(command)
            case EnqueueKernel() if command.lock is not None:
                # Its kernel object may get other arguments before this launch is enqueued.
                self._commands.append(_HeldLaunch(command))
            case _:
                self._commands.append(command)

    def hold(self, commands: CommandList) -> None:
        """Keep commands whose kernel objects are their own."""
        self._commands.append(commands)

    def release(self) -> list[Any]:
        """Return what is held, for the caller to enqueue, and hold it no longer."""
        commands, self._commands = self._commands, []
        return commands

    def enqueue(self) -> None:
        """Enqueue what is held."""
        for command in self.release():
            command.enqueue()

    def _hold_upload(self, command: EnqueueUpload) -> None:
        self._commands.append(command)
        keep_event(command)  # which gets an event when it is enqueued


def enqueue_bound(commands: CommandList) -> None:
    """Enqueue commands whose kernel objects are their own, or hold them back with the others of this thread."""
    listener = listening()
    if isinstance(listener, HeldCommands):
        listener.hold(commands)
    else:
        commands.enqueue()
