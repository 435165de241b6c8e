"""Lets a loop save products of its states that its gradient would otherwise recompute.

The gradient of a recurrent network multiplies the states of the forward pass by the same weights again to recover the
inputs of the activation functions. The forward pass has already computed these products. With this rewrite, the loop
stores the products of all steps instead of reusing a temporary array, and a GPU does not compute them again for the
gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from optdb.host.api.control_flow import Scan, inner_nodes, scan_of, scan_saving
from optdb.host.api.graph import Apply, Constant, FunctionGraph, Variable
from optdb.host.api.rewriters import replace_all
from optdb.opencl.aliasing import view_root
from optdb.opencl.ops.blas import OpenCLDot22, OpenCLGemm
from optdb.opencl.ops.contiguous import OpenCLContiguous


@dataclass(frozen=True)
class WantedProduct:
    """A product that a loop needs in each step: a part of `states` times `matrix`, plus any part of `added`.

    All three are variables outside the loop.
    """

    states: Variable
    matrix: Variable
    added: Variable | None


def saved_products(fgraph: FunctionGraph, wanted: WantedProduct) -> Sequence[Variable] | None:
    """Let the loop that computes `wanted.states` save the products of its states and the matrix.

    Return the saved products, the states, and the added sequence if there is one. Return None if no loop computes the
    states, or if the loop does not compute the product.
    """
    states = view_root(wanted.states)
    loop = states.owner
    if loop is None or not isinstance(loop.op, Scan) or loop.op.as_while:
        return None
    found = _product_of(loop, states, wanted)
    if found is None:
        return None
    product, *sequences = found
    outputs, saved = scan_saving(loop, product)
    index = loop.outputs.index(states)
    replace_all(fgraph, list(zip(loop.outputs, outputs, strict=True)), reason="saved products")
    return [saved, outputs[index], *sequences]


def _product_of(loop: Apply, states: Variable, wanted: WantedProduct) -> list[Variable] | None:
    """Return the variable in the loop's body that is the product `wanted`, and the added sequence if there is one."""
    op = scan_of(loop)
    before = dict(zip(op.outer_sitsot_outs(loop), op.inner_sitsot(op.inputs), strict=True)).get(states)
    sequences = dict(zip(op.inner_seqs(op.inputs), op.outer_seqs(loop.inputs), strict=True))
    staying = dict(zip(op.inner_non_seqs(op.inputs), op.outer_non_seqs(loop.inputs), strict=True))
    for node in () if before is None else inner_nodes(op):
        factors = product_of(node)
        if factors is None or factors[0] is not before or factors[1] not in staying:
            continue
        if _same_in_order(staying[factors[1]]) is not _same_in_order(wanted.matrix):
            continue
        added = factors[2]
        sequence = None if added is None else sequences.get(added)
        if wanted.added is None and added is None:
            return [node.outputs[0]]
        if wanted.added is not None and sequence is not None and view_root(sequence) is view_root(wanted.added):
            return [node.outputs[0], sequence]
    return None


def _same_in_order(var: Variable) -> Variable:
    """Return a variable without the `OpenCLContiguous` nodes that compute it."""
    while var.owner is not None and isinstance(var.owner.op, OpenCLContiguous):
        (var,) = var.owner.inputs
    return var


def product_of(node: Apply) -> tuple[Variable, Variable, Variable | None] | None:
    """Return the factors of a product and its unscaled addend, if any; None if the node computes something else."""
    if type(node.op) is OpenCLDot22:
        left, right = node.inputs
        return left, right, None
    if type(node.op) is not OpenCLGemm or node.op.inplace:
        return None
    added, alpha, left, right, beta = node.inputs
    is_plain = all(isinstance(factor, Constant) and factor.data == 1 for factor in (alpha, beta))
    return (left, right, added) if is_plain else None
