"""Arrays sorted along an axis, the first elements that this gives, and the places in which it finds them.

The sort is stable, whichever kind the host was asked for: of what the host leaves open, which of two equals comes
first, it takes the order of NumPy's stable kind. The largest or smallest elements come in order, too, and equals in
that of their places; the host promises no order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from optdb.codegen.elementwise import ElementCode, Operand
from optdb.codegen.layout import view
from optdb.codegen.scalars.types import c_type
from optdb.codegen.sort import ASCENDING, DESCENDING, NAN_FIRST, sort_rows, sorting_kernels
from optdb.host.graph import Apply, Constant
from optdb.host.sorting import ArgSortOp, SortOp, TopKOp
from optdb.opencl.kernels import Context, Kernel, Kernels, OpenCLKernelBase, Outputs, output_array
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.elements import ElementKernels
from optdb.opencl.ops.views import contiguous, copying
from optdb.runtime.arrays import Array, empty

try:
    from numpy.lib.array_utils import normalize_axis_index
except ImportError:  # before NumPy 2
    from numpy.core.multiarray import normalize_axis_index


class _Sort(Counterpart, OpenCLKernelBase):
    """The base of both ops: the array is on the device, the axis is on the host."""

    device_inputs: ClassVar[slice] = slice(0, 1)
    #: Whether the op returns the places.
    places: ClassVar[bool]

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        x = node.inputs[0].type
        kernels = sorting_kernels(x.dtype, ASCENDING, self.places, self.get_context(node).profile.device_kind)
        kernels += copying(x).kernels()
        return kernels + (_converting("int64", x.ndim).kernels() if self.places else [])

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, axis = inputs
        if axis != int(axis):
            raise ValueError("sort axis must be an integer or None")
        axis = normalize_axis_index(int(axis), x.ndim)
        dtype = node.outputs[0].type.dtype
        out = output_array(outputs[0], context, x.shape, dtype)
        if not out.size:
            return
        rows = _rows_along(x, axis, kernels, context)
        last = axis == x.ndim - 1
        in_order = out if last else empty(context, rows.shape, dtype)
        if self.places:
            sort_rows(kernels, context, rows, empty(context, rows.shape, x.dtype), in_order)
        else:
            sort_rows(kernels, context, rows, in_order)
        if not last:
            elements = _converting(dtype, x.ndim) if self.places else copying(node.inputs[0].type)
            _hand_out(elements, kernels, context, in_order, out, axis)


class OpenCLSortOp(_Sort, SortOp):
    """The elements of an array in ascending order, along an axis."""

    places = False


class OpenCLArgSortOp(_Sort, ArgSortOp):
    """The places of the elements of an array in ascending order, along an axis."""

    places = True


class OpenCLTopKOp(Counterpart, OpenCLKernelBase, TopKOp):
    """The k largest elements along an axis, the -k smallest for a negative k; their places; or both."""

    device_inputs: ClassVar[slice] = slice(0, 1)

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        x = node.inputs[0].type
        device_kind = self.get_context(node).profile.device_kind
        k = node.inputs[1]
        order = _order(int(k.data)) if isinstance(k, Constant) else None
        kernels = sorting_kernels(x.dtype, order, True, device_kind)
        kernels += copying(x).kernels()
        if self.return_indices:
            kernels += _converting(self.idx_dtype, x.ndim).kernels()
        return kernels

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, k = inputs[0], int(inputs[1])
        axis = self.axis % x.ndim
        _check(k, x.shape[axis], axis)
        shape = [abs(k) if d == axis else length for d, length in enumerate(x.shape)]
        outs = [
            output_array(storage, context, shape, out.type.dtype)
            for storage, out in zip(outputs, node.outputs, strict=True)
        ]
        if not outs[0].size:
            return
        rows = _rows_along(x, axis, kernels, context)
        values, places = empty(context, rows.shape, x.dtype), empty(context, rows.shape, "int64")
        sort_rows(kernels, context, rows, values, places, abs(k), _order(k))
        if self.return_values:
            _hand_out(copying(node.inputs[0].type), kernels, context, values, outs[0], axis)
        if self.return_indices:
            _hand_out(_converting(self.idx_dtype, x.ndim), kernels, context, places, outs[-1], axis)


def _check(k: int, length: int, axis: int) -> None:
    if k == 0:
        raise ValueError("topk: kth cannot be zero")
    if abs(k) > length:
        raise ValueError(
            f"topk: kth cannot be larger than the size of specified axis {axis}: {abs(k)} of {length} elements"
        )


def _order(k: int) -> int:
    """Return the order in which the first elements are those wanted.

    The host takes a single smallest element by `numpy.min`, which returns NaN if there is one; it takes several by a
    partition, in which NaN is the largest.
    """
    if k > 0:
        return DESCENDING
    return NAN_FIRST if k == -1 else ASCENDING


def _converting(dtype: str, ndim: int) -> ElementKernels:
    """Return the kernels that convert places to another dtype."""
    arrays = (Operand.of("i0", "int64"),), (Operand.of("o0", dtype),)
    return ElementKernels(ElementCode(*arrays, f"o0 = ({c_type(dtype)})i0;", ndim, "places"))


def axis_last(x: Array, axis: int) -> Array:
    """Return a view of an array with one of its axes at the end."""
    order = [*(d for d in range(x.ndim) if d != axis), axis]
    return view(x, [x.shape[d] for d in order], [x.strides[d] for d in order])


def _rows_along(x: Array, axis: int, kernels: Kernels, context: Context) -> Array:
    """Return `x` in C order with one of its axes at the end; a copy, by kernels named 'copy', if it is not so."""
    return contiguous(axis_last(x, axis), x, kernels, context)


def _hand_out(elements: ElementKernels, kernels: Kernels, context: Context, rows: Array, out: Array, axis: int) -> None:
    """Copy the first elements of rows to an output, of which the rows go along an axis."""
    target = axis_last(out, axis)
    elements.launch(kernels, context, target.shape, [view(rows, target.shape, rows.strides), target])
