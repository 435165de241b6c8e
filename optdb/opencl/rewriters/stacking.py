"""Replaces sums of matrix products, and products that share a matrix, with one product of joined matrices.

If a network's steps are unrolled, the gradient of a weight is a sum with one product per step. For example, ``dot(a, b)
+ dot(c, d)`` is the product of ``[a, c]`` and ``[b; d]``. If each step multiplies a part of one array by the same
weight, these products also become one product. A GPU computes the joined product in a fraction of the time, whereas
small products already keep a CPU busy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from optdb.host.api import ops, scalars
from optdb.host.api.databases import compile_db
from optdb.host.api.graph import Apply, Constant, FunctionGraph, Variable, node_ancestors, op_of, owner_of
from optdb.host.api.rewriters import GraphRewriter
from optdb.host.api.variables import as_tensor_variable
from optdb.opencl.fusing.groups import ALWAYS, Needs, can_fuse, is_for_one, needs_of
from optdb.opencl.ops.blas import OpenCLDot22, OpenCLGemm, OpenCLStackedDot22
from optdb.opencl.ops.elemwise import OpenCLElemwise
from optdb.opencl.ops.parts import OpenCLJoin
from optdb.opencl.ops.views import OpenCLDimShuffle, OpenCLReshape, OpenCLSubtensor, is_transpose

LEAST = 8
_STEP = OpenCLSubtensor([scalars.scalar_type("int64")])

Product = tuple[Variable, Variable]


class StackedProducts(GraphRewriter):
    """Replaces sums of products with products of joined matrices."""

    def rewrite(self, fgraph: FunctionGraph) -> None:
        joins = _Joins()
        # Visit sums before their terms.
        for node in reversed(fgraph.toposort()):
            if node in fgraph.apply_nodes and _is_sum(node):
                stacked = _stacked(fgraph, node, joins)
                if stacked is not None:
                    self.replace(fgraph, [(node.outputs[0], stacked)])
        for pairs in list(_of_steps(fgraph, joins)):
            self.replace(fgraph, pairs)


def is_quicker(var: Variable) -> bool:
    """Return whether one large product is faster than many small ones on an array's device."""
    return not var.type.context.profile.runs_items_serially


class _Joins:
    """Creates joined matrices, each only once."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, tuple[Variable, ...]], Variable] = {}

    def along(self, axis: int, matrices: Sequence[Variable]) -> Variable:
        """Join matrices along an axis; if all matrices are transposes, return the transpose of their joined bases."""
        nodes = [matrix.owner for matrix in matrices]
        if all(map(is_transpose, nodes)):
            joined = self._join(1 - axis, tuple([node.inputs[0] for node in nodes if node is not None]))
            return OpenCLDimShuffle(joined.type.broadcastable, (1, 0))(joined)
        return self._join(axis, tuple(matrices))

    def in_any_order(self, matrices: Sequence[Variable]) -> tuple[Variable, Sequence[Variable]]:
        """Return distinct matrices joined along the first axis, and their order in the result."""
        for (axis, joined), made in self._made.items():
            if axis == 0 and len(joined) == len(matrices) and set(joined) == set(matrices):
                return made, joined
        return self._join(0, tuple(matrices)), matrices

    def _join(self, axis: int, matrices: tuple[Variable, ...]) -> Variable:
        key = axis, matrices
        if key not in self._made:
            self._made[key] = OpenCLJoin()(as_tensor_variable(np.int64(axis)), *matrices)
        return self._made[key]


def _stacked(fgraph: FunctionGraph, node: Apply, joins: _Joins) -> Variable | None:
    products: list[Product] = []
    others: list[Variable] = []
    for term in _terms(fgraph, node):
        if isinstance(term, tuple):
            products.append(term)
        else:
            others.append(term)
    if len(products) < LEAST:
        return None
    kind = node.outputs[0].type
    if not is_quicker(node.outputs[0]):
        return None
    a, b = zip(*products, strict=True)
    new = OpenCLStackedDot22()(joins.along(1, a), joins.along(0, b), *a, *b)
    if others:
        new = OpenCLElemwise(scalars.add)(new, *others)
    return new if new.type == kind else None


def _of_steps(fgraph: FunctionGraph, joins: _Joins) -> Iterator[list[tuple[Variable, Variable]]]:
    """Find products of one array's parts with one matrix, needed in the same branches; yield their replacements."""
    by_factors: dict[tuple[Variable, Variable, Needs], dict[Variable, Variable]] = {}
    needs = needs_of(fgraph)
    for node in fgraph.toposort():
        if type(node.op) is OpenCLDot22 and _is_step(node.inputs[0]) and is_quicker(node.outputs[0]):
            step, matrix = node.inputs
            key = owner_of(step).inputs[0], matrix, needs.get(node, ALWAYS)
            by_factors.setdefault(key, {})[step] = node.outputs[0]
    for (array, matrix, _), products in by_factors.items():
        made = {product.owner for product in products.values()}
        if len(products) < LEAST or not made.isdisjoint(node_ancestors([array, matrix])):
            continue
        joined, steps = joins.in_any_order(list(products))
        lengths = ops.MakeVector("int64")(np.int64(len(steps)), ops.Shape_i(1)(array), ops.Shape_i(1)(matrix))
        together = OpenCLReshape(3)(OpenCLDot22()(joined, matrix), lengths)
        pairs = [(products[step], _STEP(together, np.int64(number))) for number, step in enumerate(steps)]
        if all(old.type == new.type for old, new in pairs):
            yield pairs


def _is_step(var: Variable) -> bool:
    """Return whether a matrix is a part of a three-dimensional array, selected by a constant index."""
    node = var.owner
    if node is None or type(node.op) is not OpenCLSubtensor or len(node.op.idx_list) != 1 or len(node.inputs) != 2:
        return False
    return node.inputs[0].type.ndim == 3 and var.type.ndim == 2 and isinstance(node.inputs[1], Constant)


def _terms(fgraph: FunctionGraph, node: Apply) -> Iterator[Variable | Product]:
    """Yield the terms of a sum in order; nested sums are flattened."""
    kind = node.outputs[0].type
    todo: list[Variable | Product] = [node.outputs[0]]
    while todo:
        term = todo.pop()
        owner = None if isinstance(term, tuple) else term.owner
        if (
            owner is None
            or owner.outputs[0].type != kind
            or (owner is not node and not is_for_one(fgraph, owner.outputs[0]))
        ):
            yield term
        elif (product := product_of(owner)) is not None:
            left, right, added = product
            if added is None:
                yield left, right
            else:
                todo += [(left, right), added]
        elif _is_sum(owner):
            todo += reversed(owner.inputs)
        else:
            yield term


def _is_sum(node: Apply) -> bool:
    """Return whether a node adds up matrices of the same type, or adds a product to a matrix."""
    kind = node.outputs[0].type
    if type(node.op) is OpenCLGemm:
        return product_of(node) is not None and not any(kind.broadcastable)
    if not can_fuse(node) or len(node.outputs) > 1:
        return False
    if not isinstance(op_of(node, OpenCLElemwise).scalar_op, scalars.Add):
        return False
    return kind.ndim == 2 and not any(kind.broadcastable) and all(var.type == kind for var in node.inputs)


def product_of(node: Apply) -> tuple[Variable, Variable, Variable | None] | None:
    """Return the factors of a product, and its unscaled addend, if any; None for other nodes."""
    if type(node.op) is OpenCLDot22:
        left, right = node.inputs
        return left, right, None
    if type(node.op) is not OpenCLGemm or node.op.inplace:
        return None
    added, alpha, left, right, beta = node.inputs
    is_plain = all(isinstance(factor, Constant) and factor.data == 1 for factor in (alpha, beta))
    return (left, right, added) if is_plain else None


# Run this rewriter after lifting and before fusion.
compile_db().register("opencl_stacking", StackedProducts(), 48.6, "opencl")
