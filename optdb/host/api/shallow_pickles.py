"""Pickles and deep-copies graphs with a recursion depth that does not grow with the graph.

Theano pickles a variable together with its clients, and reaches the recursion limit at about 150 nodes. This module
pickles nodes in topological order, and clients after all nodes. The maker of a function also keeps the graph from
before the optimization. The nodes of that graph are pickled in topological order, before the rest of the maker.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, SupportsIndex

from theano.compile.function_module import FunctionMaker
from theano.gof import FunctionGraph, Variable
from theano.gof.graph import io_toposort
from theano.gof.toolbox import AlreadyThere

from optdb.host.api.patching import PatchGroup, Wrapper, around


def pickle_in_order(fgraph: FunctionGraph) -> None:
    """Make pickle and ``copy.deepcopy`` process the nodes of a graph in topological order."""
    if not is_pickled_in_order(fgraph):
        fgraph._features.insert(0, _NodesInOrder(fgraph))


class _NodesInOrder:
    """A graph's first feature, which makes pickle process the nodes before other objects that refer to them."""

    def __init__(self, fgraph: FunctionGraph) -> None:
        self._fgraph = fgraph

    def on_attach(self, fgraph: FunctionGraph) -> None:
        raise AlreadyThere

    def __getstate__(self) -> dict[str, Any]:
        fgraph = self._fgraph
        clients = [(var, var.clients) for var in fgraph.variables]
        nodes = io_toposort(fgraph.inputs, fgraph.outputs)
        return {"inputs": list(fgraph.inputs), "nodes": nodes, "clients": clients, "fgraph": fgraph}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._fgraph = state["fgraph"]
        for var, clients in state["clients"]:
            var.clients = clients
            var.fgraph = self._fgraph  # copy.deepcopy removes `fgraph` from constants


def is_pickled_in_order(fgraph: FunctionGraph | None) -> bool:
    """Return whether pickle processes the nodes of a graph in topological order."""
    features: list[Any] | None = getattr(fgraph, "_features", None)
    return features is not None and len(features) > 0 and type(features[0]) is _NodesInOrder


@around
def _without_clients(getstate: Callable[[Variable], dict[str, Any]], self: Variable) -> dict[str, Any]:
    state = getstate(self)
    if is_pickled_in_order(state.get("fgraph")):
        state.pop("clients", None)
    return state


@around
def _nodes_first(
    reduce_ex: Callable[[FunctionMaker, SupportsIndex], Any], self: FunctionMaker, protocol: SupportsIndex
) -> Any:
    reduced = reduce_ex(self, protocol)
    if not is_pickled_in_order(getattr(self, "fgraph", None)):
        return reduced
    constructor, args, state, *rest = reduced
    updates = [spec.update for spec in self.inputs if spec.update is not None]
    nodes = io_toposort([], [*(spec.variable for spec in self.outputs), *updates])
    return constructor, args, {"nodes_in_order": nodes, **state}, *rest


_patches = PatchGroup(
    "Pickles of device graphs",
    "from the import of Theano on",
    "nothing",
    [
        Wrapper(Variable, "__getstate__", _without_clients, "pickling clients recurses as deep as the graph"),
        Wrapper(FunctionMaker, "__reduce_ex__", _nodes_first, "pickling outputs recurses as deep as the graph"),
    ],
)
# Install the patches on import. Unpickling a graph imports no other module that could install them, and they are needed
# when the graph is pickled again.
_patches.install()
