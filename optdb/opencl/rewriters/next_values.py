"""Next values of shared variables are C-contiguous on the device.

A plan keeps each shared array at the same address, because its next value is written over the present one. A value
that an elementwise op has written over a reversed or transposed view has other strides; it is made contiguous first.
"""

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

#: After all in-place rewrites: most next values are then written over the present ones, and have their layout.
POSITION = 75.7

#: Views that may change the order of elements.
_REORDERING = (ops.DimShuffle, ops.Subtensor)


class NextValuesInOrder(GraphRewriter):
    """Makes next values of shared arrays C-contiguous where they may not be."""

    def rewrite(self, fgraph: FunctionGraph) -> None:
        """Change the outputs of a function's graph that are updates."""
        mapping = getattr(fgraph, "update_mapping", None) or {}
        for index in mapping:
            out = fgraph.outputs[index]
            if isinstance(out.type, OpenCLArrayType) and _may_be_out_of_order(out):
                # A node that begins the copy of the next value needs the contiguous array, which it returns.
                node = out.owner
                begins = node is not None and begins_copy(node)
                client, slot = (node, out.index) if begins else ("output", index)
                value = node.inputs[slot] if begins else out
                ordered = opencl_contiguous(value)
                copy_trace(value, ordered)
                if ordered is not value:
                    # Other users of the value take any layout.
                    fgraph.change_input(client, slot, ordered, reason=type(self).__name__)


def _may_be_out_of_order(out: Variable) -> bool:
    """Tell whether a value may have the layout of a view: it is one, or an op has written it over one."""
    owners = (var.owner for var in may_lie_in(out))
    return any(node is not None and isinstance(node.op, _REORDERING) for node in owners)


compile_db().register("opencl_updates", NextValuesInOrder(), POSITION, "opencl")
