"""Arrays sorted along an axis, and the places in which that finds their elements.

The sort is stable, whichever kind the host was asked for: of what the host leaves open,
which of two equals comes first, it takes the order of NumPy's stable kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from optdb.codegen.layout import is_contiguous, view
from optdb.codegen.sort import ASCENDING, sort_rows, sorting_kernels
from optdb.host.graph import Apply
from optdb.host.sorting import ArgSortOp, SortOp
from optdb.opencl.kernels import Kernel, Kernels, OpenCLKernelBase, Outputs, output_array
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.elements import ElementKernels
from optdb.runtime.arrays import Array, empty

try:
    from numpy.lib.array_utils import normalize_axis_index
except ImportError:  # before NumPy 2
    from numpy.core.multiarray import normalize_axis_index

if TYPE_CHECKING:
    from optdb.runtime.context import Context


class _Sort(Counterpart, OpenCLKernelBase):
    """What both ops share: the array on the device, the axis on the host."""

    device_inputs: ClassVar[slice] = slice(0, 1)
    #: Whether it is the places that are wanted.
    places: ClassVar[bool]

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        x = node.inputs[0].type
        kernels = sorting_kernels(x.dtype, ASCENDING, self.places, self.get_context(node).profile.device_kind)
        kernels += ElementKernels.copying(x.dtype, x.ndim).kernels()
        if self.places:
            kernels += ElementKernels.copying("int64", x.ndim, "copy_places").kernels()
        return kernels

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, axis = inputs
        if axis != int(axis):
            raise ValueError("sort axis must be an integer or None")
        axis = normalize_axis_index(int(axis), x.ndim)
        dtype = node.outputs[0].type.dtype
        out = output_array(outputs[0], context, x.shape, dtype)
        if not out.size:
            return
        rows = rows_along(x, axis, kernels, context)
        last = axis == x.ndim - 1
        in_order = out if last else empty(context, rows.shape, dtype)
        if self.places:
            sort_rows(kernels, context, rows, empty(context, rows.shape, x.dtype), in_order)
        else:
            sort_rows(kernels, context, rows, in_order)
        if not last:
            copying = ElementKernels.copying(dtype, x.ndim, "copy_places" if self.places else "copy")
            there = axis_last(out, axis)
            copying.launch(kernels, context, there.shape, [in_order, there])


class OpenCLSortOp(_Sort, SortOp):
    """The elements of an array in ascending order, along an axis."""

    host = SortOp
    places = False


class OpenCLArgSortOp(_Sort, ArgSortOp):
    """The places of the elements of an array in ascending order, along an axis."""

    host = ArgSortOp
    places = True


def axis_last(x: Array, axis: int) -> Array:
    """Return a view of an array with one of its axes at the end."""
    order = [*(d for d in range(x.ndim) if d != axis), axis]
    return view(x, [x.shape[d] for d in order], [x.strides[d] for d in order])


def rows_along(x: Array, axis: int, kernels: Kernels, context: Context) -> Array:
    """Return `x` in C order with one of its axes at the end; a copy, by kernels named 'copy', if it is not so."""
    seen = axis_last(x, axis)
    if is_contiguous(seen):
        return seen
    result = empty(context, seen.shape, x.dtype)
    ElementKernels.copying(x.dtype.name, x.ndim).launch(kernels, context, seen.shape, [seen, result])
    return result
