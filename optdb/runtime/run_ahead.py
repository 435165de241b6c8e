"""How far the host may be ahead of a device: `RunAhead`."""

from __future__ import annotations

import time

from optdb.runtime.library import cl

__all__ = ["RunAhead"]

#: How long the device takes for the steps between two markers, at the most.
STRIDE_S = 0.1


class RunAhead:
    """Lets the host be two strides of steps ahead of the device, and no more.

    A driver takes any number of commands, and an interrupt has to wait for all that it has taken. A stride begins as
    one step, and grows until the device takes a tenth of a second for it, so that markers take next to no time.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        The queue of the steps' commands.
    """

    def __init__(self, queue: cl.CommandQueue) -> None:
        self._queue = queue
        self._stride = 1
        self._steps = 0
        self._marker: cl.Event | None = None
        self._marked_at = time.perf_counter()

    def after_step(self) -> None:
        """Count a step whose commands are enqueued; at the end of a stride, wait for the one before."""
        self._steps += 1
        if self._steps < self._stride:
            return
        marker = cl.enqueue_marker(self._queue)
        self._queue.flush()
        if self._marker is not None:
            self._marker.wait()
        now = time.perf_counter()
        self._stride = _next_stride(self._stride, now - self._marked_at)
        self._steps, self._marker, self._marked_at = 0, marker, now


def _next_stride(stride: int, seconds: float) -> int:
    """Return how many steps the next stride has, if the last one took so many seconds."""
    if seconds < STRIDE_S / 2:
        return 2 * stride
    return max(1, stride // 2) if seconds > STRIDE_S else stride
