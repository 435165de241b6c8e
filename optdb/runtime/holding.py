"""Holds commands back until no step can raise, so that either all or none of them are enqueued.

A function may overwrite its shared arrays step by step; if a later step raises, earlier steps must have no effect.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from optdb.runtime.commands import AllocateBuffer, CommandList, EnqueueDownload, EnqueueKernel, EnqueueUpload, HostCall
from optdb.runtime.dispatch import keep_event, listening


@dataclass(eq=False, slots=True)
class _HeldLaunch:
    launch: EnqueueKernel

    def enqueue(self) -> Any:
        launch = self.launch
        with launch.lock:
            launch.kernel.set_args(*launch.args)
            return launch.enqueue()


class HeldCommands:
    """Listens to the commands of one thread and holds them until `release` or `enqueue`."""

    tracing = False
    takes_bound = False

    def __init__(self) -> None:
        self._commands: list[Any] = []

    def on(self, command: Any) -> None:
        """Hold a command; host work that reads values first enqueues the held commands."""
        match command:
            case AllocateBuffer():
                pass
            case HostCall() | EnqueueDownload():
                self.enqueue()
                command.enqueue()
            case EnqueueUpload(is_constant=True):
                # The buffer is written only once, but an op may reuse it in later calls, so upload its value at once.
                command.enqueue()
            case EnqueueUpload(is_blocking=True):
                # Copy the array, since the caller may change it as soon as this returns.
                value = np.array(command.value, order="C")
                self._hold_upload(replace(command, value=value, is_blocking=False))
            case EnqueueUpload():
                self._hold_upload(command)
            case EnqueueKernel() if command.lock is not None:
                # Keep the arguments: those set on a shared kernel object may change before this launch is enqueued.
                self._commands.append(_HeldLaunch(command))
            case _:
                self._commands.append(command)

    def hold(self, commands: CommandList) -> None:
        """Hold commands whose kernel objects are not shared."""
        self._commands.append(commands)

    def release(self) -> list[Any]:
        """Return the held commands, which are then no longer held; the caller enqueues them."""
        commands, self._commands = self._commands, []
        return commands

    def enqueue(self) -> None:
        """Enqueue the held commands."""
        for command in self.release():
            command.enqueue()

    def _hold_upload(self, command: EnqueueUpload) -> None:
        self._commands.append(command)
        keep_event(command)  # the command gets its event when it is enqueued


def enqueue_bound(commands: CommandList) -> None:
    """Enqueue commands whose kernel objects are not shared, or hold them if this thread's commands are held."""
    listener = listening()
    if isinstance(listener, HeldCommands):
        listener.hold(commands)
    else:
        commands.enqueue()
