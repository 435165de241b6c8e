"""Extends ``debugprint`` to objects with a method ``__debugprint__``, and shortens the names of composites.

The name of a `Composite` repeats shared subexpressions and may not fit into memory, so long names become lists of
steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from theano import printing
from theano.scalar.basic import Composite

from optdb.host.api.graph import FunctionGraph, clients
from optdb.host.api.patching import PatchGroup, Wrapper, around

#: The maximum number of ops and inputs of a scalar graph that is printed as in Theano.
_WRITTEN_OUT = 100
#: The maximum depth of a printed expression; it is limited because Theano prints operands by recursion.
_MAX_DEPTH = 50


@around
def _knowing_graph_holders(print_graphs: Callable[..., Any], obj: Any, *args: Any, **kwargs: Any) -> Any:
    return print_graphs(_graphs_of(obj), *args, **kwargs)


@around
def _in_few_words(init_name: Callable[[Composite], None], self: Composite) -> None:
    if self.name is None and _length_written_out(self.fgraph) > _WRITTEN_OUT:
        self.name = f"Composite{{{', '.join(_steps(self.fgraph))}}}"
    init_name(self)


def _length_written_out(graph: FunctionGraph) -> int:
    """Return how many ops and inputs a graph's text contains if each use of a subexpression repeats its text."""
    lengths: dict[Any, int] = {}
    for node in graph.toposort():
        length = 1 + sum(lengths.get(var, 1) for var in node.inputs)
        lengths.update(dict.fromkeys(node.outputs, length))
    return sum(lengths.get(var, 1) for var in graph.outputs)


def _steps(graph: FunctionGraph) -> list[str]:
    """Return the steps as text: assignments of variables that are used more than once or are deep, then the outputs."""
    shown = {var: var.type(f"i{index}") for index, var in enumerate(graph.inputs)}
    depths: dict[Any, int] = {}
    steps: list[str] = []
    for node in graph.toposort():
        copied = node.clone_with_new_inputs([shown.get(var, var) for var in node.inputs])
        depth = 1 + max((depths.get(var, 0) for var in node.inputs), default=0)
        for var, copy in zip(node.outputs, copied.outputs, strict=True):
            shown[var] = copy
            depths[var] = depth
            if len(clients(graph, var)) > 1 or depth == _MAX_DEPTH:
                depths[var] = 0
                shown[var] = var.type(f"t{len(steps)}")
                steps.append(f"{shown[var]} = {printing.pprint(copy)}")
    return [*steps, *[printing.pprint(shown.get(var, var)) for var in graph.outputs]]


patches = PatchGroup(
    "Printing of graphs",
    "from the import of Theano on",
    "nothing",
    [
        Wrapper(printing, "debugprint", _knowing_graph_holders, "simulators and plans have graphs to print"),
        Wrapper(
            Composite,
            "init_name",
            _in_few_words,
            "shared subexpressions are printed once, instead of up to 2**n times at depth n",
        ),
    ],
)


def _graphs_of(obj: Any) -> Any:
    """Return the graphs of an object or of the objects in a list; return anything else unchanged."""
    if isinstance(obj, (list, tuple, set)):
        return [graph for item in obj for graph in _as_list(_graphs_of(item))]
    graphs = getattr(type(obj), "__debugprint__", None)
    return obj if graphs is None else graphs(obj)


def _as_list(obj: Any) -> list[Any]:
    return obj if isinstance(obj, list) else [obj]
