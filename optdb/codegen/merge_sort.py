"""A stable merge sort of rows, which can also return indexes.

First, blocks of each row are sorted: by insertion on a CPU, or with a bitonic network in local memory on a GPU. Then
pairs of sorted runs are merged, pass by pass; a work item writes one segment, which it finds by bisection. Sources: K.
Batcher, Sorting networks and their applications (1968); S. Odeh et al., Merge Path (2012).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from optdb.codegen.kernels import CompiledKernel, Kernel, ctype
from optdb.codegen.layout import chunks, launch_items
from optdb.codegen.scalars.types import c_type
from optdb.codegen.source import filled, functions
from optdb.runtime.arrays import Array, empty

if TYPE_CHECKING:
    from optdb.runtime.context import Context
    from optdb.runtime.device_profiles import DeviceKind

#: Number of elements in an initial sorted block, by device kind; powers of two.
BLOCK = {"cpu": 32, "gpu": 256}
#: Maximum number of elements in the segment that a work item merges, by device kind.
SEGMENT = {"cpu": 4096, "gpu": 16}

#: The numbers by which kernels take orders. As in NumPy, NaN is the largest, so it comes last in ascending order.
ASCENDING, DESCENDING = 0, 1
#: Ascending, with NaN first: for NumPy's minimum, NaN is the smallest element.
NAN_FIRST = 2


def sorting_kernels(dtype: str, order: int | None, indices: bool, device_kind: DeviceKind) -> list[Kernel]:
    """Return the kernels that `sort_rows` launches, for elements of a real dtype.

    If the order is None, each launch passes it. `indices` says whether the kernels also return indexes.
    """
    half, real = dtype == "float16", np.dtype(dtype).kind == "f"
    used = {
        "VALUE_OF": "value_of_half" if half else "value_of",
        "IS_NAN": "is_nan_half" if half else "is_nan",
        "BEFORE": "before_or_nan" if real else "before",
    }
    words = {
        "T": "ga_ushort" if half else ctype(dtype),
        "W": "int" if half else c_type(dtype),
        **used,
        "BLOCK": BLOCK[device_kind],
        "ORDER": "given" if order is None else order,
        "INDICES": int(indices),
        "INDICES_FROM": ", ARRAY ga_long *p" * indices,
        "INDICES_TO": ", ARRAY ga_long *q" * indices,
    }
    names = [used["VALUE_OF"], *[used["IS_NAN"]] * real, used["BEFORE"], *["precedes"] * (device_kind == "gpu")]
    code = functions("merge_sort.cl")
    text = "".join(code[name] for name in (*names, f"blocks_on_{device_kind}", "merge"))
    return Kernel.all_of(filled(text, **words))


def sort_rows(
    kernels: Mapping[str, CompiledKernel],
    context: Context,
    x: Array,
    values: Array,
    indices: Array | None = None,
    keep: int | None = None,
    order: int = ASCENDING,
) -> None:
    """Sort the rows of an array, along its last axis, with the kernels of `sorting_kernels`.

    `x` is C-contiguous and not empty. `values` receives the sorted elements, and `indices` (int64) each element's index
    in its row, if the kernels return indexes. With `keep`, only the first elements of each row are defined.
    """
    n = x.shape[-1]
    rows = x.size // n
    block = BLOCK[context.profile.device_kind]
    passes = _passes(n, block)
    buffers = [(values, *([] if indices is None else [indices]))]
    if passes:
        buffers.append(tuple(empty(context, a.shape, a.dtype) for a in buffers[0]))
    # The last pass must write to the caller's arrays.
    target = buffers[passes % 2]
    blocks = kernels[f"blocks_on_{context.profile.device_kind}"]
    items, each = chunks(context, rows * -(-n // block), least=8)
    group = 1 if context.profile.runs_items_serially else min(block // 2, context.profile.max_local_size)
    blocks.call(items * group, group, order, rows, n, each, x, *target)
    for done in range(1, passes + 1):
        source, target = target, buffers[(passes - done) % 2]
        width = block << (done - 1)
        segment = min(2 * width, SEGMENT[context.profile.device_kind])
        items, each = chunks(context, rows * -(-n // segment), least=1)
        arrays = [array for pair in zip(source, target, strict=True) for array in pair]
        numbers = [order, rows, n, width, segment, n if keep is None else keep, each]
        launch_items(kernels["merge"], context, items, *numbers, *arrays)


def _passes(n: int, block: int) -> int:
    passes = 0
    while block << passes < n:
        passes += 1
    return passes
