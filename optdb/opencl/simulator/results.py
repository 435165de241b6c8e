"""Results of a method that nobody waits for yet (`PendingResults`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from optdb.lifters.transfers import record_transfer
from optdb.opencl.simulator.execution.io_binding import RESULTS
from optdb.opencl.simulator.execution.merging import RepeatedMethod
from optdb.runtime.arrays import Array, deep_copy, to_host
from optdb.runtime.grid_failures import check_launches
from optdb.runtime.mirrors import HostMirror, finish_event
from optdb.runtime.sigint import defer_sigint

if TYPE_CHECKING:
    from optdb.opencl.simulator.device_function import DeviceFunction

__all__ = ["PendingResults"]


class PendingResults:
    """Calls a method again and again, and lets the host do something else before it waits for the results.

    They are copied into pinned memory, where the device has such memory: elsewhere a driver may wait by itself.

    Parameters
    ----------
    function : DeviceFunction
        A method without updates.
    """

    def __init__(self, function: DeviceFunction) -> None:
        self._function = function
        self._call = RepeatedMethod(function)
        self._context = function._state.context
        self._mirrors: dict[int, HostMirror] = {}
        #: For each output, its value or else its shape and its mirror.
        self._begun: list[tuple[Any, tuple[int, ...], HostMirror | None]] = []
        self._events: list[Any] = []

    def begin(self, *args: Any) -> None:
        """Enqueue what a call does.

        Parameters
        ----------
        *args : array-like
            The arguments of the method.
        """
        self._begun, self._events = [], []
        with self._function._state:
            self._call(*args, call=self._compute)
            for number, output in enumerate(self._function._executable.outputs):
                self._fetch(number, output.cell[0])

    @property
    def is_begun(self) -> bool:
        """Whether there are results to wait for."""
        return bool(self._begun)

    def end(self) -> list[Any]:
        """Wait for the results of the last call; return them."""
        for event in self._events:
            finish_event(event)
        check_launches(self._context.queue)
        begun, self._begun, self._events = self._begun, [], []
        return [value if mirror is None else mirror.values.reshape(shape).copy() for value, shape, mirror in begun]

    def _compute(self, *args: Any) -> None:
        """Leave the results on the device."""
        executable = self._function._executable

        def run(output_subset: Any = None) -> list[Any]:
            with defer_sigint():
                executable.take()
                executable.run()
            return [None] * len(executable.outputs)

        self._function._call_with(run, args, {})

    def _fetch(self, number: int, value: Any) -> None:
        if not (isinstance(value, Array) and value.size and value.flags.c_contiguous):
            self._begun.append((to_host(value) if isinstance(value, Array) else deep_copy(value), (), None))
            return
        mirror = self._mirrors.get(number)
        if mirror is None or not mirror.fits(np.dtype(value.dtype), value.size):
            mirror = self._mirrors[number] = HostMirror(self._context, value.dtype, value.size)
        record_transfer(RESULTS, value.nbytes)
        self._events.append(mirror.fetch(value))
        self._begun.append((None, value.shape, mirror))
