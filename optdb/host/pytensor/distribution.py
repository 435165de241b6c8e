"""A guard that lets PyTensor's ``local_greedy_distributor`` rewrite long sums and products faster.

PyTensor distributes a factor over the terms of a sum, simplifies all terms, and drops the result unless it needs fewer
operations than before. The guard counts, term by term, the maximum number of operations that simplification can save.
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

from optdb.host.api.graph import Apply, Constant, FunctionGraph, Variable, clients
from optdb.host.api.patching import Wrapper
from optdb.host.pytensor.constants import CachedByOp, may_be_constant

_DIVISION = 1.5
#: A product of constants may round to 1 if it differs from 1 by less than `_NEAR_ONE`, and to 0 if its absolute value
#: is less than `_NEAR_ZERO`.
_NEAR_ONE, _NEAR_ZERO = 1e-2, 1e-30

Term = tuple[list[Variable], list[Variable]]


def may_save(
    terms: Sequence[Term], factors: list[Variable], divisors: list[Variable], out_type: Any, least: float = 0
) -> bool:
    """Return False only if distributing factors and divisors over terms saves at most `least` operations."""
    if not _is_guarded(out_type):
        return True
    added = len(factors) + _DIVISION * len(divisors)
    saved = sum(_most_saved(num + factors, denum + divisors) for num, denum in terms)
    return added + saved - added * len(terms) > least


def _is_guarded(out_type: Any) -> bool:
    """Return whether this module knows how PyTensor simplifies products whose type is `out_type`."""
    return out_type.dtype in ("float32", "float64") and _has_known_simplifiers(rewriting.local_mul_canonizer)


def _has_known_simplifiers(canonizer: rewriting.AlgebraicCanonizer) -> bool:
    known = [rewriting.check_for_x_over_absX] if canonizer is rewriting.local_mul_canonizer else []
    return [simplifier for _, simplifier in canonizer.external_simplifiers] == known


def _is_absolute(var: Variable) -> bool:
    return var.owner is not None and var.owner.op == absolute


def _most_saved(num: list[Variable], denum: list[Variable]) -> float:
    """Return an upper bound for the number of operations saved by simplifying a quotient of products."""
    saved = 0.0
    above = list(map(float, _numbers(num)))
    below = list(map(float, _numbers(denum)))
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


def _numbers(variables: list[Variable]) -> list[Any]:
    """Return the values of the variables that are constants with a single value."""
    return [
        var.unique_value
        for var in variables
        if var.owner is None and isinstance(var, TensorConstant) and var.unique_value is not None
    ]


#: The kinds of ops, by how `get_num_denum` treats their nodes.
_MAIN, _INVERSE, _RECIPROCAL, _LOOKED_THROUGH, _LEAF = range(5)


#: Maps a canonizer's id to the canonizer (to keep it alive) and to a function that returns the kind of an op.
_kinds: dict[int, tuple[rewriting.AlgebraicCanonizer, CachedByOp[int]]] = {}


def _kinds_for(canonizer: rewriting.AlgebraicCanonizer) -> CachedByOp[int]:
    entry = _kinds.get(id(canonizer))
    if entry is None:
        entry = _kinds[id(canonizer)] = (canonizer, CachedByOp(functools.partial(_kind_of, canonizer)))
    return entry[1]


def _flatten(canonizer: rewriting.AlgebraicCanonizer, var: Variable) -> tuple[Term, list[Apply]]:
    """Return the lists from a canonizer's ``get_num_denum``, and the nodes between the listed variables and `var`."""
    lists: Term = ([], [])
    inner: list[Apply] = []
    todo = [(var, 0)]
    kind_of = _kinds_for(canonizer)
    known = kind_of.known
    while todo:
        var, side = todo.pop()
        node = var.owner
        if node is None:
            lists[side].append(var)
            continue
        entry = known.get(id(node.op))
        kind = kind_of(node.op) if entry is None else entry[1]
        if kind == _LEAF:
            lists[side].append(var)
            continue
        inner.append(node)
        if kind == _MAIN:
            inputs, leaves = node.inputs, lists[side]
            for i, operand in enumerate(inputs):
                owner = operand.owner
                if owner is not None:
                    entry = known.get(id(owner.op))
                    if entry is None or entry[1] != _LEAF:
                        todo.extend([(other, side) for other in reversed(inputs[i:])])
                        break
                leaves.append(operand)
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


def _kind_of(canonizer: rewriting.AlgebraicCanonizer, op: Any) -> int:
    for kind, other in ((_MAIN, canonizer.main), (_INVERSE, canonizer.inverse), (_RECIPROCAL, canonizer.reciprocal)):
        if op == other:
            return kind
    if isinstance(op, DimShuffle) and (op.is_left_expand_dims or op.new_order == tuple(range(op.input_ndim))):
        return _LOOKED_THROUGH
    return _LEAF


def _as_read(nodes: list[Apply]) -> list[tuple[Apply, list[Variable]]]:
    return [(node, list(node.inputs)) for node in nodes]


def _is_as_read(read: list[tuple[Apply, list[Variable]]]) -> bool:
    for node, inputs in read:  # noqa: SIM110  a loop takes half as long as all() with a generator
        if node.inputs != inputs:
            return False
    return True


class _Product:
    """A term of a sum: its factors and divisors, and the nodes in which they were found."""

    __slots__ = ("lists", "read", "saved")

    def __init__(self, var: Variable) -> None:
        self.lists, read = _flatten(rewriting.local_mul_canonizer, var)
        self.read = _as_read(read)
        #: The maximum number of operations that can be saved no matter which factor is distributed.
        self.saved = _most_saved(*self.lists)


class _Sum:
    """The maximum number of operations saved by simplifying a sum's terms, and the nodes that define the terms."""

    __slots__ = ("_above", "_below", "divisors", "products", "read", "saved")

    def __init__(self, var: Variable, product: Callable[[Variable], _Product]) -> None:
        (positive, negative), read = _flatten(rewriting.local_add_canonizer, var)
        self.read = _as_read(read)
        self.products = list(map(product, positive + negative)) if negative or len(positive) > 1 else []
        #: The maximum number of operations that can be saved no matter which factor is distributed.
        self.saved = sum([of.saved for of in self.products])
        self.divisors = sum([len(of.lists[1]) for of in self.products])
        self._above: Counter[Variable] | None = None
        self._below: Counter[Variable] | None = None

    def is_as_it_was(self) -> bool:
        if not _is_as_read(self.read):
            return False
        for product in self.products:  # noqa: SIM110  a loop takes half as long as all() with a generator
            if not _is_as_read(product.read):
                return False
        return True

    def may_take(self, factors: list[Variable], divisors: list[Variable], out_type: Any) -> bool:
        """Return whether distributing a factor or a divisor over the sum's terms may save an operation."""
        terms = len(self.products)
        if not terms:
            return False
        for var in factors:
            if isinstance(var, Constant):
                if may_save([of.lists for of in self.products], [var], [], out_type):
                    return True
            elif 1 + self.saved + (1 + _DIVISION) * self.divisors <= terms:
                # Even if `var` cancels all divisors, too few operations are saved.
                continue
            elif 1 + self.saved + (1 + _DIVISION) * self._dividing(var) > terms:
                return True
        for var in divisors:
            if isinstance(var, Constant) or _is_absolute(var):
                if may_save([of.lists for of in self.products], [], [var], out_type):
                    return True
            elif _DIVISION + self.saved + (1 + _DIVISION) * self._containing(var) > _DIVISION * terms:
                return True
        return False

    def _containing(self, var: Variable) -> int:
        if self._above is None:
            self._above = Counter(var for of in self.products for var in set(of.lists[0]))
        return self._above[var]

    def _dividing(self, var: Variable) -> int:
        if self._below is None:
            self._below = Counter(var for of in self.products for var in of.lists[1])
        return self._below[var]


class Distributions:
    """Tests, during the rewriting of one graph, whether `local_greedy_distributor` may apply to products."""

    def __init__(self) -> None:
        self._sums: dict[Variable, _Sum] = {}
        self._products: dict[Variable, _Product] = {}

    def may_apply(self, node: Apply) -> bool:
        """Return False only if PyTensor cannot distribute a factor of a product over another factor."""
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
            found = self._sums[var] = _Sum(var, self._product)
        return found

    def _product(self, var: Variable) -> _Product:
        found = self._products.get(var)
        if found is None or not _is_as_read(found.read):
            found = self._products[var] = _Product(var)
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
        if self in _CANONIZERS and out_type is not None and _is_in_order(orig_num, orig_denum, out_type):
            return orig_num, orig_denum
        return simplify(self, orig_num, orig_denum, out_type)

    return simplify_constants


#: PyTensor's canonizers of sums and products, which treat only the numbers 0 and 1 specially.
_CANONIZERS = (rewriting.local_add_canonizer, rewriting.local_mul_canonizer)


def _begins_with_a_number(num: list[Variable], out_type: Any) -> bool:
    """Return whether the first variable is a number that PyTensor would neither move nor change."""
    first = num[0]
    if first.owner is not None or not isinstance(first, TensorConstant) or first.type.dtype != out_type.dtype:
        return False
    number = first.unique_value
    return (
        number is not None
        and out_type.dtype in ("float32", "float64")
        and number not in (0, 1)
        and math.isfinite(number)
    )


def _where_something_changes(transform: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(transform)
    def transform_node(
        self: rewriting.AlgebraicCanonizer, fgraph: FunctionGraph, node: Apply, enforce_tracks: bool = True
    ) -> Any:
        if self in _CANONIZERS and _is_canonical(self, fgraph, node):
            return False
        return transform(self, fgraph, node, enforce_tracks)

    return transform_node


def _is_canonical(canonizer: rewriting.AlgebraicCanonizer, fgraph: FunctionGraph, node: Apply) -> bool:
    """Return True only if PyTensor's canonizer declines a node."""
    out = node.outputs[0]
    kind_of = _kinds_for(canonizer)
    kind = kind_of(node.op)
    if kind not in (_MAIN, _INVERSE) or not _has_known_simplifiers(canonizer):
        return False
    users: list[tuple[Any, int]] = clients(fgraph, out)
    for client, _ in users:
        if isinstance(client.op, DimShuffle):
            return False
        if kind_of(client.op) != _LEAF:  # PyTensor canonizes the client, which includes the node
            return True
    if kind == _MAIN:
        return _is_flat(canonizer, node)
    num, denum = _flatten(canonizer, out)[0]
    if not denum or not _is_in_order(num, denum, out.type):
        return False
    members = set(num)
    return not any(var in members or _is_absolute(var) for var in denum)


def _is_flat(canonizer: rewriting.AlgebraicCanonizer, node: Apply) -> bool:
    """Return whether a sum or product contains neither a nested operation of its kind nor an absorbing constant."""
    absorbing, kind_of = canonizer.absorbing_element, _kinds_for(canonizer)
    for var in node.inputs:
        owner = var.owner
        if owner is None:
            if absorbing is not None and isinstance(var, TensorConstant) and var.unique_value == absorbing:
                return False
        elif kind_of(owner.op) != _LEAF or (absorbing is not None and may_be_constant(var)):
            return False
    return _is_in_order(node.inputs, [], node.outputs[0].type)


def _is_in_order(num: list[Variable], denum: list[Variable], out_type: Any) -> bool:
    """Return whether a quotient has a factor, and contains no number or one number, which PyTensor would keep."""
    numbers = len(_numbers(num)) + len(_numbers(denum))
    return bool(num) and (not numbers or (numbers == 1 and _begins_with_a_number(num, out_type)))


PATCHES = [
    Wrapper(
        rewriting,
        "distribute_greedy",
        _where_it_may_save,
        "terms are not simplified where that cannot save an operation",
    ),
    Wrapper(
        rewriting.AlgebraicCanonizer,
        "transform",
        _where_something_changes,
        "most nodes are canonical, which takes less time to find out than to canonize them again",
    ),
    Wrapper(rewriting.AlgebraicCanonizer, "get_num_denum", _by_kind_of_op, "an op is compared once, not at each node"),
    Wrapper(
        rewriting.AlgebraicCanonizer,
        "simplify_constants",
        _where_constants_change,
        "a single number is not computed again",
    ),
]
