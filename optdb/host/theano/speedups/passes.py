"""Faster versions of passes that change few graphs: each searches for candidates before it sorts or copies a graph."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from theano.compile.ops import DeepCopyOp, ViewOp
from theano.scalar import Add, Mul
from theano.scan_module import scan_opt, scan_utils
from theano.scan_module.scan_op import Scan
from theano.tensor.basic import Dot
from theano.tensor.elemwise import DimShuffle, Elemwise
from theano.tensor.nnet import nnet
from theano.tensor.opt import FusionOptimizer, local_add_mul_fusion

from optdb.host.api.bookkeeping import nodes_by_op
from optdb.host.api.control_flow import scan_of
from optdb.host.api.graph import Apply, Constant, FunctionGraph, Variable, clients, io_toposort, node_ancestors
from optdb.host.api.patching import Patch, Wrapper, around

_stock_reconstruct_graph = scan_utils.reconstruct_graph

_SCAN_PASSES = (
    *(scan_opt.PushOutNonSeqScan, scan_opt.PushOutSeqScan, scan_opt.PushOutDot1, scan_opt.PushOutScanOutput),
    *(scan_opt.ScanMerge, scan_opt.ScanSaveMem),
)


def is_scan_pass(rewriter: Any) -> bool:
    """Return whether a rewriter is a Theano pass that leaves graphs without Scans unchanged."""
    return type(rewriter) in _SCAN_PASSES


def has_scan(fgraph: FunctionGraph) -> bool:
    """Return whether a graph has a Scan, not counting Scans inside other Scans."""
    return any(issubclass(cls, Scan) for cls in nodes_by_op(fgraph))


def reconstruct_graph(
    inputs: Sequence[Variable], outputs: list[Variable], tag: str | None = None
) -> tuple[list[Variable], list[Variable]]:
    """Return a copy of a graph with new inputs and copied constants; Theano's function copies the graph twice."""
    new_inputs = [scan_utils.safe_new(var, tag or "") for var in inputs]
    if any(old.owner is not None or new.type != old.type for old, new in zip(inputs, new_inputs, strict=True)):
        return _stock_reconstruct_graph(inputs, outputs, tag)
    copies: dict[Variable, Variable] = dict(zip(inputs, new_inputs, strict=True))

    def copy_of(var: Variable) -> Variable:
        if var not in copies:  # when a node is copied, all its inputs except leaves already have copies
            copies[var] = var.clone() if isinstance(var, Constant) else var
        return copies[var]

    for node in io_toposort([], outputs):
        copy = node.clone()
        copy.inputs = list(map(copy_of, node.inputs))
        copies.update(zip(node.outputs, copy.outputs, strict=True))
    return new_inputs, list(map(copy_of, outputs))


@around
def _where_scans_are(apply: Callable[..., Any], self: Any, fgraph: FunctionGraph) -> Any:
    return apply(self, fgraph) if has_scan(fgraph) else None


def _where(has_candidate: Callable[[Apply], bool]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a wrapper for a pass's ``process_node`` that first tests `has_candidate`."""

    def wrap(process_node: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(process_node)
        def process_candidate(self: Any, fgraph: FunctionGraph, node: Apply) -> Any:
            return process_node(self, fgraph, node) if has_candidate(node) else None

        return process_candidate

    return wrap


# The next two tests look for nodes whose inputs are all known outside the loop. The passes that use these tests move
# only such nodes, and nodes that depend only on such nodes.


def _has_node_of_nonsequences(node: Apply) -> bool:
    op = scan_of(node)
    known = set(op.inner_non_seqs(op.inputs))
    return any(
        not isinstance(inner.op, (ViewOp, DeepCopyOp)) and _are_known(inner.inputs, known)
        for inner in node_ancestors(op.outputs)
    )


def _has_node_of_sequences(node: Apply) -> bool:
    op = scan_of(node)
    sequences = set(op.inner_seqs(op.inputs))
    known = sequences.union(op.inner_non_seqs(op.inputs))
    return any(
        (isinstance(inner.op, DimShuffle) and inner.inputs[0] in sequences)
        or (isinstance(inner.op, Elemwise) and _are_known(inner.inputs, known))
        for inner in node_ancestors(op.outputs)
    )


def _are_known(variables: list[Variable], known: set[Variable]) -> bool:
    return all(var in known or isinstance(var, Constant) for var in variables)


def _adds_up_products(node: Apply) -> bool:
    """Return whether an output may be a running sum of products of which only the last value is used."""
    op = scan_of(node)
    sums = zip(op.inner_sitsot(op.inputs), op.inner_sitsot_outs(op.outputs), op.outer_sitsot_outs(node), strict=True)
    return any(
        after.owner is not None
        and isinstance(after.owner.op, Elemwise)
        and isinstance(after.owner.op.scalar_op, Add)
        and before in after.owner.inputs
        and any(term.owner is not None and isinstance(term.owner.op, Dot) for term in after.owner.inputs)
        and len(clients(node.fgraph, outer)) == 1
        for before, after, outer in sums
    )


_CANDIDATES = {
    scan_opt.PushOutNonSeqScan: _has_node_of_nonsequences,
    scan_opt.PushOutSeqScan: _has_node_of_sequences,
    scan_opt.PushOutScanOutput: _adds_up_products,
}


_CROSSENTROPY_PASSES = (
    nnet.crossentropy_to_crossentropy_with_softmax,
    nnet.crossentropy_to_crossentropy_with_softmax_with_bias,
)


@around
def _where_crossentropy_is(apply: Callable[[FunctionGraph], None], fgraph: FunctionGraph) -> None:
    if type(nnet.crossentropy_categorical_1hot) in nodes_by_op(fgraph):
        apply(fgraph)


@around
def _where_terms_are(
    apply: Callable[..., tuple[Any, ...]], self: FusionOptimizer, fgraph: FunctionGraph
) -> tuple[Any, ...]:
    if self.optimizer is not local_add_mul_fusion or _has_sum_of_sums(fgraph):
        return apply(self, fgraph)
    return (self, 1, 0, 0, 0, 0, {}, 0)  # the profile that Theano expects from a pass without changes


def _has_sum_of_sums(fgraph: FunctionGraph) -> bool:
    """Return whether an operand of a sum or product is another sum or product, respectively, with no other users."""
    for cls, nodes_of in nodes_by_op(fgraph).items():
        if not issubclass(cls, Elemwise):
            continue
        for nodes in nodes_of.values():
            op = nodes[0].op
            assert isinstance(op, Elemwise)
            scalar_op = op.scalar_op
            if isinstance(scalar_op, (Add, Mul)) and any(_takes(node, type(scalar_op)) for node in nodes):
                return True
    return False


def _takes(node: Apply, kind: type) -> bool:
    return any(
        var.owner is not None
        and isinstance(var.owner.op, Elemwise)
        and isinstance(var.owner.op.scalar_op, kind)
        and len(clients(node.fgraph, var)) == 1
        for var in node.inputs
    )


PATCHES = [
    Patch(scan_utils, "reconstruct_graph", reconstruct_graph, "an inner graph is copied once"),
    *(
        Wrapper(cls, "apply", _where_scans_are, "a graph without Scans is not sorted")
        for cls in (*_SCAN_PASSES, scan_opt.ScanInplaceOptimizer)
    ),
    *(
        Wrapper(cls, "process_node", _where(has_candidate), "an inner graph is copied only where outputs are removed")
        for cls, has_candidate in _CANDIDATES.items()
    ),
    Wrapper(FusionOptimizer, "apply", _where_terms_are, "a graph without sums of sums is not sorted"),
    *(
        Wrapper(rewriter, "apply", _where_crossentropy_is, "a graph without the op is not sorted")
        for rewriter in _CROSSENTROPY_PASSES
    ),
]
