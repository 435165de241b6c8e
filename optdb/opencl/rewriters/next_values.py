"""Makes the next values of shared variables C-contiguous on the device."""

from __future__ import annotations

from optdb.host.api import ops
from optdb.host.api.databases import compile_db
from optdb.host.api.graph import FunctionGraph, Variable
from optdb.host.api.rewriters import GraphRewriter
from optdb.host.api.traces import copy_trace
from optdb.opencl.aliasing import may_lie_in
from optdb.opencl.linking.waiting import begins_copy
from optdb.opencl.ops.contiguous import opencl_contiguous
from optdb.opencl.type import OpenCLArrayType

#: Views that may change the order of elements.
_REORDERING = (ops.DimShuffle, ops.Subtensor)


class NextValuesInOrder(GraphRewriter):
    """Makes next values of shared arrays C-contiguous, since plans keep shared arrays at the same address."""

    def rewrite(self, fgraph: FunctionGraph) -> None:
        mapping = getattr(fgraph, "update_mapping", None) or {}
        for index in mapping:
            out = fgraph.outputs[index]
            if isinstance(out.type, OpenCLArrayType) and _may_be_out_of_order(out):
                # A node that starts copying a next value must get the contiguous array.
                node = out.owner
                begins = node is not None and begins_copy(node)
                client, slot = (node, out.index) if begins else ("output", index)
                value = node.inputs[slot] if begins else out
                ordered = opencl_contiguous(value)
                copy_trace(value, ordered)
                if ordered is not value:
                    # Other users of the value accept any layout.
                    fgraph.change_input(client, slot, ordered, reason=type(self).__name__)


def _may_be_out_of_order(out: Variable) -> bool:
    """Return whether a value may have a view's layout, because it is a view or was computed in place of one."""
    owners = (var.owner for var in may_lie_in(out))
    return any(node is not None and isinstance(node.op, _REORDERING) for node in owners)


# After all in-place rewrites, when most next values overwrite the current values.
compile_db().register("opencl_updates", NextValuesInOrder(), 75.7, "opencl")
