"""How a method is called that the device waits for: `merge_at_once`, `RepeatedMethod`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from optdb.opencl.planning import PlannedVM

if TYPE_CHECKING:
    from optdb.opencl.simulator.device_function import DeviceFunction

__all__ = ["RepeatedMethod", "merge_at_once"]

#: The most bytes of arguments that are compared with those of the last call.
_COMPARED_NBYTES = 1024


def merge_at_once(function: DeviceFunction) -> None:
    """Let a simulator's method merge its small launches from its first plan on, and not when that has paid.

    It pays where the device waits for the host: nothing else is in its queue while the method's commands are enqueued.
    On a processor the host is the device, and nothing changes.
    """
    run, state = function._executable.run, function._state
    if isinstance(run, PlannedVM) and not state.context.profile.shares_host_memory:
        run.linked.merges_at_once = True


class RepeatedMethod:
    """Calls a simulator's method; a call that finds what the last one has found enqueues the same commands at once.

    That saves most of the time that the host takes for a call of a function with many shared variables.

    Parameters
    ----------
    function : DeviceFunction
        The method.
    """

    def __init__(self, function: DeviceFunction) -> None:
        self._function = function
        #: What the last call was given, if it is little.
        self._given: list[Any] | None = None
        if isinstance(function._executable.run, PlannedVM):
            function._executable.run.linked.repeats_commands = True

    def __call__(self, *args: Any, call: Callable[..., Any] | None = None) -> None:
        """Call the method, or what stands for it; results are left on the device."""
        given = _comparable(args)
        if given is not None and given == self._given and self._again():
            return
        self._given = None
        (call or self._function)(*args)
        self._given = given

    def _again(self) -> bool:
        run = self._function._executable.run
        with self._function._state:
            return isinstance(run, PlannedVM) and run.again()


def _comparable(values: Sequence[Any]) -> list[Any] | None:
    """Return what tells values from others; None if they are large, or no numbers."""
    arrays = list(map(np.asarray, values))
    if sum(array.nbytes for array in arrays) > _COMPARED_NBYTES or any(array.dtype.hasobject for array in arrays):
        return None
    return [(array.dtype, array.shape, array.tobytes()) for array in arrays]
