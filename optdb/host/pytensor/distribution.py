"""PyTensor's algebra of long sums and products, in less time, with a guard of ``local_greedy_distributor``.

PyTensor puts a factor into each term of a sum, simplifies all the terms, and drops them unless operations are saved.
In a recurrence that is unrolled, sums have hundreds of terms, and nearly all trials are dropped.  The guard counts what
simplifying may save at most, term by term, without simplifying.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from pytensor.tensor import abs as absolute
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.rewriting import math as rewriting
from pytensor.tensor.variable import TensorConstant

from optdb.host.api.graph import Variable
from optdb.host.api.patching import Patch, Wrapper

__all__ = ["may_save", "patches"]

#: PyTensor counts a division as this many multiplications.
_DIVISION = 1.5
#: Products of constants nearer to 1 may be 1 in the dtype of the terms, and smaller ones 0.
_NEAR_ONE, _NEAR_ZERO = 1e-2, 1e-30

Term = tuple[list[Variable], list[Variable]]


def may_save(
    terms: Sequence[Term], factors: list[Variable], divisors: list[Variable], out_type: Any, least: float = 0
) -> bool:
    """Tell whether PyTensor may find that to distribute factors and divisors saves more than `least` operations.

    Parameters
    ----------
    terms : sequence of (list of Variable, list of Variable)
        The factors and divisors of each term of a sum.
    factors, divisors : list of Variable
        What would go into each term.
    out_type : TensorType
        The type of the result.
    least : float
        The number of operations.
    """
    if out_type.dtype not in ("float32", "float64") or not _simplifiers_are_known():
        return True
    added = len(factors) + _DIVISION * len(divisors)
    saved = sum(_most_saved(num + factors, denum + divisors) for num, denum in terms)
    return added + saved - added * len(terms) > least


def _simplifiers_are_known() -> bool:
    simplifiers = [simplifier for _, simplifier in rewriting.local_mul_canonizer.external_simplifiers]
    return simplifiers == [rewriting.check_for_x_over_absX]


def _most_saved(num: list[Variable], denum: list[Variable]) -> float:
    """Return how many operations PyTensor saves at most where it simplifies a quotient of products.

    It cancels what is in both, replaces ``x / abs(x)``, puts numbers together, and leaves out a factor of 1.
    """
    saved = 0.0
    above = _numbers(num)
    below = _numbers(denum)
    if denum:
        members = set(num)
        for var in denum:
            if var in members or (var.owner is not None and var.owner.op == absolute):
                saved += 1 + _DIVISION
    if not above and not below:
        return saved
    product = math.prod(above)
    divisor = math.prod(below)
    if not divisor or not math.isfinite(product) or not math.isfinite(divisor):
        return math.inf
    number = product / divisor
    if not math.isfinite(number) or abs(number) < _NEAR_ZERO:  # a factor of 0 absorbs the term
        return math.inf
    left = 0 if abs(number - 1) < _NEAR_ONE else 1
    return saved + len(above) + _DIVISION * len(below) - left


def _numbers(variables: list[Variable]) -> list[float]:
    """Return the values of those of `variables` that are constants of one value."""
    return [
        float(var.unique_value)
        for var in variables
        if var.owner is None and isinstance(var, TensorConstant) and var.unique_value is not None
    ]


#: How `get_num_denum` goes on at the operation of a node.
_MAIN, _INVERSE, _RECIPROCAL, _LOOKED_THROUGH, _LEAF = range(5)


def _by_kind_of_op(get_num_denum: Callable[..., Any]) -> Callable[..., Any]:
    #: The op, which is kept so that no other one gets its id, and its kind, by the ids of a canonizer and the op.
    kinds: dict[tuple[int, int], tuple[Any, int]] = {}

    @functools.wraps(get_num_denum)
    def get_num_denum_once(self: rewriting.AlgebraicCanonizer, inp: Variable) -> Term:
        lists: Term = ([], [])
        todo = [(inp, 0)]
        canonizer = id(self)
        while todo:
            var, side = todo.pop()
            node = var.owner
            if node is None:
                lists[side].append(var)
                continue
            op = node.op
            entry = kinds.get((canonizer, id(op)))
            if entry is None:
                if len(kinds) > _MOST_KINDS:
                    kinds.clear()
                entry = kinds[canonizer, id(op)] = (op, _kind_of(self, op))
            kind = entry[1]
            if kind == _LEAF:
                lists[side].append(var)
            elif kind == _MAIN:
                todo.extend([(operand, side) for operand in reversed(node.inputs)])
            elif kind == _INVERSE:
                first, second = node.inputs
                todo.append((second, 1 - side))
                todo.append((first, side))
            else:
                todo.append((node.inputs[0], 1 - side if kind == _RECIPROCAL else side))
        return lists

    return get_num_denum_once


#: How many kinds are kept; all are forgotten when there are more.
_MOST_KINDS = 100_000


def _kind_of(canonizer: rewriting.AlgebraicCanonizer, op: Any) -> int:
    for kind, other in ((_MAIN, canonizer.main), (_INVERSE, canonizer.inverse), (_RECIPROCAL, canonizer.reciprocal)):
        if op == other:
            return kind
    if isinstance(op, DimShuffle) and (op.is_left_expand_dims or op.new_order == tuple(range(op.input_ndim))):
        return _LOOKED_THROUGH
    return _LEAF


def _where_it_may_save(distribute: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(distribute)
    def distribute_greedy(
        pos_pairs: list[Term], neg_pairs: list[Term], num: Any, denum: Any, out_type: Any, minscore: float = 0
    ) -> Any:
        if not may_save(pos_pairs + neg_pairs, num, denum, out_type, minscore):
            return False, pos_pairs, neg_pairs
        return distribute(pos_pairs, neg_pairs, num, denum, out_type, minscore)

    return distribute_greedy


def patches() -> list[Patch]:
    """Return the patches."""
    why = "terms are not simplified where that cannot save an operation"
    return [
        Wrapper(rewriting, "distribute_greedy", _where_it_may_save, why),
        Wrapper(
            rewriting.AlgebraicCanonizer, "get_num_denum", _by_kind_of_op, "an op is compared once, not at each node"
        ),
    ]
