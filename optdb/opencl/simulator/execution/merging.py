"""How a method is called that the device waits for: `merge_at_once`, `RepeatedMethod`, `TrustedMethod`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from optdb.opencl.linking import PlannedVM
from optdb.runtime.commands import CommandList
from optdb.runtime.staging import StagingBuffer

if TYPE_CHECKING:
    from optdb.device.plans.plan import Before
    from optdb.opencl.linking.committing import CommittingVM
    from optdb.opencl.simulator.device_function import DeviceFunction
    from optdb.opencl.simulator.execution.io_binding import Input

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
        run.merge_at_once()


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
            function._executable.run.repeat_commands()

    def __call__(
        self,
        *args: Any,
        call: Callable[..., Any] | None = None,
        before_commit: Callable[[], None] | None = None,
    ) -> None:
        """Call the method, or what stands for it; results are left on the device.

        `before_commit` is called when nothing but stores is left to do; if it raises, nothing is stored.
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
        """Return what a call enqueues now, if it does nothing else and needs no Python; the caller enqueues it."""
        commands = self._repeated(args)
        return None if commands is None or commands.needs_python else commands

    def needs_python(self, *args: Any) -> bool:
        """Tell whether a call does more now than to enqueue the commands of the last one: it may raise."""
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
        self._was_called = False
        #: By the number of an argument.
        self._stages: dict[int, StagingBuffer] = {}

    def stage(self, args: Sequence[Any]) -> list[Any]:
        """Begin to bring large arguments to the device, while it computes; return what stands for all in one call.

        Any thread may call it. Of two such calls, the second one may come while the first one's arguments are not used
        yet; before a third one, the device has to be done with the first one's.

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
        """Call the method; return its results, which are there once the device is done.

        Parameters
        ----------
        *args : array-like
            What the method takes.
        before : callable, optional
            Called with the commands that the method enqueues first, which may be none, before anything that another
            function could see; it returns whether it has enqueued them. If it raises, the method computes nothing.
        at_once : bool
            Whether it is called with no commands, and may call other methods of the simulator; otherwise it only
            enqueues commands.
        """
        function = self._function
        executable = function._executable
        run = None if before is None else functools.partial(_run_after, executable.run, before, at_once)
        # Lent arrays and results, on a device that shares the host's memory, are there when a call returns.
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
    """Run a machine; call `before` with its first commands, or with none."""
    if at_once or not isinstance(machine, PlannedVM):
        before(CommandList())
        machine()
    else:
        machine(before)


def _comparable(values: Sequence[Any]) -> list[Any] | None:
    """Return what tells values from others; None if they are large, or no numbers."""
    arrays = list(map(np.asarray, values))
    if sum(array.nbytes for array in arrays) > _COMPARED_NBYTES or any(array.dtype.hasobject for array in arrays):
        return None
    return [(array.dtype, array.shape, array.tobytes()) for array in arrays]
