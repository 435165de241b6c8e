"""When a method's small launches are merged (`merge_at_once`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optdb.opencl.planning import PlannedVM

if TYPE_CHECKING:
    from optdb.opencl.simulator.device_function import DeviceFunction

__all__ = ["merge_at_once"]


def merge_at_once(function: DeviceFunction) -> None:
    """Let a simulator's method merge its small launches from its first plan on, and not when that has paid.

    It pays where the device waits for the host: nothing else is in its queue while the method's commands are enqueued.
    On a processor the host is the device, and nothing changes.
    """
    run, state = function._executable.run, function._state
    if isinstance(run, PlannedVM) and not state.context.profile.shares_host_memory:
        run.linked.merges_at_once = True
