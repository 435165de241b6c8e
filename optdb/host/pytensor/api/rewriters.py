"""Node rewriters of PyTensor, and their transformations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from pytensor.graph.rewriting.basic import FromFunctionNodeRewriter, NodeRewriter

from optdb.host.api.graph import Apply, FunctionGraph

LocalOptimizer = NodeRewriter


def transform_of(rewriter: NodeRewriter) -> Callable[[FunctionGraph, Apply], Any]:
    """Return a rewriter's transformation of tracked nodes, as a function of a graph and a node."""
    if type(rewriter) is FromFunctionNodeRewriter:
        return rewriter.fn  # `transform` checks the tracked ops, then calls `fn`
    return partial(rewriter.transform, enforce_tracks=False)
