"""Theano's sorting ops on the device, which sort stably whichever kind is requested.

The host does not define the order of equal elements for unstable kinds; the device uses NumPy's stable order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from optdb.codegen.operation import Operation
from optdb.codegen.sorting import SortAlongAxis, TopK
from optdb.host.api.graph import Apply, Constant
from optdb.host.api.ops import ArgSortOp, SortOp, TopKOp
from optdb.opencl.lifting import Inputs, real_arrays, register_counterparts
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.shell import Shell, spec_of


class OpenCLSortOp(Counterpart, Shell, SortOp):
    """The elements of an array in ascending order, along an axis."""

    device_inputs: ClassVar[slice] = slice(0, 1)

    def operation(self, node: Apply) -> Operation:
        return SortAlongAxis(self.get_context(node), spec_of(node.inputs[0]))


class OpenCLArgSortOp(Counterpart, Shell, ArgSortOp):
    """The indices of the elements of an array in ascending order, along an axis."""

    device_inputs: ClassVar[slice] = slice(0, 1)

    def operation(self, node: Apply) -> Operation:
        return SortAlongAxis(self.get_context(node), spec_of(node.inputs[0]), indices=True)


class OpenCLTopKOp(Counterpart, Shell, TopKOp):
    """The k largest elements along an axis (the -k smallest if k is negative), their indices, or both."""

    device_inputs: ClassVar[slice] = slice(0, 1)

    def operation(self, node: Apply) -> Operation:
        x, k = node.inputs
        return TopK(
            self.get_context(node),
            spec_of(x),
            self.axis,
            int(k.data) if isinstance(k, Constant) else None,
            self.return_values,
            self.idx_dtype if self.return_indices else None,
        )


def _sort_unsupported_reason(
    op: SortOp | ArgSortOp, context_name: str | None, inputs: Inputs, outputs: Inputs
) -> str | None:
    if op.order is not None:
        return "sorting by fields needs structured arrays, which devices do not support"
    return real_arrays(op, context_name, inputs, outputs)


_SORTS: Sequence[type[SortOp | ArgSortOp]] = [SortOp, ArgSortOp]
register_counterparts("lift_sort", 91, _SORTS, _sort_unsupported_reason)
register_counterparts("lift_topk", 92, [TopKOp], real_arrays)
