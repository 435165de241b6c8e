"""Roles of a function's nodes, derived from the graph: which nodes run the same commands in each call.

A *value-dependent* node depends on a host value that may change, so each call compares its inputs. A node is *always
recomputed* if it moves device values to the host, computes a host value that the plan does not own, or runs commands
that cannot be recorded. **A plan owns a host value only if no variable of its alias class is visible outside of the
nodes that read it**: no other code can then overwrite the value or empty its cell.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from optdb.device.plans.graph import Node, NodeGraph, ValueId


@dataclass(frozen=True)
class Roles:
    """The roles of a function's nodes."""

    #: The nodes that depend on host values that may change, including those that are always recomputed.
    value_dependent: frozenset[Node]
    #: The nodes that run in Python in each call.
    always_recompute: frozenset[Node]


def find_roles(
    graph: NodeGraph, steps: Iterable[tuple[Node, Sequence[ValueId]]], unrepeatable: Collection[Node]
) -> Roles:
    """Find the roles of the nodes on a path, each with the inputs that it uses; some could not be recorded."""
    inputs = set(graph.inputs)
    changing = {var for var in inputs if not graph.on_device(var)}
    value_dependent: set[Node] = set()
    always_recompute: set[Node] = set()
    for node, used in steps:
        if node in unrepeatable or _always_recomputes(graph, node):
            always_recompute.add(node)
        elif changing.isdisjoint(_guarded(graph, node, inputs, used)):
            continue
        value_dependent.add(node)
        changing.update(node.outputs)
    return Roles(frozenset(value_dependent), frozenset(always_recompute))


def _guarded(graph: NodeGraph, node: Node, given: set[ValueId], used: Sequence[ValueId]) -> list[ValueId]:
    """Return the inputs to guard: all except conditions, constants, and inputs of which only shapes are read."""
    if node.reads_shapes:
        return [var for var in used if var not in given]
    return [var for var in used[bool(node.chosen) :] if var not in graph.constants]


def _always_recomputes(graph: NodeGraph, node: Node) -> bool:
    on_host = [var for var in node.outputs if not graph.on_device(var)]
    if not graph.exposed.isdisjoint(on_host):
        return True
    if on_host and not node.reads_shapes and any(map(graph.on_device, node.inputs)):
        return True
    return graph.touches_device(node) and not node.is_repeatable
