"""Node rewriters of PyTensor, and what they offer for a node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pytensor.graph.rewriting.basic import FromFunctionNodeRewriter, NodeRewriter

from optdb.host.api.graph import Apply, FunctionGraph, Variable, clients

__all__ = [
    "BadReplacement",
    "LocalOptimizer",
    "name_of",
    "replacement_pairs",
    "transform_of",
]

#: A node rewriter: Theano's name for it.
LocalOptimizer = NodeRewriter


def transform_of(rewriter: NodeRewriter) -> Callable[[FunctionGraph, Apply], Any]:
    """Return `rewriter`'s transformation of a node whose op it tracks, as a function of a graph and a node."""
    if type(rewriter) is FromFunctionNodeRewriter:
        return rewriter.fn  # what its transform calls once it has not enforced the tracks
    return partial(rewriter.transform, enforce_tracks=False)


def name_of(rewriter: Any) -> str:
    """Return the name that PyTensor shows for a rewriter."""
    return getattr(rewriter, "name", None) or getattr(rewriter, "__name__", None) or str(rewriter)


class BadReplacement(TypeError, ValueError):
    """A rewriter returned an invalid replacement for its node's outputs."""


def replacement_pairs(
    fgraph: FunctionGraph, rewriter: Any, node: Apply, replacements: Any
) -> tuple[list[tuple[Variable, Variable]], Sequence[Any]]:
    """Turn what a rewriter returned into ``(old, new)`` pairs, as PyTensor's ``process_node`` does.

    Parameters
    ----------
    replacements : list, tuple or dict
        New variables for ``node.outputs``, in order, or a dict from old variables to new ones, whose key ``'remove'``
        may list what has to be gone afterwards. None stands for an output without users.

    Returns
    -------
    pairs : list of (Variable, Variable)
        Without those that would replace a variable by itself.
    remove : sequence
        Nodes and variables that must not be in the graph any more.

    Raises
    ------
    BadReplacement
        If it has the wrong type or length, or drops a variable that is used.
    """
    old_vars: Sequence[Variable] = node.outputs
    remove: Sequence[Any] = ()
    if isinstance(replacements, dict):
        replacements = dict(replacements)
        remove = list(replacements.pop("remove", ()))
        old_vars = list(replacements)
        replacements = list(replacements.values())
    elif not isinstance(replacements, (tuple, list)):
        raise BadReplacement(
            f"Node rewriter {rewriter} gave wrong type of replacement. Expected list or tuple; got {replacements}"
        )
    if len(old_vars) != len(replacements):
        raise BadReplacement(f"Node rewriter {rewriter} gave wrong number of replacements")
    pairs = []
    for old, new in zip(old_vars, replacements, strict=True):
        if new is None and clients(fgraph, old):
            raise BadReplacement(f"Node rewriter {rewriter} tried to remove a variable that is being used: {old}")
        if new is not None and new is not old:
            pairs.append((old, new))
    return pairs, remove
