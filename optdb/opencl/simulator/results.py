"""Pending results of a method, which the host waits for later (`PendingResults`)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from optdb.lifters.transfers import record_transfer
from optdb.opencl.simulator.execution.io_binding import RESULTS
from optdb.opencl.simulator.execution.merging import RepeatedMethod
from optdb.runtime.arrays import Array, DeviceArray, deep_copy, to_host
from optdb.runtime.context import Context
from optdb.runtime.fetching import HostMirror
from optdb.runtime.grid_failures import WORD_COUNT, check_words, known_words
from optdb.runtime.scripts import Arrival

if TYPE_CHECKING:
    from optdb.opencl.simulator.device_function import DeviceFunction
    from optdb.runtime.commands import CommandList
    from optdb.runtime.scripts import Script

__all__ = ["PendingResults", "Results"]

#: Starts copying an array to a mirror and returns the copy's event.
Fetch = Callable[[HostMirror, Array], Any]
#: Maximum number of calls with pending results; another call first fetches the oldest results.
_MOST_PENDING = 2


class Results:
    """Results of one call, which may still be on their way to the host. Any thread may wait for them, repeatedly."""

    def __init__(self, mirrors: _Mirrors) -> None:
        self._mirrors = mirrors
        #: For each output: either its value, or its shape and mirror.
        self._begun: list[tuple[Any, tuple[int, ...], HostMirror | None]] = []
        self._copies: list[Any] = []
        self._lock = threading.Lock()
        self._values: list[Any] | None = None
        self._error: Exception | None = None

    def wait(self) -> list[Any]:
        """Wait for the results and return them, without waiting for later commands on the device."""
        self.fetch()
        if self._error is not None:
            raise self._error
        assert self._values is not None
        return self._values

    def fetch(self) -> None:
        """Copy the results out of the mirrors, which another call may then reuse; errors are raised by `wait`."""
        with self._lock:
            if self._values is not None or self._error is not None:
                return
            try:
                Arrival(self._copies).wait()
                self._mirrors.check_launches()
                self._values = [
                    value if mirror is None else mirror.values.reshape(shape).copy()
                    for value, shape, mirror in self._begun
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
    """The host memory for the results of one call at a time."""

    def __init__(self, context: Context) -> None:
        self._context = context
        #: Maps an output's index to its mirror.
        self._of_outputs: dict[int, HostMirror] = {}
        #: Mirror of the status words of persistent launches; None before the first such launch.
        self._words: HostMirror | None = None
        self.results: Results | None = None

    def of(self, number: int, value: Array) -> HostMirror:
        """Return an output's mirror."""
        mirror = self._of_outputs.get(number)
        if mirror is None or not mirror.fits(np.dtype(value.dtype), value.size):
            mirror = self._of_outputs[number] = HostMirror(self._context, value.dtype, value.size)
        return mirror

    def fetch_words(self, fetch: Fetch) -> list[Any]:
        """Start copying the status words of persistent launches; return the events of the copies."""
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
    """Calls a method repeatedly; the host may do other work before it waits for the results.

    Results are copied to pinned memory if the device supports it, since a copy to other memory may block in the driver.

    Parameters
    ----------
    function : DeviceFunction
        A method without updates.
    """

    def __init__(self, function: DeviceFunction) -> None:
        self._function = function
        self._call = RepeatedMethod(function)
        context = function._state.context
        #: The mirrors; the mirrors for the next call come first.
        self._mirrors = [_Mirrors(context) for _ in range(_MOST_PENDING)]

    def begin(self, *args: Any) -> Results:
        """Enqueue a call and return its pending results.

        Parameters
        ----------
        *args : array-like
            The arguments of the method.
        """
        results = self._next()
        with self._function._state.turn():
            self._function._state.check_open()
            self._call(*args, call=self._compute)
            results.begin(self._values())
        return results

    def commands(self, *args: Any) -> CommandList | None:
        """Return a call's commands without the copies of results; None if the call needs Python."""
        # Values of other kinds would be copied before the commands compute them.
        are_fetched = all(isinstance(value, Array) and value.flags.c_contiguous for value in self._values())
        return self._call.commands(*args) if are_fetched else None

    def begin_by(self, script: Script, commands: CommandList) -> Results:
        """Add a call's `commands` to a script and return the results. The script must run before the next call."""
        results = self._next()
        script.enqueue(commands)
        results.begin(self._values(), lambda mirror, value: mirror.fetch_by(script, value))
        return results

    def _next(self) -> Results:
        """Return a `Results` object for a new call."""
        mirrors = self._mirrors.pop(0)
        self._mirrors.append(mirrors)
        if mirrors.results is not None:
            mirrors.results.fetch()
        mirrors.results = results = Results(mirrors)
        return results

    def _values(self) -> list[Any]:
        """Return the last call's outputs, still on the device."""
        return [output.cell[0] for output in self._function._executable.outputs]

    def _compute(self, *args: Any) -> None:
        """Call the method and leave the results on the device."""
        executable = self._function._executable

        def run(output_subset: Any = None) -> list[Any]:
            executable.take()
            executable.run()
            return [None] * len(executable.outputs)

        self._function._call_with(run, args, {})
