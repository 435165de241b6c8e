"""Shared scalar arithmetic is computed again by each user, inside the user's own loop.

Theano fuses an elementwise node into its user where that is the only one.  A
0-d node with several users stays a node of its own, which costs a call per
evaluation; its arithmetic costs nothing.  After fusion and merging, each such
user gets a copy to itself, and Theano's fusion takes the copy in.
"""

from __future__ import annotations

from typing import Any

from optdb.host.databases import compile_db
from optdb.host.graph import Apply, FunctionGraph, Variable, clients, is_output
from optdb.host.rewriters import Optimizer
from optdb.host.tensor import Elemwise, copy_stack_trace, fuse_elemwise
from optdb.topo.db import ENGINE_TAG

#: A node with more users than this stays: copies are code that the compiler reads.
MOST_USERS = 4
#: Likewise for a node with more scalar operations than this.
MOST_OPERATIONS = 16


class InlineScalars(Optimizer):
    """Copy 0-d elementwise nodes into all their users, where all of them are 0-d too."""

    def apply(self, fgraph: FunctionGraph) -> None:
        for node in fgraph.toposort():
            if node in fgraph.apply_nodes and _is_scalar_arithmetic(node):
                self._inline(fgraph, node)

    def _inline(self, fgraph: FunctionGraph, node: Apply) -> None:
        users = list(dict.fromkeys(user for user, _ in clients(fgraph, node.outputs[0])))
        takes_part = (
            1 < len(users) <= MOST_USERS
            and _operations(node) <= MOST_OPERATIONS
            and not any(is_output(user) or not _is_scalar_arithmetic(user) for user in users)
        )
        if not takes_part:
            return
        for user in users:
            if not self._copy_into(fgraph, node, user):
                return

    def _copy_into(self, fgraph: FunctionGraph, node: Apply, user: Apply) -> bool:
        shared = node.outputs[0]
        own = copy_stack_trace(shared, node.op.make_node(*node.inputs).outputs[0])
        self._exchange(fgraph, user, shared, own)
        fused = fuse_elemwise(user)
        if not fused:
            self._exchange(fgraph, user, own, shared)
            return False
        copy_stack_trace(user.outputs[0], fused[0])
        fgraph.replace_all_validate([(user.outputs[0], fused[0])], reason=self)
        return True

    def _exchange(self, fgraph: FunctionGraph, user: Apply, old: Variable, new: Variable) -> None:
        for i, var in enumerate(list(user.inputs)):
            if var is old:
                fgraph.change_input(user, i, new, reason=self)

    def __str__(self) -> str:
        return "inline_scalars"


def _is_scalar_arithmetic(node: Apply) -> bool:
    return (
        type(node.op) is Elemwise
        and len(node.outputs) == 1
        and node.outputs[0].type.ndim == 0
        and not node.op.inplace_pattern
    )


def _operations(node: Apply) -> int:
    """Return how many scalar operations `node` does for each element."""
    inner: Any = getattr(node.op.scalar_op, "fgraph", None)
    return 1 if inner is None else len(inner.apply_nodes)


compile_db().register(
    "inline_scalars", InlineScalars(), 49.01, ENGINE_TAG, "fusion", "local_elemwise_fusion", "FusionOptimizer"
)
