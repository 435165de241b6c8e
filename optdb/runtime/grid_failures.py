"""The counters of persistent launches, and the error for a launch whose groups are not all resident.

A group that has waited too long sets the failure flag, which ends the launch and all later launches in the context. The
host reads the flag when it waits for results, so it never returns results of a failed launch.
"""

from __future__ import annotations

import numpy as np

from optdb.numpy_types import HostArray
from optdb.runtime.errors import DeviceError
from optdb.runtime.library import cl

WORD_COUNT = 3
_NO_WORDS = np.zeros(WORD_COUNT, np.uint32)
#: Maps the handle of each context with persistent launches to a buffer with the context's counters and failure flag;
#: the buffer keeps the context alive.
_words: dict[int, cl.Buffer] = {}


def grid_words(context: cl.Context) -> cl.Buffer:
    """Return a context's counters and failure flag (``grid_barriers``)."""
    handle = context.int_ptr
    if handle not in _words:
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        # Concurrent threads must get the same buffer.
        _words.setdefault(handle, cl.Buffer(context, flags, hostbuf=_NO_WORDS))
    return _words[handle]


def known_words(queue: cl.CommandQueue) -> cl.Buffer | None:
    """Return the counters and failure flag of a queue's context; None if the context has had no persistent launches."""
    return _words.get(queue.context.int_ptr) if _words else None


def check_launches(queue: cl.CommandQueue, reader: cl.CommandQueue | None = None) -> None:
    """Raise DeviceError if a persistent launch in a queue failed.

    The failure flag is read in another queue, `reader`, which does not wait for later commands in `queue`.
    """
    words = known_words(queue)
    if words is not None:
        check_words(queue, _read(reader or queue, words))


def finish_queue(queue: cl.CommandQueue) -> None:
    """Wait for a queue; raise DeviceError if a persistent launch in the queue failed."""
    if _words:
        check_launches(queue)
    queue.finish()


def forget_words(queue: cl.CommandQueue) -> None:
    """Wait for a context's queue when the context ends, and drop the context's counters unless a launch failed."""
    words = known_words(queue)
    if words is not None and not _read(queue, words)[-1]:
        del _words[queue.context.int_ptr]


def _read(queue: cl.CommandQueue, words: cl.Buffer) -> HostArray:
    values = np.empty_like(_NO_WORDS)
    cl.enqueue_copy(queue, values, words, is_blocking=True)
    return values


def check_words(queue: cl.CommandQueue, values: HostArray) -> None:
    """Raise DeviceError if `values`, the counters and failure flag of a queue's context, report a failed launch."""
    if not values[-1]:
        return
    cl.enqueue_copy(queue, grid_words(queue.context), _NO_WORDS, is_blocking=True)
    raise DeviceError(
        f"a persistent launch on {queue.device.name.strip()} was aborted: its work groups waited too long for each "
        f"other, and only {values[0]} reached a barrier. Shared variables of the functions called since the last "
        "result was read have undefined values.\n"
        "The cure: set or load them again, and run with THEANO_FLAGS=optdb.persistent_launches=never"
    )
