"""Faster calls to a simulator's methods, and asynchronous results."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from optdb.lifters.transfers import record_transfer
from optdb.opencl.linking.planned_vm import CommittingVM, PlannedVM
from optdb.opencl.simulator.execution.io_binding import RESULTS
from optdb.runtime.arrays import Array, DeviceArray, deep_copy, to_host
from optdb.runtime.commands import CommandList
from optdb.runtime.context import Context
from optdb.runtime.fetching import HostMirror
from optdb.runtime.grid_failures import WORD_COUNT, check_words, known_words
from optdb.runtime.packing import StagingBuffer
from optdb.runtime.scripts import Arrival

if TYPE_CHECKING:
    from optdb.device.plans.plan import Before
    from optdb.opencl.simulator.device_function import DeviceFunction
    from optdb.opencl.simulator.execution.io_binding import Input
    from optdb.runtime.scripts import Script

#: The maximum size in bytes of arguments that are compared with the previous call's arguments.
_COMPARED_NBYTES = 1024


def merge_at_once(function: DeviceFunction) -> None:
    """Make a simulator's method merge small launches in its first plan, unless the device shares the host's memory."""
    run, state = function._executable.run, function._state
    if isinstance(run, PlannedVM) and not state.context.profile.shares_host_memory:
        run.merge_at_once()


class RepeatedMethod:
    """Calls a simulator's method, or enqueues the previous call's commands again if nothing has changed."""

    def __init__(self, function: DeviceFunction) -> None:
        self._function = function
        #: The previous call's arguments in comparable form; None if they are large or not numeric.
        self._given: list[Any] | None = None
        if isinstance(function._executable.run, PlannedVM):
            function._executable.run.repeat_commands()

    def __call__(
        self,
        *args: Any,
        call: Callable[..., Any] | None = None,
        before_commit: Callable[[], None] | None = None,
    ) -> None:
        """Call the method, or `call` if it is given; the results stay on the device.

        `before_commit` is called before the next values are stored; if it raises, nothing is stored.
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
        """Return a call's commands, which the caller must enqueue; None if the call must run Python code."""
        commands = self._repeated(args)
        return None if commands is None or commands.needs_python else commands

    def needs_python(self, *args: Any) -> bool:
        """Return whether a call would do more than enqueue the previous call's commands; such a call might raise."""
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

    Theano's `Function` would visit each shared variable several times while the device waits. The method must not
    update or overwrite its arguments.
    """

    def __init__(self, function: DeviceFunction) -> None:
        self._function = function
        #: The events of copies in progress, kept because discarding an event blocks until its copy has finished.
        self._events: list[Any] = []
        self._was_called = False
        self._stages: dict[int, StagingBuffer] = {}

    def stage(self, args: Sequence[Any]) -> list[Any]:
        """Upload large arguments while the device computes; return replacements for `args`, valid for one call.

        Any thread may call this method. The arguments of two calls may be staged in advance; before a third call's
        arguments are staged, the device must have finished with the first call's arguments. `args` may change after
        this method returns.
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
        """Call the method and return its results, which are valid when the device has finished.

        `before` is called with the method's first commands (possibly none) before the method has any visible effect.
        `before` returns whether it has enqueued these commands; if it raises, the method does nothing. If `at_once` is
        set, `before` gets an empty list and may call other methods of the simulator.
        """
        function = self._function
        executable = function._executable
        run = None if before is None else functools.partial(_run_after, executable.run, before, at_once)
        # On a device that shares the host's memory, a call waits until its results are complete and the caller's arrays
        # have been read.
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


Fetch = Callable[[HostMirror, Array], Any]
#: The maximum number of calls with pending results; another call first fetches the oldest results.
_MOST_PENDING = 2


class Results:
    """The possibly pending results of one call. Any thread may wait for the results any number of times."""

    def __init__(self, mirrors: _Mirrors) -> None:
        self._mirrors = mirrors
        #: For each output: the value if it is on the host; otherwise, the output's shape and the mirror that receives
        #: the value.
        self._begun: list[tuple[Any, tuple[int, ...], HostMirror | None]] = []
        self._copies: list[Any] = []
        self._lock = threading.Lock()
        self._values: list[Any] | None = None
        self._error: Exception | None = None

    def wait(self) -> list[Any]:
        """Wait for the results, without waiting for later commands, and return the results."""
        self.fetch()
        if self._error is not None:
            raise self._error
        assert self._values is not None
        return self._values

    def fetch(self) -> None:
        """Copy the results out of the mirrors, which other calls may then reuse; errors are raised later, by `wait`."""
        with self._lock:
            if self._values is not None or self._error is not None:
                return
            try:
                Arrival(self._copies).wait()
                self._mirrors.check_launches()
                self._values = [
                    value if mirror is None else mirror.copied(shape) for value, shape, mirror in self._begun
                ]
            except Exception as error:
                self._error = error
            self._begun, self._copies = [], []

    def begin(self, values: list[Any], fetch: Fetch = HostMirror.fetch) -> None:
        """Start copying values to the host with `fetch`; values that are already on the host are copied immediately."""
        for number, value in enumerate(values):
            if not (isinstance(value, Array) and value.size and value.flags.c_contiguous):
                self._begun.append((to_host(value) if isinstance(value, Array) else deep_copy(value), (), None))
                continue
            record_transfer(RESULTS, value.nbytes)
            mirror = self._mirrors.of(number, value)
            self._copies.append(fetch(mirror, value))
            self._begun.append((None, value.shape, mirror))
        self._copies += self._mirrors.fetch_words(fetch)


class _Mirrors:
    """Mirrors in host memory, which hold the results of one call at a time."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._of_outputs: dict[int, HostMirror] = {}
        #: Mirror of the status words of persistent launches; None before the first such launch.
        self._words: HostMirror | None = None
        self.results: Results | None = None

    def of(self, number: int, value: Array) -> HostMirror:
        mirror = self._of_outputs.get(number)
        if mirror is None or not mirror.fits(np.dtype(value.dtype), value.size):
            mirror = self._of_outputs[number] = HostMirror(self._context, value.dtype, value.size)
        return mirror

    def fetch_words(self, fetch: Fetch) -> list[Any]:
        """Start copying the status words of persistent launches; return the events."""
        queue = self._context.queue
        words = known_words(queue)
        if words is None:
            return []
        if self._words is None:
            self._words = HostMirror(self._context, np.dtype(np.uint32), WORD_COUNT)
        array = DeviceArray(queue, (WORD_COUNT,), np.uint32, data=words)
        return [fetch(self._words, array)]

    def check_launches(self) -> None:
        """Raise DeviceError if the fetched words report a failed launch."""
        if self._words is not None:
            check_words(self._context.queue, self._words.values)


class PendingResults:
    """Asynchronously calls a method that has no updates, and returns the pending results.

    Results are copied to pinned memory if possible, since a copy to other memory may block in the driver.
    """

    def __init__(self, function: DeviceFunction) -> None:
        self._function = function
        self._call = RepeatedMethod(function)
        context = function._state.context
        #: The mirrors for each pending call; the next call uses the first element.
        self._mirrors = [_Mirrors(context) for _ in range(_MOST_PENDING)]

    def begin(self, *args: Any) -> Results:
        """Enqueue a call and return its pending results."""
        results = self._next()
        with self._function._state.turn():
            self._function._state.check_open()
            self._call(*args, call=self._compute)
            results.begin(self._values())
        return results

    def commands(self, *args: Any) -> CommandList | None:
        """Return a call's commands without the copies of results; None if the call must run Python code."""
        # Values that are not device arrays would be copied before the commands compute them.
        are_fetched = all(isinstance(value, Array) and value.flags.c_contiguous for value in self._values())
        return self._call.commands(*args) if are_fetched else None

    def begin_by(self, script: Script, commands: CommandList) -> Results:
        """Add a call's `commands` to a script that must run before the next call, and return the pending results."""
        results = self._next()
        script.enqueue(commands)
        results.begin(self._values(), lambda mirror, value: mirror.fetch_by(script, value))
        return results

    def _next(self) -> Results:
        mirrors = self._mirrors.pop(0)
        self._mirrors.append(mirrors)
        if mirrors.results is not None:
            mirrors.results.fetch()
        mirrors.results = results = Results(mirrors)
        return results

    def _values(self) -> list[Any]:
        return [output.cell[0] for output in self._function._executable.outputs]

    def _compute(self, *args: Any) -> None:
        executable = self._function._executable

        def run(output_subset: Any = None) -> list[Any]:
            executable.take()
            executable.run()
            return [None] * len(executable.outputs)

        self._function._call_with(run, args, {})
