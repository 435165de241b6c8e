"""What operations keep on a device between calls: memory to work in, and tables.

Memory is shared by all operations of a context: its commands run one after the other, so what one has left there, the
next may overwrite. It grows to what the largest one takes, and new memory costs more than most kernels. Tables are
small; so many of them are kept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from optdb.codegen.kernels.launching import LaunchCache
from optdb.runtime.arrays import Array, DeviceArray, empty, from_host
from optdb.runtime.commands import tracing
from optdb.runtime.sizes import largest

if TYPE_CHECKING:
    from optdb.runtime.context import Context

#: Arrays begin at multiples of so many bytes.
_ALIGNMENT = 256
#: So many sets of tables are kept, and of arrays.
_KEPT = 256
#: By what names a context keeps memory, the arrays that it was divided into, and tables.
MEMORY, LENT, TABLES = (f"{__name__}.{name}" for name in ("memory", "lent", "tables"))
#: Held until all launches that use the memory are in the queue, so that those of another thread come behind them.
_using_memory = threading.RLock()


@contextmanager
def scratch(context: Context, dtype: str, *sizes: int) -> Iterator[list[Array]]:
    """Lend arrays of one axis and these sizes, with nothing certain in them, for what is launched meanwhile."""
    with _using_memory:
        if tracing() is not None:
            # Which is larger may depend on shapes; places are shared in another way.
            lengths = _lengths(dtype, sizes)
            yield _divided(empty(context, (sum(lengths),), np.uint8), dtype, sizes, lengths)
            return
        # To divide memory takes longer than a launch.
        lent = context.kept.setdefault(LENT, {})
        if (dtype, sizes) not in lent:
            lengths = _lengths(dtype, sizes)
            memory = context.kept.get(MEMORY)
            if memory is None or memory.nbytes < sum(lengths):
                context.kept.pop(MEMORY, None)  # given back before more is asked for
                lent.clear()
                memory = None
                memory = context.kept[MEMORY] = empty(context, (sum(lengths),), np.uint8)
            if len(lent) >= _KEPT:
                lent.clear()
            lent[dtype, sizes] = _divided(memory, dtype, sizes, lengths)
        yield lent[dtype, sizes]


def _lengths(dtype: str, sizes: Sequence[int]) -> list[int]:
    """Return how many bytes arrays of some sizes take, up to where the next one begins."""
    item = np.dtype(dtype).itemsize
    return [largest(-(-size * item // _ALIGNMENT), 1) * _ALIGNMENT for size in sizes]


def _divided(memory: Array, dtype: str, sizes: Sequence[int], lengths: Sequence[int]) -> list[Array]:
    begins = [sum(lengths[:i]) for i in range(len(lengths))]
    return [
        DeviceArray(memory.queue, (size,), dtype, data=memory.base_data, offset=begin)
        for size, begin in zip(sizes, begins)
    ]


def tables(context: Context, key: Hashable, make: Callable[[], Sequence[Any]]) -> Sequence[Any]:
    """Return what `make` returns, with NumPy arrays moved to the device; the same as before for the same key."""
    kept = context.kept.setdefault(TABLES, LaunchCache(_KEPT))
    return kept.get(key, lambda: [_moved(context, value) for value in make()])


def _moved(context: Context, value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return from_host(context, value, constant=True)
    return [_moved(context, part) for part in value] if isinstance(value, list) else value
