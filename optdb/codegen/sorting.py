"""Sorting along an axis: sort, argsort and top-k, by a stable merge sort of rows.

First, blocks of each row are sorted: by insertion on a CPU, or with a bitonic network in local memory on a GPU. Then
pairs of sorted runs are merged, pass by pass; a work item writes one segment of a merged run, and finds the segment's
sources by bisection. Sources: K. Batcher, Sorting networks and their applications (1968); S. Odeh et al., Merge Path
(2012).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from optdb.codegen.elements import ElementKernels, contiguous, copying
from optdb.codegen.elementwise import ElementCode, Operand
from optdb.codegen.kernels import Kernel, ctype
from optdb.codegen.layout import chunks, launch_items, view
from optdb.codegen.operation import ArraySpec, Kernels, Operation, Outputs, output_array
from optdb.codegen.scalars.types import c_type
from optdb.codegen.source import filled, functions
from optdb.codegen.views import axis_last
from optdb.runtime.arrays import Array, empty

#: Number of elements in an initial sorted block, by kind of device; powers of two.
BLOCK = {"cpu": 32, "gpu": 256}
#: Maximum number of elements in the segment that a work item merges, by device kind.
SEGMENT = {"cpu": 4096, "gpu": 16}

#: The sort orders that can be passed to kernels. As in NumPy, NaN is the largest value, so it comes last in ascending
#: order.
ASCENDING, DESCENDING = 0, 1
#: Ascending order with NaN first, as in NumPy's minimum, for which NaN is the smallest element.
NAN_FIRST = 2


try:
    from numpy.lib.array_utils import normalize_axis_index
except ImportError:  # before NumPy 2
    from numpy.core.multiarray import normalize_axis_index  # type: ignore[attr-defined]  # missing in NumPy's hints


@dataclass(eq=False)
class _Sorting(Operation):
    """Base class of operations that sort the rows of an array of a real dtype."""

    x: ArraySpec

    def _sorting_kernels(self, order: int | None, indices: bool) -> list[Kernel]:
        """Return the kernels of `_sort`.

        If `order` is None, the kernels take the sort order as an argument. If `indices` is true, the kernels also
        return indices.
        """
        dtype, device_kind = self.x.dtype, self.context.profile.device_kind
        half = dtype == "float16"
        ending = "_half" if half else ""
        used = {"VALUE_OF": f"value_of{ending}", "IS_NAN": f"is_nan{ending}"}
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
        names = [*used.values(), "before", *["precedes"] * (device_kind == "gpu")]
        code = functions("merge_sort.cl")
        text = "".join(code[name] for name in (*names, f"blocks_on_{device_kind}", "merge"))
        return Kernel.all_of(filled(text, **words))

    def _sort(
        self, kernels: Kernels, x: Array, results: Sequence[Array], keep: int = 0, order: int = ASCENDING
    ) -> None:
        """Sort a nonempty C-contiguous array along its last axis.

        The results are the sorted elements and, if the kernels return indices, each element's index in its row. If
        `keep` is not 0, only the first `keep` elements of each row are defined.
        """
        profile, n = self.context.profile, x.shape[-1]
        rows = x.size // n
        block = BLOCK[profile.device_kind]
        passes = 0
        while block << passes < n:
            passes += 1
        buffers = [results]
        if passes:
            buffers.append([empty(self.context, a.shape, a.dtype) for a in results])
        # The last pass must write to the caller's arrays.
        target = buffers[passes % 2]
        items, each = chunks(self.context, rows * -(-n // block), least=8)
        group = 1 if profile.runs_items_serially else min(block // 2, profile.max_local_size)
        kernels[f"blocks_on_{profile.device_kind}"].call(items * group, group, order, rows, n, each, x, *target)
        for done in range(1, passes + 1):
            source, target = target, buffers[(passes - done) % 2]
            width = block << (done - 1)
            segment = min(2 * width, SEGMENT[profile.device_kind])
            items, each = chunks(self.context, rows * -(-n // segment), least=1)
            arrays = [array for pair in zip(source, target, strict=True) for array in pair]
            numbers = [order, rows, n, width, segment, keep or n, each]
            launch_items(kernels["merge"], self.context, items, *numbers, *arrays)

    def _copy_rows(self, elements: ElementKernels, kernels: Kernels, rows: Array, out: Array, axis: int) -> None:
        target = axis_last(out, axis)
        elements.launch(kernels, self.context, target.shape, [view(rows, target.shape, rows.strides), target])


@dataclass(eq=False)
class SortAlongAxis(_Sorting):
    """The elements of an array in ascending order along an axis, or the int64 indices of these elements.

    The inputs are the array (of a real dtype) and the axis (a host integer).
    """

    indices: bool = False

    def __post_init__(self) -> None:
        self._copying = copying(self.x)
        self._converting = _converting("int64", self.x.ndim)

    def kernels(self) -> list[Kernel]:
        kernels = self._sorting_kernels(ASCENDING, self.indices)
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
            self._sort(kernels, rows, [empty(self.context, rows.shape, x.dtype), in_order])
        else:
            self._sort(kernels, rows, [in_order])
        if not last:
            elements = self._converting if self.indices else self._copying
            self._copy_rows(elements, kernels, in_order, out, axis)


@dataclass(eq=False)
class TopK(_Sorting):
    """The k largest elements along an axis (the -k smallest if k is negative), their indices, or both.

    The inputs are the array (of a real dtype) and k (a host integer).
    """

    axis: int
    #: The value of k, if it is known in advance and kernels can be specialized for it.
    k: int | None = None
    #: Whether the operation returns the elements, which are then the first output.
    values: bool = True
    #: The dtype of the indices, which are the last output; None if indices are not returned.
    index_dtype: str | None = None

    def __post_init__(self) -> None:
        self.axis %= self.x.ndim
        self._order = None if self.k is None else _order(self.k)
        self._copying = copying(self.x)
        self._converting = None if self.index_dtype is None else _converting(self.index_dtype, self.x.ndim)

    def kernels(self) -> list[Kernel]:
        kernels = self._sorting_kernels(self._order, True)
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
        self._sort(kernels, rows, [values, indices], abs(k), _order(k))
        if self.values:
            self._copy_rows(self._copying, kernels, values, outs[0], self.axis)
        if self._converting is not None:
            self._copy_rows(self._converting, kernels, indices, outs[-1], self.axis)


def _check(k: int, length: int, axis: int) -> None:
    if k == 0:
        raise ValueError("topk: kth cannot be zero")
    if abs(k) > length:
        raise ValueError(
            f"topk: kth cannot be larger than the size of specified axis {axis}: {abs(k)} of {length} elements"
        )


def _order(k: int) -> int:
    """Return the sort order that puts the requested elements first.

    If a single smallest element is requested, NumPy returns NaN if the row contains NaN. If several are requested,
    NumPy treats NaN as the largest element.
    """
    if k > 0:
        return DESCENDING
    return NAN_FIRST if k == -1 else ASCENDING


def _converting(dtype: str, ndim: int) -> ElementKernels:
    arrays = (Operand.of("i0", "int64"),), (Operand.of("o0", dtype),)
    return ElementKernels(ElementCode(*arrays, f"o0 = ({c_type(dtype)})i0;", ndim, "indices"))
