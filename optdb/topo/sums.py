"""Replaces part of a sum or product with another sum or product that the graph already computes.

In canonical form, each ``s[t]`` of a recurrence ``s[t] = s[t-1] + a[t]`` is a sum of t terms. Before fusion, this pass
restores the form ``s[t-1] + a[t]``. A sum is reused only if fusion cannot remove its node, so the number of nodes never
grows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TypeGuard

from optdb.host.api.databases import compile_db
from optdb.host.api.gemm import values_eq_approx_remove_inf_nan
from optdb.host.api.graph import Apply, FunctionGraph, InconsistencyError, Variable, clients, is_output
from optdb.host.api.rewriters import Optimizer
from optdb.host.api.tensor import Elemwise, add, copy_stack_trace, mul, sub, true_div
from optdb.topo.db import ENGINE_TAG

#: Sums of fewer terms are not reused, because the gain would not justify a different rounding.
MIN_SHARED_TERMS = 3
#: The maximum number of candidates that are compared: the widest candidate with the same last term nearly always
#: matches.
MAX_COMPARISONS = 32

Term = tuple[Variable, bool]


class ReuseWideSums(Optimizer):
    """Rewrites each sum (or product) so that it reuses the widest existing sum of some of its terms."""

    def apply(self, fgraph: FunctionGraph) -> None:
        operations = [_Operation(add, sub), _Operation(mul, true_div)]
        if not any(operation.has_wide_nodes(fgraph) for operation in operations):
            return
        nodes = fgraph.toposort()
        for operation in operations:
            _reuse(fgraph, nodes, operation)

    def __str__(self) -> str:
        return "reuse_wide_sums"


def _reuse(fgraph: FunctionGraph, nodes: list[Apply], operation: _Operation) -> None:
    sums = _WideSums({var: number for number, node in enumerate(nodes) for var in node.outputs})
    for node in nodes:
        if node not in fgraph.apply_nodes or not operation.is_root(fgraph, node):
            continue
        (out,) = node.outputs
        terms = operation.terms_of(fgraph, node)
        if terms is None or terms.total() < MIN_SHARED_TERMS:
            continue
        result = _with_reused(fgraph, operation, sums, out, terms)
        if _has_node_after_fusion(fgraph, result):
            sums.add(result, terms)


def _with_reused(
    fgraph: FunctionGraph, operation: _Operation, sums: _WideSums, out: Variable, terms: Counter[Term]
) -> Variable:
    """Rewrite `out` as an existing narrower sum plus the remaining terms; return the new sum, or `out` if unchanged."""
    narrower = sums.widest_in(terms, out)
    if narrower is None:
        return out
    shared, shared_terms = narrower
    new = operation.combined([(shared, False), *(terms - shared_terms).elements()])
    if new.type != out.type:
        return out
    if new is not shared:
        new.tag.values_eq_approx = values_eq_approx_remove_inf_nan
        copy_stack_trace(out, new)
    try:
        fgraph.replace_all_validate([(out, new)], reason="reuse_wide_sums")
    except InconsistencyError:
        return out
    sums.take_number(out, new)
    return new


def _has_node_after_fusion(fgraph: FunctionGraph, var: Variable) -> bool:
    return any(is_output(user) or not isinstance(user.op, Elemwise) for user, _ in clients(fgraph, var))


class _Operation:
    """Sums or products: an n-ary operation (`add`, `mul`) and its binary inverse (`sub`, `true_div`)."""

    def __init__(self, main: Elemwise, inverse: Elemwise) -> None:
        self.main = main
        self.inverse = inverse

    def has_wide_nodes(self, fgraph: FunctionGraph) -> bool:
        """Return whether a graph has several sums, at least one of which is wide."""
        widths = [
            len(node.inputs)
            for node in fgraph.apply_nodes
            if type(node.op) is Elemwise and node.op in (self.main, self.inverse)
        ]
        return len(widths) > 1 and max(widths) >= MIN_SHARED_TERMS

    def is_step(self, node: Apply | None) -> TypeGuard[Apply]:
        """Return whether a node applies this operation and has the same dtype as all its inputs."""
        if node is None or type(node.op) is not Elemwise or node.op not in (self.main, self.inverse):
            return False
        dtype = node.outputs[0].type.dtype
        return dtype != "bool" and all(var.type.dtype == dtype for var in node.inputs)

    def is_root(self, fgraph: FunctionGraph, node: Apply) -> bool:
        """Return whether a node computes a complete sum, or a partial sum that has several users."""
        if not self.is_step(node):
            return False
        users = clients(fgraph, node.outputs[0])
        return len(users) != 1 or is_output(users[0][0]) or not self.is_step(users[0][0])

    def terms_of(self, fgraph: FunctionGraph, node: Apply) -> Counter[Term]:
        """Return the terms of the sum that `node` computes, in order, with their counts."""
        terms: Counter[Term] = Counter()
        todo: list[Term] = [(node.outputs[0], False)]
        while todo:
            var, is_inverse = todo.pop()
            owner = var.owner
            is_own = owner is node or (self.is_step(owner) and len(clients(fgraph, var)) == 1)
            if owner is None or not is_own:
                terms[var, is_inverse] += 1
            elif owner.op == self.main:
                todo.extend((operand, is_inverse) for operand in reversed(owner.inputs))
            else:
                first, second = owner.inputs
                todo += [(second, not is_inverse), (first, is_inverse)]
        return terms

    def combined(self, terms: list[Term]) -> Variable:
        positive = self._main_of([var for var, is_inverse in terms if not is_inverse])
        inverse = [var for var, is_inverse in terms if is_inverse]
        return self.inverse(positive, self._main_of(inverse)) if inverse else positive

    def _main_of(self, operands: list[Variable]) -> Variable:
        return self.main(*operands) if len(operands) > 1 else operands[0]


class _WideSums:
    """Sums that may be reused, indexed by their last term in topological order."""

    def __init__(self, numbers: dict[Variable, int]) -> None:
        self._numbers = numbers
        self._by_last_term: dict[Term, list[tuple[Variable, Counter[Term]]]] = {}

    def add(self, var: Variable, terms: Counter[Term]) -> None:
        last = max(terms, key=lambda term: self._numbers.get(term[0], -1))
        self._by_last_term.setdefault(last, []).append((var, terms))

    def take_number(self, old: Variable, new: Variable) -> None:
        self._numbers.setdefault(new, self._numbers[old])

    def widest_in(self, terms: Counter[Term], out: Variable) -> tuple[Variable, Counter[Term]] | None:
        """Return the widest sum whose terms are all in `terms`, and the sum's own terms; None if no sum fits."""
        candidates = sorted(self._candidates(terms, out), key=lambda candidate: -candidate[1].total())
        for candidate in candidates[:MAX_COMPARISONS]:
            if all(terms[term] >= count for term, count in candidate[1].items()):
                return candidate
        return None

    def _candidates(self, terms: Counter[Term], out: Variable) -> Iterator[tuple[Variable, Counter[Term]]]:
        size = terms.total()
        for term in terms:
            for var, others in self._by_last_term.get(term, ()):
                if others.total() <= size and var.type.dtype == out.type.dtype:
                    yield var, others


# This pass runs after all phases that look for sums of products (such as Gemm), and before fusion.
_POSITION = 48.9

compile_db().register("reuse_wide_sums", ReuseWideSums(), _POSITION, ENGINE_TAG)
