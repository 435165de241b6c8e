"""NumPy arrays that a device works in where they lie, if it shares the host's memory.

A buffer that is made of an array's memory (`lend`) costs a microsecond, whatever its size. Nobody copies into it or out
of it: for who computes, it is a buffer as any other. It is made anew each time, since a driver may look at what is in
the array when it is made. The device has written what it computes there when :func:`arrived` returns.
"""

from __future__ import annotations

import numpy as np

from optdb.runtime.context import Context
from optdb.runtime.library import cl

__all__ = ["WORTH", "arrived", "is_worth_it", "lend"]

#: In bytes: what is smaller is copied sooner than it is seen to that it need not be.
WORTH = 1 << 16


def is_worth_it(nbytes: int) -> bool:
    """Tell whether it pays not to copy so many bytes."""
    return nbytes >= WORTH


def lend(context: Context, value: np.ndarray, writes: bool = False) -> cl.Buffer | None:
    """Let a device use an array's memory.

    Parameters
    ----------
    context : Context
        Whose device.
    value : numpy.ndarray
        It must not be changed until the device is done, but for what the device writes. It lives as long as the buffer
        does, which has to live until then.
    writes : bool
        Whether the device writes into it; else it may be read-only.

    Returns
    -------
    pyopencl.Buffer or None
        The array's memory; None if the numbers have to be copied: the device has memory of its own, the array is small,
        does not lie in C order, has the other byte order or begins at an odd place, or the driver refuses it.
    """
    if not (context.profile.shares_host_memory and is_worth_it(value.nbytes) and _lies_well(context, value)):
        return None
    access = cl.mem_flags.READ_WRITE if writes else cl.mem_flags.READ_ONLY
    try:
        return cl.Buffer(context.cl_context, access | cl.mem_flags.USE_HOST_PTR, hostbuf=value)
    except (cl.MemoryError, cl.LogicError):
        return None


def arrived(context: Context, buffer: cl.Buffer) -> None:
    """Wait until the device has done all that was put into its queue, and the host sees what it wrote into a buffer."""
    queue = context.queue
    if context.profile.writes_wrapped_arrays_directly:  # to map it would take longer than to wait
        queue.finish()
        return
    memory, _ = cl.enqueue_map_buffer(queue, buffer, cl.map_flags.READ, 0, (buffer.size,), np.uint8, is_blocking=True)
    memory.base.release(queue)


def _lies_well(context: Context, value: np.ndarray) -> bool:
    flags = value.flags
    if not (flags.c_contiguous and flags.aligned and value.dtype.isnative):
        return False
    # Processors read numbers wherever they are; kernels for others may take several at once.
    return context.profile.reads_unaligned or value.ctypes.data % context.profile.base_alignment_bytes == 0
