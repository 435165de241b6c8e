"""Lifters of ops that go along an axis: sums so far, sorting, the largest elements, places in what is sorted."""

from __future__ import annotations

from collections.abc import Sequence

from optdb.host import sorting as host
from optdb.host.graph import Op, Variable
from optdb.opencl.lifters.support import real_arrays, register_counterparts, unsupported_reason
from optdb.opencl.ops import cumulate, sort, topk  # noqa: F401  counterparts
from optdb.opencl.ops.searchsorted import compared_in

Inputs = Sequence[Variable]


def _sort_unsupported_reason(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    if op.order is not None:
        return "sorting by fields is for arrays of records, which no device has"
    return real_arrays(op, context_name, inputs, outputs)


def _search_unsupported_reason(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    if len(inputs) == 3:
        return "a sorter is checked on the host"
    reason = real_arrays(op, context_name, inputs, outputs)
    return reason or unsupported_reason(context_name, [compared_in(*(var.type.dtype for var in inputs))])


register_counterparts("lift_cumulation", 90, [host.CumOp], real_arrays)
register_counterparts("lift_sort", 91, [host.SortOp, host.ArgSortOp], _sort_unsupported_reason)
register_counterparts("lift_topk", 92, [host.TopKOp], real_arrays)
register_counterparts("lift_searchsorted", 93, [host.SearchsortedOp], _search_unsupported_reason)
