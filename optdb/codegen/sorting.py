"""Sorting along an axis: sort, argsort and top-k, by a stable merge sort of rows.

First, blocks of each row are sorted: by insertion on a CPU, or with a bitonic network in local memory on a GPU. Then
pairs of sorted runs are merged, pass by pass; a work item writes one segment, which it finds by bisection. Sources: K.
Batcher, Sorting networks and their applications (1968); S. Odeh et al., Merge Path (2012).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optdb.codegen.elements import ElementKernels, contiguous, copying
from optdb.codegen.elementwise import ElementCode, Operand
from optdb.codegen.kernels import CompiledKernel, Kernel, ctype
from optdb.codegen.layout import chunks, launch_items, view
from optdb.codegen.operation import ArraySpec, Kernels, Operation, Outputs, output_array
from optdb.codegen.scalars.types import c_type
from optdb.codegen.source import filled, functions
from optdb.codegen.views import axis_last
from optdb.runtime.arrays import Array, empty
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


try:
    from numpy.lib.array_utils import normalize_axis_index
except ImportError:  # before NumPy 2
    from numpy.core.multiarray import normalize_axis_index  # type: ignore[attr-defined]  # missing in NumPy's hints


@dataclass(eq=False)
class SortAlongAxis(Operation):
    """The elements of an array in ascending order along an axis, or their indices, as int64.

    The inputs are the array (of a real dtype) and the axis (a host integer).
    """

    x: ArraySpec
    indices: bool = False

    def __post_init__(self) -> None:
        self._copying = copying(self.x)
        self._converting = _converting("int64", self.x.ndim)

    def kernels(self) -> list[Kernel]:
        kernels = sorting_kernels(self.x.dtype, ASCENDING, self.indices, self.context.profile.device_kind)
        kernels += self._copying.kernels()
        return kernels + (self._converting.kernels() if self.indices else [])

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        x, axis = inputs
        if axis != int(axis):
            raise ValueError("sort axis must be an integer or None")
        axis = normalize_axis_index(int(axis), x.ndim)
        dtype = "int64" if self.indices else self.x.dtype
        out = output_array(outputs[0], self.context, x.shape, dtype)
        if not out.size:
            return
        rows = contiguous(axis_last(x, axis), self.x, kernels, self.context)
        last = axis == x.ndim - 1
        in_order = out if last else empty(self.context, rows.shape, dtype)
        if self.indices:
            sort_rows(kernels, self.context, rows, empty(self.context, rows.shape, x.dtype), in_order)
        else:
            sort_rows(kernels, self.context, rows, in_order)
        if not last:
            elements = self._converting if self.indices else self._copying
            _copy_rows(elements, kernels, self.context, in_order, out, axis)


@dataclass(eq=False)
class TopK(Operation):
    """The k largest elements along an axis (the -k smallest if k is negative), their indices, or both.

    The inputs are the array (of a real dtype) and k (a host integer).
    """

    x: ArraySpec
    axis: int
    #: The value of k if known, which specializes the kernels.
    k: int | None = None
    #: Whether the elements are the first output.
    values: bool = True
    #: The dtype of the indices, which are the last output; None if indices are not returned.
    index_dtype: str | None = None

    def __post_init__(self) -> None:
        self.axis %= self.x.ndim
        self._order = None if self.k is None else _order(self.k)
        self._copying = copying(self.x)
        self._converting = None if self.index_dtype is None else _converting(self.index_dtype, self.x.ndim)

    def kernels(self) -> list[Kernel]:
        kernels = sorting_kernels(self.x.dtype, self._order, True, self.context.profile.device_kind)
        kernels += self._copying.kernels()
        return kernels + ([] if self._converting is None else self._converting.kernels())

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        x, k = inputs[0], int(inputs[1])
        _check(k, x.shape[self.axis], self.axis)
        shape = [abs(k) if d == self.axis else length for d, length in enumerate(x.shape)]
        dtypes = [self.x.dtype] * self.values + [self.index_dtype] * (self.index_dtype is not None)
        outs = [output_array(cell, self.context, shape, dtype) for cell, dtype in zip(outputs, dtypes, strict=True)]
        if not outs[0].size:
            return
        rows = contiguous(axis_last(x, self.axis), self.x, kernels, self.context)
        values, indices = empty(self.context, rows.shape, x.dtype), empty(self.context, rows.shape, "int64")
        sort_rows(kernels, self.context, rows, values, indices, abs(k), _order(k))
        if self.values:
            _copy_rows(self._copying, kernels, self.context, values, outs[0], self.axis)
        if self._converting is not None:
            _copy_rows(self._converting, kernels, self.context, indices, outs[-1], self.axis)


def _check(k: int, length: int, axis: int) -> None:
    if k == 0:
        raise ValueError("topk: kth cannot be zero")
    if abs(k) > length:
        raise ValueError(
            f"topk: kth cannot be larger than the size of specified axis {axis}: {abs(k)} of {length} elements"
        )


def _order(k: int) -> int:
    """Return the sort order that puts the requested elements first.

    For one smallest element, NumPy returns NaN if there is one; for several, it treats NaN as the largest.
    """
    if k > 0:
        return DESCENDING
    return NAN_FIRST if k == -1 else ASCENDING


def _converting(dtype: str, ndim: int) -> ElementKernels:
    arrays = (Operand.of("i0", "int64"),), (Operand.of("o0", dtype),)
    return ElementKernels(ElementCode(*arrays, f"o0 = ({c_type(dtype)})i0;", ndim, "indices"))


def _copy_rows(
    elements: ElementKernels, kernels: Kernels, context: Context, rows: Array, out: Array, axis: int
) -> None:
    target = axis_last(out, axis)
    elements.launch(kernels, context, target.shape, [view(rows, target.shape, rows.strides), target])
