"""What convolutions keep on a device between calls: memory to work in, and tables.

Memory is shared by all convolutions of a context: its commands run one after the other, so
what one has left there, the next may overwrite. It grows to what the largest one takes, and
new memory costs more than most kernels. Tables are small; so many of them are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from optdb.codegen.kernels.launch_cache import LaunchCache
from optdb.runtime.arrays import Array, DeviceArray, empty, from_host
from optdb.runtime.commands import tracing
from optdb.runtime.context import Context
from optdb.runtime.sizes import largest

#: Bytes that the images laid out at a time may take, if one alone does not take more.
LARGEST = 64 * 2**20
#: Arrays begin at multiples of so many bytes.
_ALIGNMENT = 256
#: So many sets of tables are kept.
_KEPT = 256


class Workspace:
    """The memory and the tables of one context."""

    def __init__(self) -> None:
        self._memory: Array | None = None
        self._tables: LaunchCache[Sequence[Any]] = LaunchCache(_KEPT)

    def arrays(self, context: Context, dtype: str, *sizes: int) -> list[Array]:
        """Return arrays of one axis, with nothing certain in them, until the next call.

        Parameters
        ----------
        context : Context
            That of the workspace.
        dtype : str
            Of all of them.
        *sizes : int
            How many elements each has.
        """
        item = np.dtype(dtype).itemsize
        lengths = [-(-size * item // _ALIGNMENT) * _ALIGNMENT for size in sizes]
        total = largest(sum(lengths), _ALIGNMENT)
        # While a function is traced, which is larger may depend on shapes, and places are shared in another way.
        if self._memory is None or tracing() is not None or self._memory.nbytes < total:
            self._memory = None  # given back before more is asked for
            self._memory = empty(context, (total,), "uint8")
        begins = [sum(lengths[:i]) for i in range(len(lengths))]
        return [
            DeviceArray(context.queue, (size,), dtype, data=self._memory.base_data, offset=begin)
            for size, begin in zip(sizes, begins)
        ]

    def tables(self, context: Context, key: Hashable, make: Callable[[], Sequence[Any]]) -> Sequence[Any]:
        """Return what `make` returns, with NumPy arrays moved to the device; the same as before for the same key."""
        return self._tables.get(key, lambda: [_moved(context, value) for value in make()])


def _moved(context: Context, value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return from_host(context, value, constant=True)
    return [_moved(context, part) for part in value] if isinstance(value, list) else value


def workspace(context: Context) -> Workspace:
    """Return the workspace of a context."""
    if __name__ not in context.kept:
        context.kept[__name__] = Workspace()
    return context.kept[__name__]


def images_at_once(context: Context, elements: int, dtype: str, images: int) -> int:
    """Return how many images are laid out at a time.

    Parameters
    ----------
    context : Context
        Where.
    elements : int
        Of one image, laid out.
    dtype : str
        Of these.
    images : int
        How many there are, at least one.
    """
    largest_memory = min(LARGEST, context.profile.max_allocation_bytes // 4)
    most = max(largest_memory // max(elements * np.dtype(dtype).itemsize, 1), 1)
    return images if images <= most else most


def share(n: int, items: int, multiple: int = 1) -> tuple[int, int]:
    """Return how many of at most `items` work items share `n` things, and how many each gets: some `multiple`."""
    each = largest(-(-n // largest(items, 1)), 1)
    each = -(-each // multiple) * multiple
    return -(-n // each), each
