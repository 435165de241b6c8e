"""Device versions of Theano's ops along axes: cumulative sums, maxima, searches, sorts and Fourier transforms.

Sorts are stable regardless of the requested kind; the host does not define the order of equal elements for unstable
kinds.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from optdb.codegen.cumulative import Cumulate
from optdb.codegen.operation import Operation
from optdb.codegen.real_fourier import InverseRealFourier, RealFourier
from optdb.codegen.searching import FindLargest, SearchSorted, compared_in
from optdb.codegen.sorting import SortAlongAxis, TopK
from optdb.host.api import ops as host
from optdb.host.api.graph import Apply, Constant, PureOp
from optdb.opencl.lifting import Inputs, floats_only, real_arrays, register_counterparts, unsupported_reason
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.shell import Shell, spec_of


class OpenCLCumOp(Counterpart, Shell, host.CumOp):
    """Cumulative sums ('add') or products ('mul'), along an axis or over the flattened array."""

    computed_by = Cumulate
    settings = ("mode", "axis")


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
        """Return an op with a host op's axes; the host op's constructor takes a list but stores a tuple."""
        return cls(list(op.axis))


class OpenCLArgmax(_OfLargest, host.Argmax):
    """The indices of the largest elements along some axes."""


class OpenCLSearchsortedOp(Counterpart, Shell, host.SearchsortedOp):
    """The index of each value in a sorted vector: before equal elements ('left') or after them ('right')."""

    def operation(self, node: Apply) -> Operation:
        x, values = map(spec_of, node.inputs)
        return SearchSorted(self.get_context(node), x, values, self.side)


class OpenCLSortOp(Counterpart, Shell, host.SortOp):
    """The elements of an array in ascending order, along an axis."""

    device_inputs = slice(0, 1)
    computed_by = SortAlongAxis


class OpenCLArgSortOp(Counterpart, Shell, host.ArgSortOp):
    """The indices of the elements of an array in ascending order, along an axis."""

    device_inputs = slice(0, 1)
    computed_by = functools.partial(SortAlongAxis, indices=True)


class OpenCLTopKOp(Counterpart, Shell, host.TopKOp):
    """The k largest elements along an axis (the -k smallest if k is negative), their indices, or both."""

    device_inputs = slice(0, 1)

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


class OpenCLRFFTOp(Counterpart, Shell, host.RFFTOp):
    """The Fourier transform of a real array over its last axes, without the redundant mirrored coefficients."""

    device_inputs = slice(0, 1)
    computed_by = RealFourier


class OpenCLIRFFTOp(Counterpart, Shell, host.IRFFTOp):
    """The unnormalized inverse transform: the real array with the given transform, times the product of the lengths."""

    device_inputs = slice(0, 1)
    computed_by = InverseRealFourier


def _search_unsupported_reason(op: PureOp, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    if len(inputs) == 3:
        return "a sorter is checked on the host"
    reason = real_arrays(op, context_name, inputs, outputs)
    return reason or unsupported_reason(context_name, [compared_in(*(var.type.dtype for var in inputs))])


def _sort_unsupported_reason(
    op: host.SortOp | host.ArgSortOp, context_name: str | None, inputs: Inputs, outputs: Inputs
) -> str | None:
    if op.order is not None:
        return "sorting by fields needs structured arrays, which devices do not support"
    return real_arrays(op, context_name, inputs, outputs)


_LARGEST: Sequence[type[host.MaxAndArgmax | host.Argmax]] = [host.MaxAndArgmax, host.Argmax]
_SORTS: Sequence[type[host.SortOp | host.ArgSortOp]] = [host.SortOp, host.ArgSortOp]
register_counterparts("lift_argmax", 12, _LARGEST, real_arrays)
register_counterparts("lift_cumulation", 90, [host.CumOp], real_arrays)
register_counterparts("lift_sort", 91, _SORTS, _sort_unsupported_reason)
register_counterparts("lift_topk", 92, [host.TopKOp], real_arrays)
register_counterparts("lift_searchsorted", 93, [host.SearchsortedOp], _search_unsupported_reason)
register_counterparts("lift_fourier", 95, [host.RFFTOp, host.IRFFTOp], floats_only)
