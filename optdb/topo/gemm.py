"""Gemm insertion, which rewrites a whole sum of matrix products at a time.

Theano's GemmOptimizer restarts after each inserted Gemm. For the gradient of a recurrent net's weights, these restarts
take quadratic time. This pass forms the same pairs as Theano: the first two terms of the same type, at least one of
which is a product, then the next two. Each Gemm becomes a new term. The search ends at a product that is also used
outside the sum.
"""

from __future__ import annotations

from collections import defaultdict, deque
from time import time
from typing import Any

from optdb.host.api import gemm as host
from optdb.host.api.bookkeeping import order_by_data
from optdb.host.api.graph import Apply, FunctionGraph, InconsistencyError, Variable, clients
from optdb.host.api.tensor import copy_stack_trace
from optdb.topo.fusion import Spent


class WholeSumGemm(host.GemmOptimizer):
    """A GemmOptimizer that rewrites a whole sum at a time."""

    def apply(self, fgraph: FunctionGraph) -> tuple[Any, ...]:
        """Insert Gemms into `fgraph`, and return Theano's profile of the pass."""
        spent = Spent(fgraph)
        count = {"replaced": 0, "not removed": 0, "refused": 0}
        sorting = finding = 0.0
        rounds = 0
        again = True
        while again:
            rounds += 1
            start = time()
            nodes = list(filter(host.is_combination, order_by_data(fgraph))) if host.has_products(fgraph) else []
            sorting += time() - start
            before = count["replaced"]
            finding += _replace_sums(fgraph, nodes, count)
            again = count["replaced"] > before
        outcomes = count["replaced"], count["not removed"], 0, count["refused"]
        return (self, rounds, *outcomes, finding, 0, 0, sorting, *spent.since())


def _replace_sums(fgraph: FunctionGraph, nodes: list[Apply], count: dict[str, int]) -> float:
    """Replace sums of products, last node first; count the outcomes, and return the seconds spent on finding Gemms."""
    finding = 0.0
    hopeless: set[Apply] = set()
    for node in reversed(nodes):
        if node not in fgraph.apply_nodes or node in hopeless:
            continue
        start = time()
        steps = set(_steps_of(fgraph, node))
        pairing = _Pairing(fgraph, steps, *host.terms_of(node))
        if not pairing.has_products:
            hopeless |= steps
        new = pairing.sum_like(node.outputs[0])
        finding += time() - start
        if new is not None:
            count[_replace(fgraph, node, new, pairing.swallowed)] += 1
    return finding


def _replace(fgraph: FunctionGraph, node: Apply, new: Variable, swallowed: list[Variable]) -> str:
    """Replace the output of `node` by `new`; return the outcome."""
    new.tag.values_eq_approx = host.values_eq_approx_remove_inf_nan
    copy_stack_trace(node.outputs, new)
    try:
        fgraph.replace_all_validate_remove([(node.outputs[0], new)], swallowed, reason="GemmOptimizer", warn=False)
    except InconsistencyError:
        return "refused"
    except host.ReplacementDidntRemovedError:
        return "not removed"
    return "replaced"


def _steps_of(fgraph: FunctionGraph, node: Apply) -> list[Apply]:
    """Return the nodes of a linear combination: `node`, and the nodes of partial results without other users."""
    steps = [node]
    for step in steps:  # the list grows during iteration
        for var in host.combined(step):
            owner = var.owner
            if owner is not None and host.is_combination(owner) and len(clients(fgraph, var)) == 1:
                steps.append(owner)
    return steps


class _Pairing:
    """The terms of a sum, combined in pairs into Gemms; ``swallowed`` lists the products inside the Gemms.

    A paired term is None in ``_terms``. Each queue holds indices of terms in ascending order.
    """

    def __init__(
        self, fgraph: FunctionGraph, steps: set[Apply], terms: list[host.Term], others: list[Variable]
    ) -> None:
        self.swallowed: list[Variable] = []
        self._fgraph = fgraph
        self._steps = steps
        self._others = others
        self._terms: list[host.Term | None] = []
        self._first_gemm = len(terms)
        self._products: dict[Variable, Variable] = {}
        self._of_type: dict[Any, deque[int]] = defaultdict(deque)
        self._products_of_type: dict[Any, deque[int]] = defaultdict(deque)
        for term in terms:
            self._append(term)
        if self._products:
            self._pair_up()

    @property
    def has_products(self) -> bool:
        return bool(self._products)

    def sum_like(self, out: Variable) -> Variable | None:
        """Return the sum with its Gemms; None if no terms were paired, or if the sum has another type than `out`."""
        if not self.swallowed:
            return None
        left = [
            term[1] if i >= self._first_gemm else host.times(term)
            for i, term in enumerate(self._terms)
            if term is not None
        ]
        operands = self._others + left
        new = operands[0] if len(operands) == 1 else host.add(*operands)
        return new if new.type == out.type else None

    def _append(self, term: host.Term) -> None:
        matrix = term[1]
        product = host.product_of(matrix)
        if product is not None:
            self._products[matrix] = product
            self._products_of_type[matrix.type].append(len(self._terms))
        self._of_type[matrix.type].append(len(self._terms))
        self._terms.append(term)

    def _is_ours(self, matrix: Variable, product: Variable) -> bool:
        """Return whether the steps of this sum are the only users of a product."""
        users = {client for client, _ in clients(self._fgraph, matrix)}
        rearranged = product is not matrix
        return users <= self._steps and (not rearranged or len(clients(self._fgraph, product)) == 1)

    def _pair_up(self) -> None:
        i = 0
        while i < len(self._terms):
            j = self._partner(i)
            if j is not None and not self._take(i, j):
                return
            i += 1

    def _partner(self, i: int) -> int | None:
        term = self._terms[i]
        if term is None:
            return None
        matrix = term[1]
        queue = (self._of_type if matrix in self._products else self._products_of_type)[matrix.type]
        while queue and (queue[0] <= i or self._terms[queue[0]] is None):
            queue.popleft()
        return queue[0] if queue else None

    def _take(self, i: int, j: int) -> bool:
        """Combine two terms into a Gemm; return False if the product is also used outside the sum."""
        addend, product = self._terms[i], self._terms[j]
        assert addend is not None and product is not None, "the partner must be a remaining term"
        if product[1] not in self._products:
            addend, product = product, addend
        swallowed = self._products[product[1]]
        if not self._is_ours(product[1], swallowed):
            return False
        self._terms[i] = self._terms[j] = None
        self.swallowed.append(swallowed)
        self._append(host.as_term(host.gemm(addend, product)))
        return True
