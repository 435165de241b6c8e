"""The results of node rewriters, converted to one form for all hosts, and the names of rewriters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optdb.host.api.graph import Apply, FunctionGraph, Variable, clients


def name_of(rewriter: Any) -> str:
    """Return the name that the host shows for a rewriter or a database."""
    return getattr(rewriter, "name", None) or getattr(rewriter, "__name__", None) or str(rewriter)


class BadReplacement(TypeError, ValueError):
    """A rewriter returned an invalid replacement for its node's outputs."""


def replacement_pairs(
    fgraph: FunctionGraph, rewriter: Any, node: Apply, replacements: Any
) -> tuple[list[tuple[Variable, Variable]], Sequence[Any]]:
    """Convert a rewriter's result to pairs of variables, and a list of nodes and variables that must be gone.

    The result has new variables for ``node.outputs``, where None means an output without users, or is a dict from old
    to new variables, whose key ``'remove'`` may have the list.

    Raises
    ------
    BadReplacement
        If the result has the wrong type or length, or drops a variable that is used.
    """
    old_vars: Sequence[Variable] = node.outputs
    remove: Sequence[Any] = ()
    if isinstance(replacements, dict):
        replacements = dict(replacements)
        remove = replacements.pop("remove", ())
        old_vars = list(replacements)
        replacements = list(replacements.values())
    elif not isinstance(replacements, (tuple, list)):
        raise BadReplacement(
            f"Optimizer {rewriter} gave wrong type of replacement. Expected list or tuple. Got {replacements}"
        )
    if len(old_vars) != len(replacements):
        raise BadReplacement(
            f"Optimizer {rewriter} gave wrong number of replacements: "
            f"{len(replacements)} for the {len(old_vars)} outputs of {node}"
        )
    pairs = []
    for old, new in zip(old_vars, replacements, strict=True):
        if new is None and clients(fgraph, old):
            raise BadReplacement(f"Optimizer {rewriter} tried to remove {old}, which is used")
        if new is not None and new is not old:
            pairs.append((old, new))
    return pairs, remove
