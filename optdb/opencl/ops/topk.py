"""The largest, or the smallest, elements along an axis, and their places.

They come in order, the largest first or the smallest first, and equals in that of their
places. The host promises no order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from optdb.codegen.elementwise import Operand
from optdb.codegen.layout import view
from optdb.codegen.scalars.types import c_type
from optdb.codegen.sort import ASCENDING, DESCENDING, NAN_FIRST, sort_rows, sorting_kernels
from optdb.host.graph import Apply, Constant
from optdb.host.sorting import TopKOp
from optdb.opencl.kernels import Kernel, Kernels, OpenCLKernelBase, Outputs, output_array
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.elements import ElementKernels
from optdb.opencl.ops.sort import axis_last, rows_along
from optdb.runtime.arrays import Array, empty

if TYPE_CHECKING:
    from optdb.runtime.context import Context


class OpenCLTopKOp(Counterpart, OpenCLKernelBase, TopKOp):
    """The k largest elements along an axis, the -k smallest for a negative k; their places; or both."""

    host = TopKOp
    device_inputs: ClassVar[slice] = slice(0, 1)

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        x = node.inputs[0].type
        device_kind = self.get_context(node).profile.device_kind
        kernels = sorting_kernels(x.dtype, _known_order(node.inputs[1]), True, device_kind)
        kernels += ElementKernels.copying(x.dtype, x.ndim).kernels()
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
        rows = rows_along(x, axis, kernels, context)
        values, places = empty(context, rows.shape, x.dtype), empty(context, rows.shape, "int64")
        sort_rows(kernels, context, rows, values, places, abs(k), _order(k))
        if self.return_values:
            copying = ElementKernels.copying(x.dtype.name, x.ndim)
            _hand_out(copying, kernels, context, values, outs[0], axis)
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

    The host takes the smallest one by `numpy.min`, which is no number if there is one such; several by a partition,
    to which that is the largest.
    """
    if k > 0:
        return DESCENDING
    return NAN_FIRST if k == -1 else ASCENDING


def _known_order(k: Any) -> int | None:
    return _order(int(k.data)) if isinstance(k, Constant) else None


def _converting(dtype: str, ndim: int) -> ElementKernels:
    """Return the kernels that make places of another dtype."""
    return ElementKernels(
        [Operand.of("i0", "int64")], [Operand.of("o0", dtype)], f"o0 = ({c_type(dtype)})i0;", ndim=ndim, name="places"
    )


def _hand_out(elements: ElementKernels, kernels: Kernels, context: Context, rows: Array, out: Array, axis: int) -> None:
    """Copy the first elements of rows to an output, of which the rows go along an axis."""
    there = axis_last(out, axis)
    elements.launch(kernels, context, there.shape, [view(rows, there.shape, rows.strides), there])
