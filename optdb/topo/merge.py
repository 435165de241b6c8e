"""Common-subexpression elimination with an incrementally updated index.

Theano's MergeFeature compares a new node with all users of one of its inputs. This index instead looks up the node's op
and inputs in a dictionary. Theano's MergeOptimizer then merges the equal nodes.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from optdb.host.api.graph import Apply, Constant, FunctionGraph, PureOp, Variable
from optdb.host.api.rewriters import MergeFeature, MergeOptimizer

#: The maximum number of elements in a constant that is compared by its bytes.
_MAX_SMALL_SIZE = 8
_INDEX = ("_nodes", "_keys", "_first_equal", "_op_of_id")


class MergeIndex(MergeFeature):
    """A MergeFeature that finds equal nodes in a dictionary.

    Invariants: ``_nodes[key]`` is in the graph, and ``_keys[node]`` is the key of the node's op and current inputs.
    Keys are integers: ``_first_equal`` maps an op to the first op equal to it, and ``_op_of_id`` keeps each op alive.
    """

    def on_attach(self, fgraph: FunctionGraph) -> None:
        self._nodes: dict[Hashable, Apply] = {}
        self._keys: dict[Apply, Hashable] = {}
        self._first_equal: dict[PureOp, PureOp] = {}
        self._op_of_id: dict[int, tuple[PureOp, int]] = {}
        super().on_attach(fgraph)
        self.nodes_seen = self._keys.keys()

    def on_change_input(
        self, fgraph: FunctionGraph, node: Apply | str, i: int, old: Variable, new: Variable, reason: Any = None
    ) -> None:
        if node in self._keys:
            self._forget(node)
            self.process_node(fgraph, node)
        if isinstance(new, Constant):
            self.process_constant(fgraph, new)

    def on_prune(self, fgraph: FunctionGraph, node: Apply, reason: Any) -> None:
        self._forget(node)
        for var in node.inputs:
            if isinstance(var, Constant) and len(var.clients) <= 1:
                self._forget_constant(var)

    def process_constant(self, fgraph: FunctionGraph, constant: Constant) -> None:
        """Add `constant` to the index, or schedule its merge with an equal constant."""
        if id(constant) in self.seen_constants:
            return
        signature = _small_signature(constant)
        if signature is None:
            super().process_constant(fgraph, constant)
            return
        equal = self.const_sig_inv.get(signature, None)
        if equal is None:
            self.const_sig[constant] = signature
            self.const_sig_inv[signature] = constant
            self.seen_constants.add(id(constant))
            return
        if constant.name:  # only one of two names can be kept: Theano keeps the later one
            equal.name = constant.name
        self.scheduled.append([[(constant, equal, "merge")]])

    def process_node(self, fgraph: FunctionGraph, node: Apply) -> None:
        """Add `node` to the index, or schedule its merge with an equal node."""
        if node in self._keys:
            return
        key = self._key(node)
        twin = self._nodes.setdefault(key, node)
        if twin is node:
            self._keys[node] = key
            return
        if (node, twin) in self.blacklist:  # the merge was refused, and reverting it restored the node
            return
        for var, twin_output in zip(node.outputs, twin.outputs, strict=True):
            if var.name:  # only one of two names can be kept: Theano keeps the later one
                twin_output.name = var.name
        pairs = [(var, twin_output, "merge") for var, twin_output in zip(node.outputs, twin.outputs, strict=True)]
        self.scheduled.append([pairs])

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the index as Theano's own MergeFeature, so that the pickle loads without optdb."""
        state = {k: v for k, v in vars(self).items() if k not in _INDEX}
        state["nodes_seen"] = set(self._keys)
        return MergeFeature, (), state

    def _forget(self, node: Apply) -> None:
        key = self._keys.pop(node, None)
        if key is not None:
            del self._nodes[key]

    def _key(self, node: Apply) -> Hashable:
        """Return a node's key; nodes with equal ops and the same inputs have equal keys."""
        op = node.op
        entry = self._op_of_id.get(id(op)) or self._enter(op)
        return (entry[1], *map(id, node.inputs))

    def _enter(self, op: PureOp) -> tuple[PureOp, int]:
        try:
            first = self._first_equal.setdefault(op, op)
        except TypeError:  # an unhashable op is equal only to itself
            first = op
        entry = self._op_of_id[id(op)] = (op, id(first))
        return entry

    def _forget_constant(self, constant: Constant) -> None:
        if id(constant) not in self.seen_constants:
            return
        signature = self.const_sig[constant]
        self.const_sig.discard(constant)
        self.const_sig_inv.discard(signature)
        self.seen_constants.discard(id(constant))


def _small_signature(constant: Constant) -> Hashable | None:
    """Return a signature made of a small constant's bytes; None for other constants."""
    data = constant.data
    if type(data) is not np.ndarray or data.size > _MAX_SMALL_SIZE or data.dtype.kind not in "biufc":
        return None
    # Adding zero turns -0.0 into 0.0, because Theano treats both zeros as equal.
    return (constant.type, data.shape, (data + 0).tobytes())


class IndexedMergeOptimizer(MergeOptimizer):
    """A MergeOptimizer that uses a :class:`MergeIndex`."""

    def add_requirements(self, fgraph: FunctionGraph) -> None:
        if not hasattr(fgraph, "merge_feature"):
            fgraph.attach_feature(MergeIndex())
