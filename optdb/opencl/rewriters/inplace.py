"""Rewriters that let device ops overwrite inputs that no other op needs, and that make next values C-contiguous.

They run after lifting. If the destroy handler rejects a change, the op is left unchanged.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from optdb.host.api import ops
from optdb.host.api.control_flow import Scan, scan_of, scan_overwriting, state_slots
from optdb.host.api.databases import compile_db
from optdb.host.api.destroy import DestroyHandler
from optdb.host.api.graph import Apply, FunctionGraph, InconsistencyError, Op, Variable, clients, op_of, owner_of
from optdb.host.api.rewriters import FunctionNodeRewriter, GraphRewriter, TopoOptimizer, replace_all
from optdb.host.api.testvalues import without_test_values
from optdb.host.api.traces import copy_trace
from optdb.host.theano.functions.optimized import Plain
from optdb.opencl.aliasing import may_lie_in
from optdb.opencl.linking.waiting import begins_copy
from optdb.opencl.ops import parts
from optdb.opencl.ops.blas import OpenCLGemm, OpenCLGemv, OpenCLGer, OpenCLSparseBlockGemv, OpenCLSparseBlockOuter
from optdb.opencl.ops.contiguous import OpenCLContiguous, opencl_contiguous
from optdb.opencl.ops.elemwise import OpenCLElemwise
from optdb.opencl.ops.fused import OpenCLFused
from optdb.opencl.ops.random import OpenCLMRGUniform
from optdb.opencl.type import OpenCLArrayType
from optdb.topo.inplace import InplaceElemwise, InplacePass

_PRODUCTS = (OpenCLGemm, OpenCLGemv, OpenCLGer, OpenCLSparseBlockGemv, OpenCLSparseBlockOuter)
_CHANGES_OF_NAMED = (
    *(parts.OpenCLAdvancedIncSubtensor1, parts.OpenCLAdvancedIncSubtensor),
    parts.OpenCLAdvancedBooleanIncSubtensor,
)

#: Maps classes of ops that can overwrite their first input to functions that turn overwriting on or off.
_OVERWRITING: dict[type, Callable[..., Op]] = {
    **dict.fromkeys(_PRODUCTS, lambda op, inplace: type(op)(inplace)),
    **dict.fromkeys(_CHANGES_OF_NAMED, lambda op, inplace: type(op)(inplace, op.set_instead_of_inc)),
    parts.OpenCLIncSubtensor: lambda op, inplace: parts.OpenCLIncSubtensor(
        op.idx_list, inplace, op.set_instead_of_inc, op.destroyhandler_tolerate_aliased
    ),
}


#: Maps op classes to functions that return a variant of an op that overwrites nothing. The variants are used when a
#: graph is lifted again.
PLAIN: Plain = {
    **{kind: functools.partial(make, inplace=False) for kind, make in _OVERWRITING.items()},
    OpenCLElemwise: lambda op: OpenCLElemwise(op.scalar_op),
    OpenCLFused: lambda op: op.overwriting({}),
    OpenCLMRGUniform: lambda op: OpenCLMRGUniform(op.output_type, False),
}


@without_test_values()
def opencl_inplace(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """Let an op overwrite its first input with its result."""
    if getattr(node.op, "destroy_map", None):
        return None
    inplace = _OVERWRITING[type(node.op)](node.op, True)
    return inplace(*node.inputs, return_list=True)


class InplaceLoops(GraphRewriter):
    """Lets loops compute their states in the memory of the initial values, without a copy of the whole array."""

    def add_requirements(self, fgraph: FunctionGraph) -> None:
        super().add_requirements(fgraph)
        fgraph.attach_feature(DestroyHandler())

    def rewrite(self, fgraph: FunctionGraph) -> None:
        for node in reversed(fgraph.toposort()):
            if isinstance(node.op, Scan) and not getattr(node.op, "destroy_map", None):
                _compute_in_place(fgraph, node)


def _compute_in_place(fgraph: FunctionGraph, loop: Apply) -> None:
    """Let a loop compute its states in place: all of them, or as many as the graph accepts."""
    slots = {number: slot for number, slot in state_slots(loop).items() if _is_temporary(loop.inputs[slot])}
    if not slots or _overwritten(fgraph, loop, slots) is not None:
        return
    done: dict[int, int] = {}
    for number, slot in slots.items() if len(slots) > 1 else ():
        changed = _overwritten(fgraph, loop, {**done, number: slot})
        if changed is not None:
            loop, done = changed, {**done, number: slot}


def _is_temporary(var: Variable) -> bool:
    """Return whether a variable is a device array that shares no memory with an input of the graph."""
    if not isinstance(var.type, OpenCLArrayType):
        return False
    return all(origin.owner is not None for origin in may_lie_in(var))


def _allocated_apart(fgraph: FunctionGraph, var: Variable) -> Variable:
    """Return `var`, or an equal array with its own allocation if several nodes share the allocation of `var`."""
    views, maker = [var], owner_of(var)
    while isinstance(maker.op, OpenCLContiguous):
        views.append(maker.inputs[0])
        maker = owner_of(maker.inputs[0])
    allocation = views.pop()
    is_one = all(len(clients(fgraph, view)) == 1 for view in (*views, allocation))
    if is_one or not isinstance(maker.op, (ops.Alloc, ops.AllocEmpty)):
        return var
    apart = maker.clone().outputs[0]
    for view in reversed(views):
        node = owner_of(view)
        apart = node.op(apart)
    return apart


def _overwritten(fgraph: FunctionGraph, loop: Apply, slots: dict[int, int]) -> Apply | None:
    """Return a loop that computes some states in place; None if the graph rejects the loop."""
    inputs = list(loop.inputs)
    for slot in slots.values():
        inputs[slot] = _allocated_apart(fgraph, inputs[slot])
    op = scan_overwriting(scan_of(loop), {number: [slot] for number, slot in slots.items()})
    outputs = op.make_node(*inputs).outputs
    try:
        replace_all(fgraph, list(zip(loop.outputs, outputs, strict=True)), reason=InplaceLoops.__name__)
    except (ValueError, InconsistencyError):
        return None
    return outputs[0].owner


class InplaceGroups(InplaceElemwise):
    """Lets groups of ops overwrite inputs whose elements they read where they write."""

    def __init__(self) -> None:
        super().__init__(OpenCLFused)

    def _apply(self, fgraph: FunctionGraph) -> dict[str, Any]:
        return self._run(_GroupsPass(self, fgraph))


class _GroupsPass(InplacePass):
    def candidates(self, node: Apply, i: int, pattern: dict[int, int]) -> list[int]:
        allowed = op_of(node, OpenCLFused).overwritable(i)
        return [slot for slot in super().candidates(node, i, pattern) if slot in allowed]

    def inplace_op(self, node: Apply, pattern: dict[int, int]) -> OpenCLFused:
        return op_of(node, OpenCLFused).overwriting(pattern)


#: Views that may change the order of elements.
_REORDERING = (ops.DimShuffle, ops.Subtensor)


class NextValuesInOrder(GraphRewriter):
    """Makes next values of shared arrays C-contiguous, since plans keep shared arrays at the same address."""

    def rewrite(self, fgraph: FunctionGraph) -> None:
        mapping = getattr(fgraph, "update_mapping", None) or {}
        for index in mapping:
            out = fgraph.outputs[index]
            if isinstance(out.type, OpenCLArrayType) and _may_be_out_of_order(out):
                # If a node starts copying the next value to the host, this node must get the contiguous array.
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
    """Return whether a value may have a view's layout, because it is a view or was computed in the memory of a view."""
    owners = (var.owner for var in may_lie_in(out))
    return any(node is not None and isinstance(node.op, _REORDERING) for node in owners)


_overwriting = FunctionNodeRewriter(opencl_inplace, tracks=list(_OVERWRITING))
_one_pass = TopoOptimizer(_overwriting, failure_callback=TopoOptimizer.warn_inplace)
# Run before position 60, where Theano's rewriters match device ops by their base classes and insert host ops.
compile_db().register("opencl_inplace", _one_pass, 59.9, "fast_run", "inplace")
compile_db().register("opencl_inplace_loops", InplaceLoops(), 75.0, "fast_run", "inplace")
compile_db().register("opencl_inplace_elemwise", InplaceElemwise(OpenCLElemwise), 75.5, "fast_run", "inplace")
compile_db().register("opencl_inplace_groups", InplaceGroups(), 75.6, "fast_run", "inplace")
# Run after all in-place rewrites, when most next values overwrite the current values.
compile_db().register("opencl_updates", NextValuesInOrder(), 75.7, "opencl")
