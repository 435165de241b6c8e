"""The graph inside of an op as a key.

Nodes are numbered as they are met from the outputs, inputs by their place;
what is left is a list of ops and numbers, equal for graphs that compute the
same in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from optdb.cache.frozen import Same
from optdb.host.graph import Constant, Variable, io_toposort


def constant_key(constant: Constant, frozen: Callable[[Any], Any]) -> Any:
    """Return a hashable key of a constant: its type and its value."""
    return ("constant", frozen(constant.type), frozen(constant.signature()))


def graph_key(inputs: Sequence[Variable], outputs: Sequence[Variable], frozen: Callable[[Any], Any]) -> Any:
    """Return a hashable key of the graph between `inputs` and `outputs`.

    Parameters
    ----------
    inputs, outputs : sequence of Variable
        The graph may also use constants, by their values, and other variables
        without an owner, by identity.
    frozen : callable
        Makes the key of an op, a type or a constant's signature.

    Returns
    -------
    tuple
        Types of the inputs, one entry per node, and where the outputs come from.
    """
    place: dict[Variable, Any] = {var: ("input", index) for index, var in enumerate(inputs)}

    def source(var: Variable) -> Any:
        known = place.get(var)
        if known is not None:
            return known
        if isinstance(var, Constant):
            return constant_key(var, frozen)
        return ("variable", Same(var))

    nodes = []
    for number, node in enumerate(io_toposort(inputs, outputs)):
        types = tuple([frozen(var.type) for var in node.outputs])
        nodes.append((frozen(node.op), tuple([source(var) for var in node.inputs]), types))
        place.update((var, ("node", number, index)) for index, var in enumerate(node.outputs))
    return (tuple([frozen(var.type) for var in inputs]), tuple(nodes), tuple([source(var) for var in outputs]))
