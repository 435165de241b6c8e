"""How a method is called that the device waits for: `merge_at_once`, `repeat_commands`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optdb.opencl.planning import PlannedVM

if TYPE_CHECKING:
    from optdb.opencl.simulator.device_function import DeviceFunction

__all__ = ["merge_at_once", "repeat_commands"]


def merge_at_once(function: DeviceFunction) -> None:
    """Let a simulator's method merge its small launches from its first plan on, and not when that has paid.

    It pays where the device waits for the host: nothing else is in its queue while the method's commands are enqueued.
    On a processor the host is the device, and nothing changes.
    """
    run, state = function._executable.run, function._state
    if isinstance(run, PlannedVM) and not state.context.profile.shares_host_memory:
        run.linked.merges_at_once = True


def repeat_commands(function: DeviceFunction) -> None:
    """Let a call of a simulator's method that finds what the last one has found enqueue the same commands at once.

    That saves most of the time that the host takes for a call of a function with many shared variables.
    """
    run = function._executable.run
    if isinstance(run, PlannedVM):
        run.linked.repeats_commands = True
