"""Faster calls of methods when the device waits for the host: `merge_at_once`, `RepeatedMethod`, `TrustedMethod`."""

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

#: Maximum bytes of arguments to compare with the last call's.
_COMPARED_NBYTES = 1024


def merge_at_once(function: DeviceFunction) -> None:
    """Make a simulator's method merge small launches from its first plan on, not only once merging has paid off.

    Merging pays when the device waits for the host: its queue is empty while the method's commands are enqueued.
    On a CPU device, which shares the host's memory, this does nothing.
    """
    run, state = function._executable.run, function._state
    if isinstance(run, PlannedVM) and not state.context.profile.shares_host_memory:
        run.merge_at_once()


class RepeatedMethod:
    """Calls a simulator's method; a call under the same conditions as the last one enqueues the same commands directly.

    This saves most of the host's time in a call of a function with many shared variables.

    Parameters
    ----------
    function : DeviceFunction
        The method.
    """

    def __init__(self, function: DeviceFunction) -> None:
        self._function = function
        #: The arguments of the last call in comparable form; None if they are large.
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

        `before_commit` is called when only stores remain; if it raises, nothing is stored.
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
        """Return the commands of a call, for the caller to enqueue; None if the call does more or needs Python."""
        commands = self._repeated(args)
        return None if commands is None or commands.needs_python else commands

    def needs_python(self, *args: Any) -> bool:
        """Return whether a call would do more than enqueue the last call's commands; if so, it may raise."""
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
    """Calls a simulator's method with arguments of the right types, without waiting for copies.

    Theano's `Function` visits each shared variable several times. A net may have hundreds of them, and the device would
    wait.

    Parameters
    ----------
    function : DeviceFunction
        A method. None of its arguments has an update, and none may be overwritten.
    """

    def __init__(self, function: DeviceFunction) -> None:
        self._function = function
        #: Events of copies that may be in progress: dropping an event waits for it.
        self._events: list[Any] = []
        self._was_called = False
        #: Staging buffers, by argument index.
        self._stages: dict[int, StagingBuffer] = {}

    def stage(self, args: Sequence[Any]) -> list[Any]:
        """Start the upload of large arguments while the device computes; return replacements of `args` for one call.

        Any thread may call it. A second call may come before the first call's arguments are used; before a third call,
        the device must have finished with the first call's arguments.

        Parameters
        ----------
        args : sequence of array-like
            The first arguments. They may change as soon as this returns.
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
        """Call the method; return its results, which are valid once the device has finished.

        Parameters
        ----------
        *args : array-like
            The arguments of the method.
        before : callable, optional
            Called with the method's first commands (possibly none) before any effect that other functions could see;
            it returns whether it has enqueued them. If it raises, the method computes nothing.
        at_once : bool
            Whether `before` is called without commands and may call other methods of the simulator; otherwise it only
            enqueues commands.
        """
        function = self._function
        executable = function._executable
        run = None if before is None else functools.partial(_run_after, executable.run, before, at_once)
        # On a device that shares the host's memory, lent arrays and results are ready when a call returns.
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
    """Run a machine; call `before` first, with the machine's first commands or with none."""
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
