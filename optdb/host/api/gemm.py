"""Finds and builds the host's matrix products and sums, for the insertion of Gemm."""

from __future__ import annotations

from typing import Any

import theano.scalar
from theano.gof.toolbox import ReplacementDidntRemovedError
from theano.tensor import add, as_tensor_variable, cast, constant
from theano.tensor.blas import (
    Dot22,
    GemmOptimizer,
    _beta_L_plus_alpha_M,
    _gemm_canonicalize,
    values_eq_approx_remove_inf_nan,
)
from theano.tensor.elemwise import DimShuffle, Elemwise
from theano.tensor.var import TensorVariable

from optdb.host.api.bookkeeping import nodes_by_op
from optdb.host.api.graph import Apply, Constant, FunctionGraph, Variable

Term = tuple[Variable, Variable]

_COMBINATIONS = (theano.scalar.Add, theano.scalar.Sub, theano.scalar.Neg, theano.scalar.Mul)


def is_combination(node: Apply) -> bool:
    """Return whether a node is a step of a linear combination: a sum, or a product with scalars."""
    return isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, _COMBINATIONS)


def combined(node: Apply) -> list[Variable]:
    """Return those operands of a step that may themselves be linear combinations."""
    assert isinstance(node.op, Elemwise)
    if not isinstance(node.op.scalar_op, theano.scalar.Mul):
        return list(node.inputs)
    arrays = [var for var in node.inputs if not all(var.type.broadcastable)]
    return arrays if len(arrays) == 1 else []


def terms_of(node: Apply) -> tuple[list[Term], list[Variable]]:
    """Return the terms of the linear combination that `node` computes, and the summands that cannot be terms.

    These summands, which Theano's GemmOptimizer drops, have a dtype or rank that terms cannot have.
    """
    canonical: list[Any] = []
    _gemm_canonicalize(node.outputs[0], 1.0, canonical, 0)
    others = [item for item in canonical if not isinstance(item, tuple)]
    factor_of: dict[Variable, Any] = {}
    for item in canonical:
        if isinstance(item, tuple):
            factor, matrix = item
            factor_of[matrix] = factor_of[matrix] + factor if matrix in factor_of else factor
    terms = []
    for matrix, factor in factor_of.items():
        variable = _factor(factor, matrix)
        dtype = matrix.type.dtype
        if theano.scalar.upcast(variable.dtype, dtype) == dtype:
            terms.append((cast(variable, dtype), matrix))
        else:
            others.append(variable * matrix)
    return terms, others


def _factor(value: object, matrix: Variable) -> TensorVariable:
    """Return a factor as a variable; a number becomes a constant with the dtype of the matrix."""
    is_number = isinstance(value, int | float)
    factor: TensorVariable = constant(value, dtype=matrix.type.dtype) if is_number else as_tensor_variable(value)
    return factor


def has_products(fgraph: FunctionGraph) -> bool:
    """Return whether `product_of` may find a product in a graph."""
    return any(issubclass(cls, Dot22) for cls in nodes_by_op(fgraph))


def product_of(matrix: Variable) -> Variable | None:
    """Return the Dot22 output that `matrix` is, perhaps with axes of length 1 removed; None if it is no such output."""
    owner = matrix.owner
    if owner is None:
        return None
    if isinstance(owner.op, Dot22):
        return matrix
    if not isinstance(owner.op, DimShuffle) or owner.op.new_order not in ((), (0,), (1,)):
        return None
    below = owner.inputs[0]
    return below if below.owner is not None and isinstance(below.owner.op, Dot22) else None


def gemm(addend: Term, product: Term) -> Variable:
    """Return a Gemm that adds `addend` to `product`; the axes of length 1 may have been removed from `product`."""
    replacement, _ = _beta_L_plus_alpha_M(*addend, *product, recurse_flip=False)
    return replacement[0]


def as_term(matrix: Variable) -> Term:
    """Return `matrix` as a term of a linear combination: the factor 1 and the matrix."""
    return _factor(1.0, matrix), matrix


def times(term: Term) -> Variable:
    """Return the product of a term's factor and matrix."""
    factor: Any = term[0]
    matrix: Any = term[1]
    if isinstance(factor, Constant) and factor.data == 1:
        return matrix
    if isinstance(factor, Constant) and factor.data == -1:
        return -matrix
    return factor * matrix
