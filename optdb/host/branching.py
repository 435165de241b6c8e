"""Theano's IfElse: lazy choice between two sets of values."""

from __future__ import annotations

from theano.ifelse import IfElse

from optdb.host.graph import Variable

__all__ = ["IfElse", "ifelse_between"]


def ifelse_between(op: IfElse, condition: Variable, branches: list[Variable]) -> list[Variable]:
    """Choose as `op` does, between variables of any type.

    The result is a view of the chosen value: Theano cannot copy values of other types than its own,
    and in-place ops respect views.
    """
    # ``gpu`` tells IfElse to leave the types of the branches alone.
    chosen = IfElse(op.n_outs, as_view=True, gpu=True, name=op.name)
    return chosen(condition, *branches, return_list=True)
