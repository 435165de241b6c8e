"""Finds what needs a node: branches and users.

A branch that is not taken must compute nothing and raise nothing, so nodes may be merged only if the same branches need
them.
"""

from __future__ import annotations

from collections.abc import Mapping

from optdb.host.api.control_flow import IfElse
from optdb.host.api.graph import Apply, FunctionGraph, Variable, clients, is_output

#: A set of branches, each given as an IfElse node and the branch's index; `ALWAYS` for nodes that every call computes.
Needs = frozenset[tuple[Apply, int]]
ALWAYS: Needs = frozenset()


def needs_of(fgraph: FunctionGraph) -> Mapping[Apply, Needs]:
    """Map nodes to the branches that need them; nodes that are missing from the map are always computed."""
    nodes = fgraph.toposort()
    if not any(isinstance(node.op, IfElse) for node in nodes):
        return {}
    found: dict[Apply, Needs] = {}
    for node in reversed(nodes):
        found[node] = _needs(fgraph, node, found)
    return found


def _needs(fgraph: FunctionGraph, node: Apply, of_users: Mapping[Apply, Needs]) -> Needs:
    branches: set[tuple[Apply, int]] = set()
    for out in node.outputs:
        for client, index in clients(fgraph, out):
            if is_output(client):
                return ALWAYS
            if isinstance(client.op, IfElse) and index:
                branches.add((client, (index - 1) // client.op.n_outs))
            elif not of_users[client]:
                return ALWAYS
            else:
                branches |= of_users[client]
    return frozenset(branches)


def is_for_one(fgraph: FunctionGraph, var: Variable) -> bool:
    """Tell whether a variable is used exactly once, as an input of a node."""
    users = clients(fgraph, var)
    return len(users) == 1 and not is_output(users[0][0])
