"""Theano's ops along axes on the device: cumulative sums and products, maxima, and searches in sorted vectors."""

from __future__ import annotations

from typing import Any

from optdb.codegen.cumulative import Cumulate
from optdb.codegen.operation import Operation
from optdb.codegen.searching import FindLargest, SearchSorted, compared_in
from optdb.host.api import ops as host
from optdb.host.api.graph import Apply, PureOp
from optdb.opencl.lifting import Inputs, real_arrays, register_counterparts, unsupported_reason
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.shell import Shell, spec_of


class OpenCLCumOp(Counterpart, Shell, host.CumOp):
    """Cumulative sums ('add') or products ('mul'), along an axis or over the flattened array."""

    def operation(self, node: Apply) -> Operation:
        return Cumulate(self.get_context(node), spec_of(node.inputs[0]), self.mode, self.axis)


class _OfLargest(Counterpart, Shell):
    """Base class of the two ops that find the largest elements."""

    #: The host op's parameter.
    axis: tuple[int, ...]

    def prepare_node(self, node: Apply, storage_map: Any, compute_map: Any, impl: str | None) -> None:
        """Do nothing, since the host op's method would prepare C code."""

    def operation(self, node: Apply) -> Operation:
        return FindLargest(self.get_context(node), spec_of(node.inputs[0]), self.axis, len(node.outputs) == 2)


class OpenCLMaxAndArgmax(_OfLargest, host.MaxAndArgmax):
    """The largest elements along some axes, and their indices."""

    @classmethod
    def like(cls, op: host.MaxAndArgmax) -> OpenCLMaxAndArgmax:
        """Return an op with a host op's axes; the host op's constructor takes a list but keeps a tuple."""
        return cls(list(op.axis))


class OpenCLArgmax(_OfLargest, host.Argmax):
    """The indices of the largest elements along some axes."""


class OpenCLSearchsortedOp(Counterpart, Shell, host.SearchsortedOp):
    """The index of each value in a sorted vector: before its equals ('left'), or after them ('right')."""

    def operation(self, node: Apply) -> Operation:
        x, values = map(spec_of, node.inputs)
        return SearchSorted(self.get_context(node), x, values, self.side)


def _search_unsupported_reason(op: PureOp, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    if len(inputs) == 3:
        return "a sorter is checked on the host"
    reason = real_arrays(op, context_name, inputs, outputs)
    return reason or unsupported_reason(context_name, [compared_in(*(var.type.dtype for var in inputs))])


register_counterparts("lift_cumulation", 90, [host.CumOp], real_arrays)
register_counterparts("lift_searchsorted", 93, [host.SearchsortedOp], _search_unsupported_reason)
