"""Sorting along an axis: sort, argsort and top-k. The sort is stable; equal elements are ordered by index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from optdb.codegen.elements import ElementKernels, contiguous, copying
from optdb.codegen.elementwise import ElementCode, Operand
from optdb.codegen.kernels import Kernel
from optdb.codegen.layout import view
from optdb.codegen.merge_sort import ASCENDING, DESCENDING, NAN_FIRST, sort_rows, sorting_kernels
from optdb.codegen.operation import ArraySpec, Kernels, Operation, Outputs, output_array
from optdb.codegen.scalars.types import c_type
from optdb.codegen.views import axis_last
from optdb.runtime.arrays import Array, empty
from optdb.runtime.context import Context

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
    """Return the kernels that convert indices to another dtype."""
    arrays = (Operand.of("i0", "int64"),), (Operand.of("o0", dtype),)
    return ElementKernels(ElementCode(*arrays, f"o0 = ({c_type(dtype)})i0;", ndim, "indices"))


def _copy_rows(
    elements: ElementKernels, kernels: Kernels, context: Context, rows: Array, out: Array, axis: int
) -> None:
    """Copy the first elements of each row to an output whose rows run along an axis."""
    target = axis_last(out, axis)
    elements.launch(kernels, context, target.shape, [view(rows, target.shape, rows.strides), target])
