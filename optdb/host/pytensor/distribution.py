"""PyTensor's algebra of long sums and products, made faster by a guard for ``local_greedy_distributor``.

PyTensor distributes a factor over the terms of a sum, simplifies them all, and drops the result unless it saves
operations.  In an unrolled recurrence, sums have hundreds of terms, and nearly all trials are dropped.  The guard
counts the most that simplifying may save, term by term, without simplifying; `Distributions` keeps the counts while a
graph is rewritten, since a sum is a factor of many products.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from pytensor.tensor import abs as absolute
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.rewriting import math as rewriting
from pytensor.tensor.variable import TensorConstant

from optdb.host.api.graph import Apply, Constant, Variable
from optdb.host.api.patching import Patch, Wrapper

__all__ = ["Distributions", "may_save", "patches"]

#: PyTensor counts a division as this many multiplications.
_DIVISION = 1.5
#: Products of constants nearer to 1 may be 1 in the dtype of the terms, and smaller ones 0.
_NEAR_ONE, _NEAR_ZERO = 1e-2, 1e-30

Term = tuple[list[Variable], list[Variable]]


def may_save(
    terms: Sequence[Term], factors: list[Variable], divisors: list[Variable], out_type: Any, least: float = 0
) -> bool:
    """Return whether PyTensor may find that distributing factors and divisors saves more than `least` operations.

    Parameters
    ----------
    terms : sequence of (list of Variable, list of Variable)
        The factors and divisors of each term of a sum.
    factors, divisors : list of Variable
        The factors and divisors to distribute over the terms.
    out_type : TensorType
        The type of the result.
    least : float
        The minimum number of operations.
    """
    if not _is_guarded(out_type):
        return True
    added = len(factors) + _DIVISION * len(divisors)
    saved = sum(_most_saved(num + factors, denum + divisors) for num, denum in terms)
    return added + saved - added * len(terms) > least


def _is_guarded(out_type: Any) -> bool:
    """Return whether PyTensor's simplification of products is known for a type."""
    simplifiers = [simplifier for _, simplifier in rewriting.local_mul_canonizer.external_simplifiers]
    return out_type.dtype in ("float32", "float64") and simplifiers == [rewriting.check_for_x_over_absX]


def _is_absolute(var: Variable) -> bool:
    return var.owner is not None and var.owner.op == absolute


def _most_saved(num: list[Variable], denum: list[Variable]) -> float:
    """Return the maximum number of operations that PyTensor saves when it simplifies a quotient of products.

    It cancels common factors and divisors, replaces ``x / abs(x)``, combines numbers, and drops a factor of 1.
    """
    saved = 0.0
    above = _numbers(num)
    below = _numbers(denum)
    if denum:
        members = set(num)
        for var in denum:
            if var in members or _is_absolute(var):
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
    """Return the values of those `variables` that are constants with a single value."""
    return [
        float(var.unique_value)
        for var in variables
        if var.owner is None and isinstance(var, TensorConstant) and var.unique_value is not None
    ]


#: How `get_num_denum` continues at a node.
_MAIN, _INVERSE, _RECIPROCAL, _LOOKED_THROUGH, _LEAF = range(5)


#: By the ids of a canonizer and an op: the op, kept alive so that its id stays unique, and its kind.
_kinds: dict[tuple[int, int], tuple[Any, int]] = {}


def _flatten(canonizer: rewriting.AlgebraicCanonizer, var: Variable) -> tuple[Term, list[Apply]]:
    """Return the two lists of a canonizer's ``get_num_denum``, and the nodes between those variables and `var`."""
    lists: Term = ([], [])
    inner: list[Apply] = []
    todo = [(var, 0)]
    canonizer_id = id(canonizer)
    while todo:
        var, side = todo.pop()
        node = var.owner
        if node is None:
            lists[side].append(var)
            continue
        op = node.op
        entry = _kinds.get((canonizer_id, id(op)))
        if entry is None:
            if len(_kinds) > _MOST_KINDS:
                _kinds.clear()
            entry = _kinds[canonizer_id, id(op)] = (op, _kind_of(canonizer, op))
        kind = entry[1]
        if kind == _LEAF:
            lists[side].append(var)
            continue
        inner.append(node)
        if kind == _MAIN:
            todo.extend([(operand, side) for operand in reversed(node.inputs)])
        elif kind == _INVERSE:
            first, second = node.inputs
            todo.append((second, 1 - side))
            todo.append((first, side))
        else:
            todo.append((node.inputs[0], 1 - side if kind == _RECIPROCAL else side))
    return lists, inner


def _by_kind_of_op(get_num_denum: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(get_num_denum)
    def get_num_denum_once(self: rewriting.AlgebraicCanonizer, inp: Variable) -> Term:
        return _flatten(self, inp)[0]

    return get_num_denum_once


#: The maximum number of cached kinds; all are dropped beyond it.
_MOST_KINDS = 100_000


def _kind_of(canonizer: rewriting.AlgebraicCanonizer, op: Any) -> int:
    for kind, other in ((_MAIN, canonizer.main), (_INVERSE, canonizer.inverse), (_RECIPROCAL, canonizer.reciprocal)):
        if op == other:
            return kind
    if isinstance(op, DimShuffle) and (op.is_left_expand_dims or op.new_order == tuple(range(op.input_ndim))):
        return _LOOKED_THROUGH
    return _LEAF


class _Sum:
    """The possible savings in the terms of a sum, and the nodes that determine them.

    Parameters
    ----------
    var : Variable
        The sum.
    """

    __slots__ = ("above", "below", "read", "saved", "terms")

    def __init__(self, var: Variable) -> None:
        (positive, negative), read = _flatten(rewriting.local_add_canonizer, var)
        terms = []
        for term in positive + negative if negative or len(positive) > 1 else []:
            lists, inner = _flatten(rewriting.local_mul_canonizer, term)
            terms.append(lists)
            read += inner
        self.read = [(node, list(node.inputs)) for node in read]
        self.terms: list[Term] = terms
        #: The number of operations that are saved for any factor.
        self.saved = sum(_most_saved(num, denum) for num, denum in terms)
        #: The number of terms in which a variable is a factor, and in which it is a divisor.
        self.above = Counter(var for num, _ in terms for var in set(num))
        self.below = Counter(var for _, denum in terms for var in denum)

    def is_as_it_was(self) -> bool:
        """Return whether the nodes still have the same inputs."""
        for node, inputs in self.read:  # noqa: SIM110  a loop takes half as long as all() of a generator
            if node.inputs != inputs:
                return False
        return True

    def may_take(self, factors: list[Variable], divisors: list[Variable], out_type: Any) -> bool:
        """Return whether distributing one of the factors or divisors over the terms may save an operation."""
        terms = len(self.terms)
        if not terms:
            return False
        for var in factors:
            if isinstance(var, Constant):
                if may_save(self.terms, [var], [], out_type):
                    return True
            elif 1 + self.saved + (1 + _DIVISION) * self.below[var] > terms:
                return True
        for var in divisors:
            if isinstance(var, Constant) or _is_absolute(var):
                if may_save(self.terms, [], [var], out_type):
                    return True
            elif _DIVISION + self.saved + (1 + _DIVISION) * self.above[var] > _DIVISION * terms:
                return True
        return False


class Distributions:
    """The products to which `local_greedy_distributor` may apply, while one graph is rewritten."""

    def __init__(self) -> None:
        self._sums: dict[Variable, _Sum] = {}

    def may_apply(self, node: Apply) -> bool:
        """Return whether PyTensor may distribute a factor of a product over another factor; False is certain."""
        out_type = node.outputs[0].type
        if not _is_guarded(out_type):
            return True
        num, denum = _flatten(rewriting.local_mul_canonizer, node.outputs[0])[0]
        while num:
            factor = num.pop(0)
            if (num or denum) and self._sum(factor).may_take(num, denum, out_type):
                return True
        while denum:
            divisor = denum.pop(0)
            if denum and self._sum(divisor).may_take(denum, [], out_type):
                return True
        return False

    def _sum(self, var: Variable) -> _Sum:
        found = self._sums.get(var)
        if found is None or not found.is_as_it_was():
            found = self._sums[var] = _Sum(var)
        return found


def _where_it_may_save(distribute: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(distribute)
    def distribute_greedy(
        pos_pairs: list[Term], neg_pairs: list[Term], num: Any, denum: Any, out_type: Any, minscore: float = 0
    ) -> Any:
        if not may_save(pos_pairs + neg_pairs, num, denum, out_type, minscore):
            return False, pos_pairs, neg_pairs
        return distribute(pos_pairs, neg_pairs, num, denum, out_type, minscore)

    return distribute_greedy


def _where_constants_change(simplify: Callable[..., Term]) -> Callable[..., Term]:
    @functools.wraps(simplify)
    def simplify_constants(
        self: rewriting.AlgebraicCanonizer, orig_num: list[Variable], orig_denum: list[Variable], out_type: Any = None
    ) -> Term:
        if (
            self in _CANONIZERS
            and orig_num
            and out_type is not None
            and _has_only_its_first_number(orig_num, orig_denum, out_type)
        ):
            return orig_num, orig_denum
        return simplify(self, orig_num, orig_denum, out_type)

    return simplify_constants


#: PyTensor's canonizers of sums and products. Their only special numbers are 0 and 1.
_CANONIZERS = (rewriting.local_add_canonizer, rewriting.local_mul_canonizer)


def _has_only_its_first_number(num: list[Variable], denum: list[Variable], out_type: Any) -> bool:
    """Return whether the first variable, where PyTensor puts numbers, is the only number, and the rest stays."""
    first = num[0]
    if first.owner is not None or not isinstance(first, TensorConstant) or first.type.dtype != out_type.dtype:
        return False
    number = first.unique_value
    if number is None or out_type.dtype not in ("float32", "float64") or number in (0, 1) or not math.isfinite(number):
        return False
    return not _numbers(num[1:]) and not _numbers(denum)


def patches() -> list[Patch]:
    """Return the patches."""
    why = "terms are not simplified where that cannot save an operation"
    return [
        Wrapper(rewriting, "distribute_greedy", _where_it_may_save, why),
        Wrapper(
            rewriting.AlgebraicCanonizer, "get_num_denum", _by_kind_of_op, "an op is compared once, not at each node"
        ),
        Wrapper(
            rewriting.AlgebraicCanonizer,
            "simplify_constants",
            _where_constants_change,
            "a single number is not computed again",
        ),
    ]
