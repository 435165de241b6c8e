"""Scratch memory and tables that operations keep on a device between calls.

Operations whose launches are enqueued immediately share the scratch memory of their context, which is safe because the
queue runs them in order. If a thread's commands are passed to a listener instead of the queue, each operation gets
memory of its own, because other commands may later run between the commands of the operation.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from optdb.codegen.kernels.launching import LaunchCache
from optdb.runtime.arrays import Array, DeviceArray, empty, from_host
from optdb.runtime.context import Context
from optdb.runtime.dispatch import listening
from optdb.runtime.sizes import largest

#: The alignment of arrays in scratch memory, in bytes.
_ALIGNMENT = 256
#: Maximum number of entries in a context's caches of tables and of lent arrays.
_KEPT = 256
#: The keys under which a context keeps the scratch memory, the arrays in this memory, and tables.
MEMORY, LENT, TABLES = (f"{__name__}.{name}" for name in ("memory", "lent", "tables"))
#: A thread holds this lock until all its launches that use the scratch memory are in the queue.
_using_memory = threading.RLock()


@contextmanager
def scratch(context: Context, dtype: str, *sizes: int) -> Iterator[list[Array]]:
    """Lend uninitialized one-dimensional arrays of these sizes to the launches in a `with` block.

    If this thread's commands are passed to a listener, the arrays are new, and buffer assignment later lets commands
    share memory.
    """
    if listening() is not None:
        lengths = _lengths(dtype, sizes)
        yield _divided(empty(context, (sum(lengths),), np.uint8), dtype, sizes, lengths)
        return
    with _using_memory:
        # Dividing the memory into arrays takes longer than a launch, so the arrays are cached.
        lent = context.kept.setdefault(LENT, {})
        if (dtype, sizes) not in lent:
            lengths = _lengths(dtype, sizes)
            memory = context.kept.get(MEMORY)
            if memory is None or memory.nbytes < sum(lengths):
                context.kept.pop(MEMORY, None)  # release the old memory before a larger array is allocated
                lent.clear()
                memory = None
                memory = context.kept[MEMORY] = empty(context, (sum(lengths),), np.uint8)
            if len(lent) >= _KEPT:
                lent.clear()
            lent[dtype, sizes] = _divided(memory, dtype, sizes, lengths)
        yield lent[dtype, sizes]


def _lengths(dtype: str, sizes: Sequence[int]) -> list[int]:
    item = np.dtype(dtype).itemsize
    return [largest(-(-size * item // _ALIGNMENT), 1) * _ALIGNMENT for size in sizes]


def _divided(memory: Array, dtype: str, sizes: Sequence[int], lengths: Sequence[int]) -> list[Array]:
    begins = [sum(lengths[:i]) for i in range(len(lengths))]
    return [
        DeviceArray(memory.queue, (size,), dtype, data=memory.base_data, offset=begin)
        for size, begin in zip(sizes, begins)
    ]


def tables(context: Context, key: Hashable, make: Callable[[], Sequence[Any]]) -> Sequence[Any]:
    """Return the cached result of `make` for a key, with NumPy arrays moved to the device."""
    cache: LaunchCache[Sequence[Any]] = context.kept.setdefault(TABLES, LaunchCache(_KEPT))
    return cache.get(key, lambda: [_moved(context, value) for value in make()])


def _moved(context: Context, value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return from_host(context, value, constant=True)
    return [_moved(context, part) for part in value] if isinstance(value, list) else value
