"""The memory layout of arrays (shapes and strides), and the division of work among work items.

Strides are in elements, except in `view`, which takes strides in bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from optdb.codegen.kernels import CompiledKernel
from optdb.runtime.arrays import Array, DeviceArray, lies_in_order
from optdb.runtime.context import Context
from optdb.runtime.sizes import as_int, largest, smallest

#: Minimum number of elements per CPU work item: with fewer, starting the item takes longer than its work.
SMALLEST_CHUNK = 2048
#: Chunks per compute unit: with several chunks, one slow compute unit does not delay the launch.
CHUNKS_PER_UNIT = 4


def steps_of(array: Array) -> tuple[int, ...]:
    """Return the strides of `array`, without broadcasting."""
    return tuple([step // array.dtype.itemsize for step in array.strides])


def broadcast_strides(array: Array) -> tuple[int, ...]:
    """Return the strides of `array` for broadcasting: 0 along dimensions of length 1."""
    size = array.dtype.itemsize
    return tuple(0 if length == 1 else step // size for length, step in zip(array.shape, array.strides, strict=True))


def collapse(
    shape: Sequence[int], strides: Sequence[Sequence[int]], ndim: int = 0
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """Return the shape and strides of the same elements in the fewest dimensions, but at least `ndim`.

    Drop dimensions of length 1, and merge neighbours that are contiguous in every array; lengths must not be 0.
    """
    lengths: list[int] = []
    steps: list[tuple[int, ...]] = []
    for length, step in zip(shape, zip(*strides)):
        if length == 1:
            continue
        if lengths and all(outer == inner * length for outer, inner in zip(steps[-1], step)):
            lengths[-1] *= length
            steps[-1] = step
        else:
            lengths.append(length)
            steps.append(step)
    missing = ndim - len(lengths)
    lengths, steps = [1] * missing + lengths, [(0,) * len(strides)] * missing + steps
    return tuple(lengths), tuple(zip(*steps)) if steps else tuple(() for _ in strides)


def share(n: int, items: int, least: int = 1, multiple: int = 1) -> tuple[int, int]:
    """Return how many work items (at most `items`) share `n` tasks, and how many tasks each item gets.

    The number of tasks per item is a multiple of `multiple`.
    """
    each = largest(-(-n // largest(items, 1)), least)
    each = -(-each // multiple) * multiple
    return -(-n // each), each


def chunks(context: Context, n: int, least: int = SMALLEST_CHUNK) -> tuple[int, int]:
    """Divide `n` elements among work items; return the number of items and the chunk size.

    On a CPU, a chunk has at least `least` elements. On other devices, a chunk has one element, so that neighbouring
    items read neighbouring elements.
    """
    if not context.profile.runs_items_serially:
        return n, 1
    return share(n, context.profile.compute_units * CHUNKS_PER_UNIT, least)


def group_size(context: Context, most: int) -> int:
    """Return the largest valid work-group size that is a power of two and at most `most`; 1 if items run serially."""
    profile = context.profile
    return 1 if profile.runs_items_serially else min(most, 1 << (profile.max_local_size.bit_length() - 1))


def teams(context: Context, most: int, tasks: int, items: int) -> tuple[int, int, int]:
    """Return a launch's global and local size, and the size of teams: parts of a group whose items share a task.

    A group has at most `most` items. A team has at least `items` items, unless the whole group is smaller.
    """
    group, team = group_size(context, most), 1
    while team < group and team < items:
        team *= 2
    return -(-tasks // (group // team)) * group, group, team


def launch_chunks(kernel: CompiledKernel, context: Context, n: int, *args: Any, least: int = SMALLEST_CHUNK) -> None:
    """Launch a kernel over the `chunks` of `n` elements; the kernel takes `n`, the chunk size, and `args`."""
    items, chunk = chunks(context, n, least)
    launch_items(kernel, context, items, n, chunk, *args)


def launch_striding(kernel: CompiledKernel, context: Context, n: int, *args: Any) -> None:
    """Launch a kernel whose work items loop over `n` tasks with a grid stride; the kernel takes `n` and `args`.

    A CPU gets eight items per compute unit, in groups of one; other devices get one item per task.
    """
    items = smallest(n, context.profile.compute_units * 8) if context.profile.runs_items_serially else n
    launch_items(kernel, context, items, n, *args)


def launch_items(kernel: CompiledKernel, context: Context, items: int, *args: Any) -> None:
    """Launch a kernel with at least `items` work items; on a CPU, each group has one item."""
    if context.profile.runs_items_serially:
        kernel.call(items, 1, *args)
    else:
        kernel.scall(items, *args)


def view(array: Array, shape: Sequence[int], strides: Sequence[int], offset: int = 0) -> DeviceArray:
    """Return a view of an array; its strides, and its offset from the array's first element, are in bytes."""
    shape = tuple(map(as_int, shape))
    if 0 in shape:
        return DeviceArray(array.queue, shape, array.dtype)
    return DeviceArray(
        array.queue,
        shape,
        array.dtype,
        data=array.base_data,
        offset=array.offset + as_int(offset),
        strides=tuple(map(as_int, strides)),
    )


def with_axis(array: Array, axis: int) -> DeviceArray:
    """Return a view of an array with a new axis of length 1."""
    shape, strides = list(array.shape), list(array.strides)
    shape.insert(axis, 1)
    strides.insert(axis, array.dtype.itemsize)
    return view(array, shape, strides)


def is_contiguous(array: Array, leading: int = 0) -> bool:
    """Return whether an array is C-contiguous except in its `leading` axes, which may have any strides."""
    return not array.size or lies_in_order(array.shape[leading:], array.strides[leading:], array.dtype.itemsize)


def size_of(shape: Sequence[int]) -> int:
    """Return the number of elements in an array of the given shape."""
    return math.prod(map(as_int, shape))


def check_shapes(op: Any, wanted: Sequence[int], given: Sequence[int]) -> None:
    """Raise ValueError if two shapes differ."""
    if tuple(wanted) != tuple(given):
        raise ValueError(f"{op} got arrays of shapes {tuple(wanted)} and {tuple(given)}, which must be equal")
