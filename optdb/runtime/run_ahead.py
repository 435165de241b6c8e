"""A limit on how far the host may run ahead of a device: `RunAhead`."""

from __future__ import annotations

import time

from optdb.runtime.library import cl

__all__ = ["RunAhead"]

#: The maximum time in seconds that the device takes for the steps between two markers.
STRIDE_S = 0.1


class RunAhead:
    """Lets the host run at most two strides of steps ahead of the device, because an interrupt waits for all commands.

    A stride grows until it takes a tenth of a second, which makes the overhead of markers negligible.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        The queue on which the steps enqueue their commands.
    """

    def __init__(self, queue: cl.CommandQueue) -> None:
        self._queue = queue
        self._stride = 1
        self._steps = 0
        self._marker: cl.Event | None = None
        self._marked_at = time.perf_counter()

    def after_step(self) -> None:
        """Count a step whose commands are enqueued. At the end of a stride, wait for the previous stride."""
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
    if seconds < STRIDE_S / 2:
        return 2 * stride
    return max(1, stride // 2) if seconds > STRIDE_S else stride
