"""Lets ``theano.printing.debugprint`` print other objects that have graphs.

An object takes part by a method ``__debugprint__()``, which returns graphs or variables.
"""

from __future__ import annotations

import functools
from typing import Any

from theano import printing

__all__ = ["extend_debugprint"]


def extend_debugprint() -> None:
    """Let ``debugprint`` know objects with a method ``__debugprint__``, from now on."""
    print_theirs = printing.debugprint
    if getattr(print_theirs, "knows_graph_holders", False):
        return

    @functools.wraps(print_theirs)
    def debugprint(obj: Any, *args: Any, **kwargs: Any) -> Any:
        return print_theirs(_graphs_of(obj), *args, **kwargs)

    debugprint.knows_graph_holders = True
    printing.debugprint = debugprint


def _graphs_of(obj: Any) -> Any:
    """Return the graphs of an object, or of those in a list; everything else as it is."""
    if isinstance(obj, (list, tuple, set)):
        return [graph for item in obj for graph in _as_list(_graphs_of(item))]
    graphs = getattr(type(obj), "__debugprint__", None)
    return obj if graphs is None else graphs(obj)


def _as_list(obj: Any) -> list[Any]:
    return obj if isinstance(obj, list) else [obj]
