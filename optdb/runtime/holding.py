"""Deferred enqueueing of commands until no step can raise, so that they change memory entirely or not at all.

A function may overwrite its shared arrays step by step: each step is Python code that checks arguments, allocates,
and enqueues. If a later step raises, earlier steps must have no effect. So the commands of such steps are held, and
enqueued together once the last step has returned.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from optdb.runtime.commands import AllocateBuffer, CommandList, EnqueueDownload, EnqueueKernel, EnqueueUpload, HostCall
from optdb.runtime.dispatch import keep_event, listening

__all__ = ["HeldCommands", "enqueue_bound"]


@dataclass(eq=False, slots=True)
class _HeldLaunch:
    """A launch that sets its kernel object's arguments when it is enqueued."""

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

        Host work that reads values needs them now, so it first enqueues the held commands.
        """
        match command:
            case AllocateBuffer():
                pass
            case HostCall() | EnqueueDownload():
                self.enqueue()
                command.enqueue()
            case EnqueueUpload(is_constant=True):
                # The buffer is written once, and an op may keep it for later calls.
                command.enqueue()
            case EnqueueUpload(is_blocking=True):
                # The caller may change the array as soon as this returns.
                value = np.array(command.value, order="C")
                self._hold_upload(replace(command, value=value, is_blocking=False))
            case EnqueueUpload():
                self._hold_upload(command)
            case EnqueueKernel() if command.lock is not None:
                # The arguments of a shared kernel object may change before this launch is enqueued.
                self._commands.append(_HeldLaunch(command))
            case _:
                self._commands.append(command)

    def hold(self, commands: CommandList) -> None:
        """Keep commands that do not share their kernel objects."""
        self._commands.append(commands)

    def release(self) -> list[Any]:
        """Stop holding the commands, and return them for the caller to enqueue."""
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
    """Enqueue commands that do not share their kernel objects, or hold them with this thread's other commands."""
    listener = listening()
    if isinstance(listener, HeldCommands):
        listener.hold(commands)
    else:
        commands.enqueue()
