"""Rewriting of elementwise ops so that they overwrite one of their inputs.

Each output overwrites the first input that the destroy handler allows it to overwrite. The pass asks the handler before
it builds a node, so that it never reverts a replacement.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import nullcontext
from typing import Any

from optdb.host.api.bookkeeping import order_by_data
from optdb.host.api.config import change_flags, config
from optdb.host.api.destroy import InplaceElemwiseOptimizer, inplace_scalar_op, protected_variables, reads_after_storing
from optdb.host.api.graph import Apply, FunctionGraph, InconsistencyError, Variable, clients, is_output
from optdb.host.api.tensor import Elemwise, copy_stack_trace
from optdb.host.api.testvalues import without_test_values
from optdb.topo.destroyer import IncrementalDestroyHandler

#: In graphs with more nodes than this, Theano skips scalars, because overwriting scalars gains nothing.
_BIG = 500


class InplaceElemwise(InplaceElemwiseOptimizer):
    """An InplaceElemwiseOptimizer that asks the destroy handler before it builds a node."""

    def apply(self, fgraph: FunctionGraph) -> dict[str, Any]:
        """Make nodes of `fgraph` work in place, and return a profile of the pass in Theano's format."""
        # Device variables have no test values.
        with nullcontext() if self.op is Elemwise else without_test_values():
            return self._apply(fgraph)

    def _apply(self, fgraph: FunctionGraph) -> dict[str, Any]:
        if not isinstance(getattr(fgraph, "destroy_handler", None), IncrementalDestroyHandler):
            # In a large graph, Theano validates several replacements at once. If two outputs overwrite the same array,
            # a query of the handler before this validation raises an error, so validate each replacement.
            with change_flags({"tensor.insert_inplace_optimizer_validate_nb": 1}):
                return super().apply(fgraph)
        return self._run(InplacePass(self, fgraph))

    def _run(self, run: InplacePass) -> dict[str, Any]:
        there = any(type(node.op) is self.op for node in run.fgraph.apply_nodes)
        for node in order_by_data(run.fgraph) if there else ():
            if type(node.op) is self.op and not (run.skips_scalars and node.outputs[0].type.ndim == 0):
                run.visit(node)
        return run.profile


class InplacePass:
    """One pass of a rewriter over a graph."""

    def __init__(self, rewriter: InplaceElemwise, fgraph: FunctionGraph) -> None:
        self.rewriter = rewriter
        self.fgraph = fgraph
        self.handler: Any = fgraph.destroy_handler
        self.protected = protected_variables(fgraph)
        validate_nb = config.tensor.insert_inplace_optimizer_validate_nb
        self.skips_scalars = validate_nb > 1 or (validate_nb == -1 and len(fgraph.apply_nodes) > _BIG)
        self.ops: dict[Any, Elemwise] = {}
        self.profile: dict[str, Any] = {
            "opt": rewriter,
            "node_before": len(fgraph.apply_nodes),
            **dict.fromkeys(("nb_call_replace", "nb_call_validate", "nb_inconsistent"), 0),
            "ndim": defaultdict(int),
        }

    def visit(self, node: Apply) -> None:
        """For each output of `node` that overwrites no input yet, find an input for it to overwrite."""
        op: Any = node.op  # the host's Elemwise, or a device's op with a pattern
        pattern = dict(op.inplace_pattern)
        for i in range(len(node.outputs)):
            if i in pattern:
                continue
            for slot in self.candidates(node, i, pattern):
                if not self._may_destroy(node, slot):
                    continue
                new_node = self._replace(node, {**pattern, i: slot})
                if new_node is not None:
                    node = new_node
                    pattern[i] = slot
                    break

    def _may_destroy(self, node: Apply, slot: int) -> bool:
        """Return whether a node may overwrite an input; Theano's own handler cannot be asked, so the graph refuses."""
        if isinstance(self.handler, IncrementalDestroyHandler):
            return self.handler.may_destroy(node, slot, self.protected)
        return node.inputs[slot] not in self.protected

    def candidates(self, node: Apply, i: int, pattern: dict[int, int]) -> list[int]:
        """Return the inputs of the right type for output `i` to overwrite, best first."""
        out = node.outputs[i]
        slots = [slot for slot, var in enumerate(node.inputs) if slot not in pattern.values() and var.type == out.type]
        if self.rewriter.op is not Elemwise:
            slots = [slot for slot in slots if not _is_number(node.inputs[slot])]
        if len(node.outputs) > 1 and type(node.op) is Elemwise:
            slots = [slot for slot in slots if not reads_after_storing(node.op, i, slot)]
        updated = self._updated_by(out)
        if not updated:
            return slots
        return sorted(slots, key=lambda slot: self._rank(node.inputs[slot], updated))

    def _updated_by(self, out: Variable) -> list[Variable]:
        mapping = self.fgraph.update_mapping or {}
        updated = [i for client, i in clients(self.fgraph, out) if is_output(client)]
        return [self.fgraph.inputs[mapping[i]] for i in updated if i in mapping]

    def _rank(self, var: Variable, updated: list[Variable]) -> int:
        """Rank inputs to overwrite: the updated variable first, then results that have overwritten that variable."""
        if var in updated:
            return 0
        known = getattr(self.handler, "root_destroyer", {})
        destroyers = [known.get(root) for root in updated]
        return 1 if var.owner is not None and var.owner in destroyers else 2

    def _replace(self, node: Apply, pattern: dict[int, int]) -> Apply | None:
        """Replace `node` with a node that has an inplace pattern; return None if the graph refuses the new node."""
        new = self.inplace_op(node, pattern)(*node.inputs, return_list=True)
        # Copy traces one by one: otherwise each replacement multiplies the traces of a node with many outputs.
        for before, after in zip(node.outputs, new, strict=True):
            copy_stack_trace(before, after)
        self.profile["nb_call_replace"] += len(new)
        self.profile["nb_call_validate"] += 1
        pairs = list(zip(node.outputs, new, strict=True))
        try:
            self.fgraph.replace_all_validate(pairs, reason="inplace_elemwise_optimizer")
        except (ValueError, InconsistencyError):  # another feature may refuse what the handler allows
            self.profile["nb_inconsistent"] += 1
            return None
        self.profile["ndim"][new[0].type.ndim] += 1
        self.protected.update(after for before, after in pairs if before in self.protected)
        replaced: Apply | None = new[0].owner
        return replaced

    def inplace_op(self, node: Apply, pattern: dict[int, int]) -> Any:
        """Return the op of a node with an inplace pattern."""
        key = (node.op, tuple(sorted(pattern.items())), tuple(out.type.dtype for out in node.outputs))
        op = self.ops.get(key)
        if op is None:
            elementwise: Any = node.op
            op = self.ops[key] = self.rewriter.op(inplace_scalar_op(elementwise, node.outputs, pattern), pattern)
        return op


def _is_number(var: Variable) -> bool:
    """Return whether a variable is a computed array with one element.

    On a device, overwriting an array of one element would make commands wait for the readers of the array.
    """
    return var.owner is not None and all(var.type.broadcastable)
