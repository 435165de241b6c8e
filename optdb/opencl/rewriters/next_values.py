"""Next values of shared variables lie in C order on the device.

A plan finds a shared array where it was, because its next value is written over the present one. A value that an
elementwise op has written over a view, flipped or with axes exchanged, does not fit there; it is put in order first.
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

#: After all in-place rewrites: most next values are then written over the present ones, and lie as those do.
POSITION = 75.7

#: Views in which elements may lie in another order.
_REORDERING = (ops.DimShuffle, ops.Subtensor)


class NextValuesInOrder(GraphRewriter):
    """Puts next values of shared arrays in C order, where they may lie otherwise."""

    def rewrite(self, fgraph: FunctionGraph) -> None:
        """Change the outputs of a function's graph that are updates."""
        mapping = getattr(fgraph, "update_mapping", None) or {}
        for index in mapping:
            out = fgraph.outputs[index]
            if isinstance(out.type, OpenCLArrayType) and _may_be_out_of_order(out):
                # What lets a copy of the next value begin needs the place where it will be, and returns that.
                node = out.owner
                begins = node is not None and begins_copy(node)
                client, slot = (node, out.index) if begins else ("output", index)
                value = node.inputs[slot] if begins else out
                ordered = opencl_contiguous(value)
                copy_trace(value, ordered)
                if ordered is not value:
                    # Elsewhere in the graph, the value may lie as it does.
                    fgraph.change_input(client, slot, ordered, reason=type(self).__name__)


def _may_be_out_of_order(out: Variable) -> bool:
    """Tell whether a value may lie in the memory of a view: it is one, or an op has written it over one."""
    owners = (var.owner for var in may_lie_in(out))
    return any(node is not None and isinstance(node.op, _REORDERING) for node in owners)


compile_db().register("opencl_updates", NextValuesInOrder(), POSITION, "opencl")
