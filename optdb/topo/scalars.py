"""Copies shared scalar arithmetic into each of its users.

Calling a 0-d node takes much longer than its arithmetic. After fusion and merging, this pass therefore fuses a copy
of a shared 0-d node into each of its users.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from optdb.host.api.databases import compile_db
from optdb.host.api.fusion import scalar_op_of
from optdb.host.api.graph import Apply, FunctionGraph, Variable, clients, is_output
from optdb.host.api.rewriters import Optimizer
from optdb.host.api.tensor import Elemwise, copy_stack_trace
from optdb.topo.db import ENGINE_TAG
from optdb.topo.fusion import FusedNodeBuilder, Group, GroupFusion, Grouping, is_integer_scalar, takes_all

#: The maximum number of users of a copied node, since each copy adds code to compile.
MOST_USERS = 4
MOST_OPERATIONS = 16


class InlineScalars(Optimizer):
    """Copies 0-d elementwise nodes into their users, if these are 0-d elementwise nodes and `takes` accepts all."""

    def __init__(self, takes: Callable[[Apply], bool] = takes_all) -> None:
        self._takes = takes

    def apply(self, fgraph: FunctionGraph) -> None:
        grouping, builder = Grouping(self._takes), FusedNodeBuilder()
        for node in fgraph.toposort():
            if node in fgraph.apply_nodes and _is_scalar_arithmetic(node):
                for old, new in _fused_users(fgraph, node, grouping, builder):
                    copy_stack_trace(old, new)
                    fgraph.replace_all_validate([(old, new)], reason=self)

    def __str__(self) -> str:
        return "inline_scalars"


def _fused_users(
    fgraph: FunctionGraph, node: Apply, grouping: Grouping, builder: FusedNodeBuilder
) -> Iterator[tuple[Variable, Variable]]:
    """Yield each user's output with its replacement, which also computes `node`.

    Each replacement is built after the previous user was replaced, because one user may depend on another.
    """
    clients_of = dict.fromkeys(user for user, _ in clients(fgraph, node.outputs[0]))
    users = [user for user in clients_of if not is_output(user)]
    takes_part = (
        1 < len(users) == len(clients_of) <= MOST_USERS
        and _operations(node) <= MOST_OPERATIONS
        and grouping.can_fuse(node)
        and all(_is_scalar_arithmetic(user) and grouping.can_fuse(user) for user in users)
    )
    if not takes_part or not all(Group(user).has_room_for(node) for user in users):
        return
    for user in users:
        group = Group(user)
        group.join(node)
        yield user.outputs[0], builder.build(group)


def _is_scalar_arithmetic(node: Apply) -> bool:
    return (
        type(node.op) is Elemwise
        and len(node.outputs) == 1
        and node.outputs[0].type.ndim == 0
        and not node.op.inplace_pattern
    )


def _operations(node: Apply) -> int:
    inner: Any = getattr(scalar_op_of(node), "fgraph", None)
    return 1 if inner is None else len(inner.apply_nodes)


#: For functions on a device, only computations of sizes and indices are fused before nodes are moved to the device.
SIZES_TAG = "optdb_sizes"

compile_db().register("fuse_sizes", GroupFusion(is_integer_scalar), 49, SIZES_TAG)
compile_db().register("inline_sizes", InlineScalars(is_integer_scalar), 49.01, SIZES_TAG)
compile_db().register(
    "inline_scalars", InlineScalars(), 49.01, ENGINE_TAG, "fusion", "local_elemwise_fusion", "FusionOptimizer"
)
