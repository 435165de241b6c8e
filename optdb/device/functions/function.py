"""Functions on a device, which are traced once for each combination of input shapes.

The first call with new shapes computes its results while it is traced. The steps of this call become the nodes of a
:class:`TracedCall`, which `optdb.device.plans` records and repeats. If the trace reads a value
(`FunctionTracer.concrete`), the traced call is valid only for this value. A call applies either all updates or none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from optdb.device.functions.host_parts import Mismatch, Value
from optdb.device.functions.shared_values import Cell
from optdb.device.functions.traced_call import TracedCall
from optdb.device.functions.tracer import FunctionTracer, Retrace, TooMuchWork, shapes_of
from optdb.device.plans import PlanOptions
from optdb.runtime.context import Context
from optdb.runtime.sigint import defer_sigint

#: The maximum number of traced calls that a function keeps; before one more is added, all are discarded.
_MOST_TRACED = 64
#: A call whose arguments have more bytes than this is not executed in the calling thread.
_MOST_BYTES_IN_CALLER = 1 << 20


class TracedFunction:
    """A function on a device.

    Parameters
    ----------
    context : Context
        The context of the device.
    trace : callable
        Takes a `FunctionTracer`, and returns the outputs for the tracer's arguments.
    resident : sequence of bool
        For each argument, whether it is probably the same array in every call.
    options : PlanOptions, optional
        Options for the function's plans, such as how much memory they may take.
    updates : mapping, optional
        Maps an output's number to the position of the input that the output updates.
    """

    def __init__(
        self,
        context: Context,
        trace: Callable[[FunctionTracer], Sequence[Value]],
        resident: Sequence[bool],
        options: PlanOptions | None = None,
        updates: Mapping[int, int] | None = None,
    ) -> None:
        self.context = context
        self._options = options or PlanOptions()
        self._trace = trace
        self._resident = tuple(resident)
        self._updates = dict(updates or {})
        self._traced_calls: dict[Any, list[TracedCall]] = {}

    @property
    def traced_calls(self) -> list[tuple[tuple[tuple[int, ...] | None, ...], TracedCall]]:
        """The traced calls, each with the shapes of its arguments."""
        return [(shapes, call) for shapes, calls in self._traced_calls.items() for call in calls]

    def __call__(self, args: Sequence[Any]) -> list[Any]:
        """Call the function, which must have no updates, and return the outputs for the given arguments."""
        return self.run([[value] for value in args])

    def run(self, cells: Sequence[Cell]) -> list[Any]:
        """Call the function with the arguments in `cells`; store next values in the cells; return the other outputs.

        For each output that is a next value, the result is None.

        Arguments are NumPy arrays of the declared dtypes, device values, or other values.
        """
        with self.context.turn():
            return defer_sigint(self._run, cells) if self._updates else self._run(cells)

    def call_n_times(self, cells: Sequence[Cell], times: int) -> list[Any]:
        """Call the function several times; return the outputs of the last call."""
        with self.context.turn():
            traced = self._fitting(cells)
            if traced is None and times > 1:
                # This call is traced. It may also change the lengths of updated arguments, so look for a traced call
                # again.
                self.run(cells)
                return self.call_n_times(cells, times - 1)
            if traced is not None and not traced.needs_host:
                return traced.repeat(cells, times)
            for _ in range(times - 1):
                self.run(cells)
            return self.run(cells)

    def begin(self, cells: Sequence[Cell]) -> tuple[list[Any], list[Any]]:
        """Begin a call; return its outputs, which may not be computed yet, and the events to wait for."""
        with self.context.turn():
            traced = self._fitting(cells)
            if traced is None or not traced.may_begin:
                return self.run(cells), []
            return defer_sigint(traced.begin, cells)

    def _fitting(self, cells: Sequence[Cell]) -> TracedCall | None:
        for traced in self._traced_calls.get(shapes_of(cells), ()):
            if traced.fits(cells):
                return traced
        return None

    def _run(self, cells: Sequence[Cell]) -> list[Any]:
        traced = self._fitting(cells)
        if traced is not None:
            try:
                return traced.call(cells)
            except Mismatch:
                self._traced_calls[shapes_of(cells)].remove(traced)
        tracer, results = self._traced(cells)
        if len(self.traced_calls) >= _MOST_TRACED:
            self._traced_calls.clear()
        self._traced_calls.setdefault(tracer.shapes, []).append(tracer.traced)
        return results

    def _traced(self, cells: Sequence[Cell]) -> tuple[FunctionTracer, list[Any]]:
        """Trace a call; return the tracer and the results. Calls with little work run in the calling thread."""
        small = self.context.in_caller
        if sum(getattr(cell[0], "nbytes", 0) for cell in cells) > _MOST_BYTES_IN_CALLER:
            small = None
        while True:
            where, most_work = self.context, math.inf
            if small is not None:
                where, most_work = small, self.context.options.most_work_in_caller
            tracer = FunctionTracer(where, cells, self._resident, self._options, self._updates, most_work)
            try:
                return tracer, tracer.finish(self._trace(tracer))
            except TooMuchWork:
                small = None
            except Retrace:
                continue
            except BaseException:
                tracer.traced.return_borrowed()
                raise
