"""Arguments that a user's in-place ops overwrite (``theano.function(..., accept_inplace=True)``).

The user's op must write its result to the caller's array. In contrast, in-place ops that an optimizer inserts only
reuse memory, and leave undefined contents in it. The inputs are marked before a graph is optimized, and nodes that
overwrite them stay on the host.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from theano.compile import function_module
from theano.compile.sharedvalue import SharedVariable
from theano.gof.toolbox import AlreadyThere

from optdb.host.api.graph import Apply, FunctionGraph, Variable, clients, is_output, reachable
from optdb.host.api.patching import Patch, PatchGroup

_MARK = "optdb_overwritten_by_user"


def is_overwritten_by_user(var: Variable) -> bool:
    """Return whether an input is marked as overwritten by a user's op."""
    return getattr(var.tag, _MARK, False)


def mark_unprotected(fgraph: FunctionGraph, specs: Sequence[Any]) -> None:
    """In an optimized graph, mark each overwritten input that is declared neither as mutable nor with an update."""
    for var, spec in zip(fgraph.inputs, specs):
        protected = not getattr(spec, "mutable", True) and spec.update is None
        if protected and nodes_in_place(fgraph, var):
            setattr(var.tag, _MARK, True)


def nodes_in_place(fgraph: FunctionGraph, var: Variable) -> set[Apply]:
    """Return the nodes that overwrite an input or a view of it, and the nodes that compute these views."""

    def users(alias: Variable) -> list[tuple[Apply, int]]:
        return [(node, slot) for node, slot in clients(fgraph, alias) if not is_output(node)]

    def in_same_memory(alias: Variable) -> list[Variable]:
        return [
            node.outputs[out]
            for node, slot in users(alias)
            for slots_of in (_view_map(node), _destroy_map(node))
            for out, slots in slots_of.items()
            if slot in slots
        ]

    nodes: set[Apply] = set()
    overwritten: list[Variable] = []
    for alias in reachable([var], in_same_memory):
        destroyers = {node for node, slot in users(alias) if slot in itertools.chain(*_destroy_map(node).values())}
        if destroyers:
            nodes |= destroyers
            overwritten.append(alias)
    for alias in overwritten:  # the list grows if `alias` is a view
        if alias.owner is not None and alias.owner not in nodes:
            nodes.add(alias.owner)
            overwritten += [alias.owner.inputs[slot] for slots in _view_map(alias.owner).values() for slot in slots]
    return nodes


def _view_map(node: Apply) -> dict[int, list[int]]:
    return getattr(node.op, "view_map", None) or {}


def _destroy_map(node: Apply) -> dict[int, list[int]]:
    return getattr(node.op, "destroy_map", None) or {}


class _MarkInputs:
    """A feature that marks the inputs of a new graph, and then detaches itself."""

    def on_attach(self, fgraph: FunctionGraph) -> None:
        """Mark the inputs; raise AlreadyThere, so that Theano does not keep the feature."""
        if hasattr(fgraph, "destroy_handler"):
            updated = set((fgraph.update_mapping or {}).values())
            for number, var in enumerate(fgraph.inputs):
                # Do not mark shared variables that have updates: an update can run on the host or on a device.
                is_next = number in updated and isinstance(var, SharedVariable)
                if not is_next and nodes_in_place(fgraph, var):
                    setattr(var.tag, _MARK, True)
        raise AlreadyThere


patches = PatchGroup(
    "In-place ops of the user",
    "from the import of Theano on",
    "nothing",
    [
        Patch(
            function_module.std_fgraph,
            "features",
            [*function_module.std_fgraph.features, _MarkInputs],
            "an optimized graph does not record which in-place ops are the user's",
        )
    ],
)
