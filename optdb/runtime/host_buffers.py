"""Mapped buffers, and zero-copy buffers over NumPy arrays on devices that share the host's memory.

Each call wraps its arrays again, since some drivers read an array only when they create the buffer. After
:func:`sync_to_host`, the array contains the device's writes.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from optdb.numpy_types import AnyDtype, HostArray
from optdb.runtime.context import Context
from optdb.runtime.grid_failures import check_launches
from optdb.runtime.library import cl

_BYTE = np.dtype("uint8")
#: The minimum size in bytes for which wrapping an array is cheaper than copying it.
MIN_ZERO_COPY_BYTES = 1 << 16


def pays_zero_copy(nbytes: int) -> bool:
    """Return whether wrapping an array of this size is cheaper than copying it."""
    return nbytes >= MIN_ZERO_COPY_BYTES


def wrap_host_array(context: Context, value: HostArray, writes: bool = False) -> cl.Buffer | None:
    """Wrap an array's memory in a buffer; if the device `writes` to the buffer, the array must be writable.

    Until the commands that use the buffer are complete, only the device may change the array, and the caller must keep
    the buffer alive. Return None if the device has its own memory, or if the array is small, not C-contiguous,
    byte-swapped or misaligned.
    """
    if not (context.profile.shares_host_memory and pays_zero_copy(value.nbytes) and _lies_well(context, value)):
        return None
    access = cl.mem_flags.READ_WRITE if writes else cl.mem_flags.READ_ONLY
    try:
        return cl.Buffer(context.cl_context, access | cl.mem_flags.USE_HOST_PTR, hostbuf=value)
    except (cl.MemoryError, cl.LogicError):
        return None


def sync_to_host(context: Context, buffer: cl.Buffer) -> None:
    """Wait for the device's queue, and make the device's writes to a buffer visible to the host."""
    queue = context.queue
    if context.profile.writes_wrapped_arrays_directly:  # mapping would take longer than waiting
        queue.finish()
        check_launches(queue)
        return
    check_launches(queue)
    unmap(queue, map_buffer(queue, buffer, cl.map_flags.READ, 0, buffer.size))


def map_buffer(
    queue: cl.CommandQueue, buffer: cl.Buffer, access: int, start: int, size: int, dtype: AnyDtype = _BYTE
) -> HostArray:
    """Wait for a queue, and map `size` elements of a buffer, starting at byte `start`.

    `access` is READ or WRITE from `pyopencl.map_flags`, or both.
    """
    memory: HostArray
    # PyOpenCL's type hints cover neither combined flags nor the returned event.
    flags = cast("cl.map_flags", access)
    memory, _ = cl.enqueue_map_buffer(queue, buffer, flags, start, (size,), dtype, is_blocking=True)
    return memory


def unmap(queue: cl.CommandQueue, memory: HostArray) -> None:
    """Unmap elements that `map_buffer` returned."""
    mapping: Any = memory.base
    mapping.release(queue)


def _lies_well(context: Context, value: HostArray) -> bool:
    flags = value.flags
    if not (flags.c_contiguous and flags.aligned and value.dtype.isnative):
        return False
    # CPU devices allow unaligned loads; kernels for other devices may load several numbers at once, which requires
    # alignment.
    return context.profile.reads_unaligned or value.ctypes.data % context.profile.base_alignment_bytes == 0
