"""Rows put in order, with the places where their elements were: a stable sort by merging.

First, blocks of each row are sorted: a processor's work item inserts the elements of a
small block one after the other; on a graphics card, a group sorts a larger one by a
bitonic network in local memory, in which places tell equals apart. Then pairs of sorted
runs are merged, pass by pass, from one buffer to another. An item writes one segment of
a merged run, wherever that begins: it finds by bisection how many elements of each run
come before. So all passes have work for all units, and any length will do.

Who wants but the first elements of each row says so: no pass merges more.

References
----------
K. Batcher, Sorting networks and their applications (1968); S. Odeh et al., Merge Path -
Parallel merging made simple (2012).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from optdb.codegen.kernels import ARRAY, SIZE, CompiledKernel, Kernel, ctype
from optdb.codegen.layout import CHUNKS_PER_UNIT
from optdb.codegen.scalars.types import c_type
from optdb.codegen.sort.merge_code import BEFORE, BEFORE_OR_NAN, BITONIC, COMMON, INSERTION, MERGE, VALUE, VALUE_OF_HALF
from optdb.runtime.arrays import Array, empty

if TYPE_CHECKING:
    from optdb.runtime.context import Context
    from optdb.runtime.device_profiles import DeviceKind

#: Elements of a block that is sorted by itself; powers of two.
BLOCK = {"cpu": 32, "gpu": 256}
#: The most elements that a work item merges at a time, and the fewest on a processor.
SEGMENT = {"cpu": 4096, "gpu": 16}

#: Orders, as kernels know them. What is no number is the largest, as in NumPy: it comes last in ascending order.
ASCENDING, DESCENDING = 0, 1
#: As ascending, but what is no number comes first: to NumPy it is the smallest element of an array, too.
NAN_FIRST = 2


def sorting_kernels(dtype: str, order: int | None, places: bool, device_kind: DeviceKind) -> list[Kernel]:
    """Return the kernels that `sort_rows` launches.

    Parameters
    ----------
    dtype : str
        Of the elements; real.
    order : {ASCENDING, DESCENDING, NAN_FIRST}, optional
        Which element comes first; if it is not given, each launch says so.
    places : bool
        Whether to keep account of where the elements were.
    device_kind : {'cpu', 'gpu'}
        Of the context.
    """
    half = dtype == "float16"
    code = COMMON + (INSERTION if device_kind == "cpu" else BITONIC) + MERGE
    text = code.format(
        places=int(places),
        block=BLOCK[device_kind],
        stored="ushort" if half else ctype(dtype),
        work="int" if half else c_type(dtype),
        value=VALUE_OF_HALF if half else VALUE.format(stored=ctype(dtype), work=c_type(dtype)),
        before=BEFORE_OR_NAN if np.dtype(dtype).kind == "f" else BEFORE,
        order="given" if order is None else order,
    )
    flags = Kernel.get_flags(dtype)
    once, twice = [ARRAY] * places, [ARRAY, ARRAY] * places
    return [
        Kernel(text, "blocks", ["int32", *([SIZE] * 3), ARRAY, ARRAY, *once], flags),
        Kernel(text, "merge", ["int32", *([SIZE] * 6), ARRAY, ARRAY, *twice], flags),
    ]


def sort_rows(
    kernels: Mapping[str, CompiledKernel],
    context: Context,
    x: Array,
    values: Array,
    places: Array | None = None,
    keep: int | None = None,
    order: int = ASCENDING,
) -> None:
    """Sort the rows of an array.

    Parameters
    ----------
    kernels : mapping
        Those of `sorting_kernels`, compiled.
    context : Context
        Where they run.
    x : Array
        In C order, not empty; a row goes along the last axis.
    values : Array
        For the elements in order. It shares no memory with `x`, and has its shape.
    places : Array, optional
        For where each of them was in its row: int64. Wanted if the kernels keep account of it.
    keep : int, optional
        How many elements of each row are wanted; all if it is not given. What comes after them is anything.
    order : {ASCENDING, DESCENDING, NAN_FIRST}
        Which element comes first; the one that the kernels were made for, if they were made for one.
    """
    n = x.shape[-1]
    rows = x.size // n
    block = BLOCK[context.profile.device_kind]
    passes = _passes(n, block)
    buffers = [(values, *([] if places is None else [places]))]
    if passes:
        buffers.append(tuple(empty(context, a.shape, a.dtype) for a in buffers[0]))
    # The last pass has to end in what was given.
    target = buffers[passes % 2]
    _sort_blocks(kernels["blocks"], context, order, rows, n, x, target)
    width = block
    for done in range(1, passes + 1):
        source, target = target, buffers[(passes - done) % 2]
        _merge(kernels["merge"], context, order, rows, n, width, n if keep is None else keep, source, target)
        width *= 2


def _passes(n: int, block: int) -> int:
    """Return how often neighbours are merged, until what was sorted in blocks is sorted as a whole."""
    passes = 0
    while block << passes < n:
        passes += 1
    return passes


def _sort_blocks(
    kernel: CompiledKernel, context: Context, order: int, rows: int, n: int, x: Array, target: tuple[Array, ...]
) -> None:
    block = BLOCK[context.profile.device_kind]
    count = rows * -(-n // block)
    if context.profile.runs_items_serially:
        each = max(-(-count // _pieces(context)), 8)
        kernel.call(-(-count // each), 1, order, rows, n, each, x, *target)
        return
    group = min(block // 2, context.profile.max_local_size)
    kernel.call(count * group, group, order, rows, n, 1, x, *target)


def _merge(
    kernel: CompiledKernel,
    context: Context,
    order: int,
    rows: int,
    n: int,
    width: int,
    keep: int,
    source: tuple[Array, ...],
    target: tuple[Array, ...],
) -> None:
    segment = min(2 * width, SEGMENT[context.profile.device_kind])
    count = rows * -(-n // segment)
    arrays = [array for pair in zip(source, target, strict=True) for array in pair]
    if context.profile.runs_items_serially:
        each = -(-count // _pieces(context))
        kernel.call(-(-count // each), 1, order, rows, n, width, segment, keep, each, *arrays)
    else:
        kernel.scall(count, order, rows, n, width, segment, keep, 1, *arrays)


def _pieces(context: Context) -> int:
    """Return how many work items share the work of a processor."""
    return context.profile.compute_units * CHUNKS_PER_UNIT
