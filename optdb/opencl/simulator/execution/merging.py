"""Faster method calls for when the device waits for the host: `merge_at_once`, `RepeatedMethod`, `TrustedMethod`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from optdb.opencl.linking.planned_vm import PlannedVM
from optdb.runtime.commands import CommandList
from optdb.runtime.staging import StagingBuffer

if TYPE_CHECKING:
    from optdb.device.plans.plan import Before
    from optdb.opencl.linking.committing import CommittingVM
    from optdb.opencl.simulator.device_function import DeviceFunction
    from optdb.opencl.simulator.execution.io_binding import Input

__all__ = ["RepeatedMethod", "TrustedMethod", "merge_at_once"]

#: Maximum size in bytes of arguments that are compared with the previous call's arguments.
_COMPARED_NBYTES = 1024


def merge_at_once(function: DeviceFunction) -> None:
    """Make a simulator's method merge small launches in its first plan, even before that is known to save time.

    Merging saves time when the device waits for the host, that is, when its queue is empty while the method's commands
    are enqueued. On a CPU device, which shares the host's memory, this function does nothing.
    """
    run, state = function._executable.run, function._state
    if isinstance(run, PlannedVM) and not state.context.profile.shares_host_memory:
        run.merge_at_once()


class RepeatedMethod:
    """Calls a simulator's method; if nothing has changed since the previous call, enqueues that call's commands again.

    This saves most of the host's time in calls of a function with many shared variables.

    Parameters
    ----------
    function : DeviceFunction
        The method.
    """

    def __init__(self, function: DeviceFunction) -> None:
        self._function = function
        #: The previous call's arguments in comparable form; None if they are large.
        self._given: list[Any] | None = None
        if isinstance(function._executable.run, PlannedVM):
            function._executable.run.repeat_commands()

    def __call__(
        self,
        *args: Any,
        call: Callable[..., Any] | None = None,
        before_commit: Callable[[], None] | None = None,
    ) -> None:
        """Call the method, or `call` instead of it; results stay on the device.

        `before_commit` is called when only the next values remain to be stored; if it raises, nothing is stored.
        """
        given, run = _comparable(args), self._function._executable.run
        run.before_commit = before_commit
        try:
            if given is not None and given == self._given and self._again():
                return
            self._given = None
            (call or self._function)(*args)
        finally:
            run.before_commit = None
        self._given = given

    def commands(self, *args: Any) -> CommandList | None:
        """Return a call's commands for the caller to enqueue; None if the call does more than that or needs Python."""
        commands = self._repeated(args)
        return None if commands is None or commands.needs_python else commands

    def needs_python(self, *args: Any) -> bool:
        """Return whether a call would do more than enqueue the previous call's commands; if so, it may raise."""
        return self._repeated(args) is None

    def _repeated(self, args: Sequence[Any]) -> CommandList | None:
        given, run = _comparable(args), self._function._executable.run
        if given is None or given != self._given or not isinstance(run, PlannedVM):
            return None
        with self._function._state.turn():
            self._function._state.check_open()
            return run.repeated_commands()

    def _again(self) -> bool:
        run = self._function._executable.run
        with self._function._state.turn():
            self._function._state.check_open()
            return isinstance(run, PlannedVM) and run.again()


class TrustedMethod:
    """Calls a simulator's method with arguments that have the right types, without waiting for copies.

    Theano's `Function` visits each shared variable several times. A network may have hundreds of shared variables, and
    the device would wait meanwhile.

    Parameters
    ----------
    function : DeviceFunction
        A method. None of its arguments has an update, and none may be overwritten.
    """

    def __init__(self, function: DeviceFunction) -> None:
        self._function = function
        #: The events of copies that may be in progress, kept because dropping an event waits for it.
        self._events: list[Any] = []
        self._was_called = False
        #: Maps an argument's index to its staging buffer.
        self._stages: dict[int, StagingBuffer] = {}

    def stage(self, args: Sequence[Any]) -> list[Any]:
        """Upload large arguments while the device computes; return replacements for `args`, which one call may use.

        Any thread may call this method. Any thread may call this method. It may be called again before the first
        arguments are used. Before a third call, the device must have finished using the first arguments.

        Parameters
        ----------
        args : sequence of array-like
            The method's first arguments. They may change as soon as this method returns.
        """
        bindings = self._function._executable.inputs
        return [self._staged(number, *pair) for number, pair in enumerate(zip(bindings, args, strict=False))]

    def _staged(self, number: int, binding: Input, value: Any) -> Any:
        variable = binding.variable
        is_staged = self._was_called and binding.placed and not binding.may_change and isinstance(value, np.ndarray)
        if not is_staged or value.dtype != variable.type.dtype or value.ndim != variable.type.ndim:
            return value
        if number not in self._stages:
            self._stages[number] = StagingBuffer(self._function._state.context)
        return self._stages[number].begin(value) or value

    def __call__(self, *args: Any, before: Before | None = None, at_once: bool = True) -> list[Any]:
        """Call the method and return its results, which are valid once the device has finished.

        Parameters
        ----------
        *args : array-like
            The arguments of the method.
        before : callable, optional
            Called with the method's first commands (possibly none) before the method has any effect visible to other
            functions; returns whether it has enqueued the commands. If it raises, the method computes nothing.
        at_once : bool
            Whether `before` is called without commands and may call other methods of the simulator; otherwise `before`
            only enqueues commands.
        """
        function = self._function
        executable = function._executable
        run = None if before is None else functools.partial(_run_after, executable.run, before, at_once)
        # On a device that shares the host's memory, a call returns only when it has read lent arrays and its results
        # are ready.
        events: list[Any] | None = None if function._state.context.profile.shares_host_memory else []
        with function._state.turn():
            function._state.check_open()
            self._events = []
            try:
                for binding, value in zip(executable.inputs, args, strict=True):
                    binding.storage[0] = value
                results = executable(run=run, events=events)
            finally:
                for binding in executable.inputs:
                    binding.storage[0] = None
            self._events = events or []
            self._was_called = True
        return results[: len(executable.outputs)]


def _run_after(machine: PlannedVM | CommittingVM, before: Before, at_once: bool) -> None:
    """Call `before`, with the VM's first commands if possible, and then run the VM."""
    if at_once or not isinstance(machine, PlannedVM):
        before(CommandList())
        machine()
    else:
        machine(before)


def _comparable(values: Sequence[Any]) -> list[Any] | None:
    """Return a comparable form of values; None if they are large or not numeric."""
    arrays = list(map(np.asarray, values))
    if sum(array.nbytes for array in arrays) > _COMPARED_NBYTES or any(array.dtype.hasobject for array in arrays):
        return None
    return [(array.dtype, array.shape, array.tobytes()) for array in arrays]
