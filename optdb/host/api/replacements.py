"""Node rewriters of any host: their names, facts about them, and a common form for their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from optdb.host.api.graph import Apply, FunctionGraph, Variable, clients


def name_of(rewriter: Any) -> str:
    """Return the host's name for a rewriter or a database."""
    return getattr(rewriter, "name", None) or getattr(rewriter, "__name__", None) or str(rewriter)


Refusals = tuple[bool | None, ...]


class Facts(NamedTuple):
    """Facts about a node rewriter that let the engine skip futile attempts.

    Attributes
    ----------
    tracks : callable, or None
        Takes an op that the rewriter tracks; returns False only if the rewriter declines all nodes of the op.
    guard : callable, or None
        Takes a node; returns False only if the rewriter declines it.
    lasting : tuple, or callable that returns a tuple
        The results, None or False, after which the rewriter declines the node until an ancestor of the node changes.
    before : object, or None
        Another rewriter, which is tried after this one.
    """

    tracks: Callable[[Any], bool] | None = None
    guard: Callable[[Apply], bool] | None = None
    lasting: Refusals | Callable[[], Refusals] = ()
    before: Any = None

    def may_apply(self, op: Any) -> bool:
        """Return False only if the rewriter declines all nodes of `op`; the rewriter must track `op`."""
        return self.tracks is None or self.tracks(op)

    def lasting_refusals(self) -> Refusals:
        """Return the results, None or False, after which the rewriter declines a node until an ancestor changes."""
        return self.lasting() if callable(self.lasting) else self.lasting


class BadReplacement(TypeError, ValueError):
    """Raised if a rewriter returns an invalid replacement for a node's outputs."""


def replacement_pairs(
    fgraph: FunctionGraph, rewriter: Any, node: Apply, replacements: Any
) -> tuple[list[tuple[Variable, Variable]], Sequence[Any]]:
    """Convert a rewriter's result to pairs of variables, and a list of nodes and variables to remove.

    The rewriter's result is a list of new variables for ``node.outputs``, in which outputs without users may be None,
    or a dict from old to new variables. Under the key ``'remove'``, the dict may list nodes and variables to remove.

    Raises
    ------
    BadReplacement
        If the result has the wrong type or length, contains something other than variables, or drops a used variable.
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
        if new is not None and not isinstance(new, Variable):
            raise BadReplacement(f"Optimizer {rewriter} gave {new!r} instead of a variable, as a replacement for {old}")
        if new is not None and new is not old:
            pairs.append((old, new))
    return pairs, remove
