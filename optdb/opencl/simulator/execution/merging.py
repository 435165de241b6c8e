"""How a method is called that the device waits for: `merge_at_once`, `RepeatedMethod`, `TrustedMethod`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from optdb.opencl.planning import PlannedVM

if TYPE_CHECKING:
    from optdb.opencl.simulator.device_function import DeviceFunction

__all__ = ["RepeatedMethod", "TrustedMethod", "merge_at_once"]

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


class TrustedMethod:
    """Calls a simulator's method with arguments that its types hold, and does not wait for what it copies.

    Theano's `Function` looks several times at each shared variable, of which a net may have hundreds: the device would
    wait for it.

    Parameters
    ----------
    function : DeviceFunction
        A method. None of its arguments has an update, and none may be overwritten.
    """

    def __init__(self, function: DeviceFunction) -> None:
        self._function = function
        #: Of copies that may be on their way: dropping one waits for it.
        self._events: list[Any] = []

    def __call__(self, *args: Any) -> list[Any]:
        """Call the method; return its results, which are there once the device is done."""
        function = self._function
        executable = function._executable
        # Lent arrays and results, on a device that shares the host's memory, are there when a call returns.
        events = None if function._state.context.profile.shares_host_memory else []
        with function._state:
            self._events = []
            try:
                for binding, value in zip(executable.inputs, args, strict=True):
                    binding.storage[0] = value
                results = executable(events=events)
            finally:
                for binding in executable.inputs:
                    binding.storage[0] = None
            self._events = events or []
        return results[: len(executable.outputs)]


def _comparable(values: Sequence[Any]) -> list[Any] | None:
    """Return what tells values from others; None if they are large, or no numbers."""
    arrays = list(map(np.asarray, values))
    if sum(array.nbytes for array in arrays) > _COMPARED_NBYTES or any(array.dtype.hasobject for array in arrays):
        return None
    return [(array.dtype, array.shape, array.tobytes()) for array in arrays]
