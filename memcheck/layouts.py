"""Creates device arrays in several memory layouts; the last element is always at the end of the buffer.

An access even one element beyond the end is therefore outside the buffer, and is detected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from optdb.runtime.arrays import Array, DeviceArray, from_host

if TYPE_CHECKING:
    from optdb.runtime.context import Context

PLAIN, TURNED, GAPS, BACKWARDS = "plain", "turned", "gaps", "backwards"

#: The memory layouts: C order, Fortran order, gaps between elements and an offset, or all axes reversed.
LAYOUTS = (PLAIN, TURNED, GAPS, BACKWARDS)

#: Offset, in elements, of the first element of an array with gaps.
OFFSET = 3


def laid_out(context: Context, value: np.ndarray, layout: str) -> Array:
    """Return a device array that has the given values in one of `LAYOUTS`."""
    if not value.size or layout == PLAIN:
        return from_host(context, np.ascontiguousarray(value).reshape(value.shape))
    steps = _steps(value.shape, layout)
    reach = [step * (length - 1) for step, length in zip(steps, value.shape)]
    first = (OFFSET if layout == GAPS else 0) - sum(step for step in reach if step < 0)
    base = np.zeros(first + 1 + sum(step for step in reach if step > 0), value.dtype)
    strides = tuple(step * value.itemsize for step in steps)
    np.ndarray(value.shape, value.dtype, base, first * value.itemsize, strides)[...] = value
    memory = from_host(context, base)
    return DeviceArray(
        context.queue, value.shape, value.dtype, data=memory.base_data, offset=first * value.itemsize, strides=strides
    )


def _steps(shape: tuple[int, ...], layout: str) -> list[int]:
    """Return strides, in elements."""
    axes = range(len(shape)) if layout == TURNED else reversed(range(len(shape)))
    step = {TURNED: 1, GAPS: 2, BACKWARDS: -1}[layout]
    steps = [0] * len(shape)
    for axis in axes:
        steps[axis] = step
        step *= shape[axis]
    return steps
