"""Values that are on their way to a device or from it while Python goes on.

What is on its way is an event of PyOpenCL, which holds on to the host's memory; whoever drops it waits for it.
A :class:`CommandRange` takes the device's own times of what is put into a queue between its making and its `stop`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from optdb.runtime.arrays import Array, empty, to_host
from optdb.runtime.context import Context
from optdb.runtime.library import cl
from optdb.runtime.timing import timed_beside

__all__ = ["CommandRange", "Times", "fetch", "send"]


def send(context: Context, value: np.ndarray, out: Array | None = None) -> tuple[Array, Any]:
    """Begin to copy a NumPy array, of any strides, to the device.

    Parameters
    ----------
    context : Context
        Where to.
    value : numpy.ndarray
        The values. They may be changed as soon as this returns.
    out : Array, optional
        An array to overwrite, of the same shape and dtype, and contiguous.

    Returns
    -------
    array : Array
        Where they will be for what comes later in the queue.
    event : pyopencl.Event or None
        Done when they are there; None if there is nothing to copy.
    """
    if out is None:
        out = empty(context, value.shape, value.dtype)
    if not value.size:
        return out, None
    own = np.array(value, order="C")
    return out, cl.enqueue_copy(context.queue, out.base_data, own, dst_offset=out.offset, is_blocking=False)


def fetch(array: Array) -> tuple[np.ndarray, Any]:
    """Begin to copy an array from the device; one that does not lie in C order is waited for.

    Returns
    -------
    value : numpy.ndarray
        Where the values will be, in C order.
    event : pyopencl.Event or None
        Done when they are there; None if they are there already.
    """
    if not (array.size and array.flags.c_contiguous):
        return to_host(array), None
    out = np.empty(array.shape, array.dtype)
    return out, cl.enqueue_copy(array.queue, out, array.base_data, src_offset=array.offset, is_blocking=False)


@dataclass(frozen=True)
class Times:
    """When a device did something, in nanoseconds by its own clock.

    Parameters
    ----------
    queued : int
        It was asked for.
    submitted : int
        The driver handed it to the device.
    start : int
        All that came before it was done.
    end : int
        It was done.
    """

    queued: int
    submitted: int
    start: int
    end: int


class CommandRange:
    """What is put into a context's queue from now on, until `stop`.

    The queue takes no times. Another one does, of marks that wait for marks in the first.

    Parameters
    ----------
    context : Context
        Whose queue.
    """

    def __init__(self, context: Context) -> None:
        self._queue = context.queue
        self._clock = context.kept.get(__name__)
        if self._clock is None:
            self._clock = context.kept[__name__] = timed_beside(self._queue)
        self._first = self._mark()
        self._last: Any = None

    def stop(self) -> None:
        """End the span, and see to it that the device begins with it."""
        self._last = self._mark()
        self._queue.flush()
        self._clock.flush()

    @property
    def done(self) -> bool:
        """Whether the device has done all of it."""
        return self._last.command_execution_status <= cl.command_execution_status.COMPLETE

    def wait(self) -> None:
        """Wait until it is done.

        Raises
        ------
        pyopencl.Error
            If the device failed.
        """
        self._last.wait()

    def times(self) -> Times:
        """Wait until it is done, and tell when that was."""
        self.wait()
        first, last = self._first.profile, self._last.profile
        return Times(first.queued, first.submit, first.end, last.end)

    def _mark(self) -> Any:
        return cl.enqueue_marker(self._clock, wait_for=[cl.enqueue_marker(self._queue)])
