"""Lets ``theano.printing.debugprint`` print other objects that have graphs.

An object takes part by a method ``__debugprint__()``, which returns graphs or variables.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from theano import printing

from optdb.host.patching import PatchGroup, Wrapper

__all__ = ["extend_debugprint"]


def extend_debugprint() -> None:
    """Let ``debugprint`` know objects with a method ``__debugprint__``, from now on."""
    _patches.install()


def _knowing_graph_holders(print_graphs: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(print_graphs)
    def debugprint(obj: Any, *args: Any, **kwargs: Any) -> Any:
        return print_graphs(_graphs_of(obj), *args, **kwargs)

    return debugprint


_patches = PatchGroup(
    "Printing of graphs",
    "from the import of Theano on",
    "nothing",
    [Wrapper(printing, "debugprint", _knowing_graph_holders, "simulators and plans have graphs to print")],
)


def _graphs_of(obj: Any) -> Any:
    """Return the graphs of an object, or of those in a list; everything else as it is."""
    if isinstance(obj, (list, tuple, set)):
        return [graph for item in obj for graph in _as_list(_graphs_of(item))]
    graphs = getattr(type(obj), "__debugprint__", None)
    return obj if graphs is None else graphs(obj)


def _as_list(obj: Any) -> list[Any]:
    return obj if isinstance(obj, list) else [obj]
