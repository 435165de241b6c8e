"""Theano's Scan around a graph of other types."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from theano.compile.pfunc import rebuild_collect_shared
from theano.scan_module.scan_op import Scan

from optdb.host.graph import FunctionGraph, Variable

__all__ = ["Scan", "inner_graph", "scan_around"]


def inner_graph(op: Scan, replace: dict[Variable, Variable]) -> tuple[list[Variable], list[Variable]]:
    """Return a copy of the graph inside of a Scan, with some of its inputs computed from others.

    Parameters
    ----------
    op : Scan
        Its graph stays as it is.
    replace : dict
        Inner input to what it is computed as, in the copy.

    Returns
    -------
    tuple of lists
        Inputs, in which those in `replace` stand unchanged, and outputs.
    """
    _, outputs, _ = rebuild_collect_shared(op.outputs, replace=replace, rebuild_strict=False)
    return list(op.inputs), outputs


def scan_around(
    op: Scan,
    fgraph: FunctionGraph,
    array_type: Callable[..., Any],
    key: Hashable,
) -> Scan:
    """Return a Scan that does what `op` does, around another inner graph.

    Parameters
    ----------
    op : Scan
        What is iterated over, and how, is taken from it.
    fgraph : FunctionGraph
        The inner graph.
    array_type : callable
        ``array_type(broadcastable=, dtype=)`` returns the type of an outer output.
    key : hashable
        What tells this graph from others; ops with the same key may be merged.
    """
    # ``gpua`` keeps Scan from asking C code of types that have none; it takes our key instead.
    info = {**op.info, "gpua": True, "gpu_hash": hash(key)}
    return Scan(list(fgraph.inputs), list(fgraph.outputs), info, typeConstructor=array_type)
