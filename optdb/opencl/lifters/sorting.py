"""Lifters of ops that go along an axis: sums so far, sorting, the largest elements, places in what is sorted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optdb.host import sorting as host
from optdb.host.graph import Op, Variable
from optdb.lifters.lifter import op_lifter
from optdb.opencl.device import lifters_db
from optdb.opencl.lifters.support import on_device, real_arrays, unsupported_reason
from optdb.opencl.ops.cumulate import OpenCLCumOp
from optdb.opencl.ops.searchsorted import OpenCLSearchsortedOp, compared_in
from optdb.opencl.ops.sort import OpenCLArgSortOp, OpenCLSortOp
from optdb.opencl.ops.topk import OpenCLTopKOp
from optdb.topo.db import register_topo

Inputs = Sequence[Variable]


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=90)
@op_lifter([host.CumOp], supports=real_arrays)
def lift_cumulation(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift the sums or products of all elements so far."""
    return OpenCLCumOp(op.axis, op.mode)(*on_device(inputs, context_name))


def _sort_unsupported_reason(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    if op.order is not None:
        return "sorting by fields is for arrays of records, which no device has"
    return real_arrays(op, context_name, inputs, outputs)


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=91)
@op_lifter([host.SortOp, host.ArgSortOp], supports=_sort_unsupported_reason)
def lift_sort(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift the sorting of an array, or of its places; the axis stays on the host."""
    lifted = OpenCLSortOp if isinstance(op, host.SortOp) else OpenCLArgSortOp
    return lifted(op.kind)(*on_device(inputs[:1], context_name), inputs[1])


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=92)
@op_lifter([host.TopKOp], supports=real_arrays)
def lift_topk(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift the largest elements along an axis; how many stays on the host."""
    lifted = OpenCLTopKOp(op.axis, op.sorted, op.idx_dtype, op.return_values, op.return_indices)
    return lifted(*on_device(inputs[:1], context_name), inputs[1], return_list=True)


def _search_unsupported_reason(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    if len(inputs) == 3:
        return "a sorter is checked on the host"
    reason = real_arrays(op, context_name, inputs, outputs)
    return reason or unsupported_reason(context_name, [compared_in(*(var.type.dtype for var in inputs))])


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=93)
@op_lifter([host.SearchsortedOp], supports=_search_unsupported_reason)
def lift_searchsorted(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift the places of values in a sorted vector."""
    return OpenCLSearchsortedOp(op.side)(*on_device(inputs, context_name))
