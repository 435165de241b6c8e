"""Hoists products that do not depend on a loop's states out of the loop, to compute them for all steps at once.

A step's products of sequences and weights are too small to fill a GPU. The forward loop stores products of states and
weights that the gradient's loop would otherwise recompute. If a loop may end early, its products stay in the loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from optdb.host.api import ops, scalars
from optdb.host.api.control_flow import (
    Scan,
    has_unneeded_sequences,
    inner_nodes,
    scan_of,
    scan_saving,
    scan_with_sequences,
)
from optdb.host.api.databases import compile_db
from optdb.host.api.graph import Apply, FunctionGraph, Variable, owner_of
from optdb.host.api.rewriters import GraphRewriter, replace_all
from optdb.host.api.variables import as_tensor_variable
from optdb.opencl.aliasing import view_root
from optdb.opencl.ops.blas import OpenCLDot22, OpenCLGemm, OpenCLSavedProducts
from optdb.opencl.ops.contiguous import OpenCLContiguous, opencl_sequence
from optdb.opencl.ops.elemwise import OpenCLElemwise
from optdb.opencl.ops.views import OpenCLReshape, OpenCLSubtensor, is_transpose
from optdb.opencl.rewriters.stacking import is_quicker, product_of


@dataclass(frozen=True)
class WantedProduct:
    """A product in each step of a loop: a part of `states` multiplied by `matrix`, plus a part of `added`, if any."""

    states: Variable
    matrix: Variable
    added: Variable | None


class HoistedProducts(GraphRewriter):
    """Moves products out of loops."""

    def rewrite(self, fgraph: FunctionGraph) -> None:
        for node in fgraph.toposort():
            if isinstance(node.op, Scan):
                outputs = _hoisted(fgraph, node)
                if outputs is not None:
                    self.replace(fgraph, list(zip(node.outputs, outputs, strict=True)))


def _hoisted(fgraph: FunctionGraph, loop: Apply) -> list[Variable] | None:
    """Return the outputs of a loop without the hoisted products and unused sequences; None if nothing changes."""
    op = scan_of(loop)
    replaced: dict[Variable, Variable] = {}
    sequences: dict[Variable, Variable] = {}
    for node, part, matrix in () if op.as_while else _products(loop):
        # Read the sequences here, since earlier loops may have been replaced.
        outside = _sequences(loop)
        added = node.inputs[0] if type(node.op) is OpenCLGemm else None
        is_left = added is not None and added not in outside
        wanted = WantedProduct(outside[part], matrix, None if added is None else outside.get(added))
        made = _of_all_steps(fgraph, loop.inputs[0], wanted)
        product = node.outputs[0].type()
        if made.type != product.type.clone(broadcastable=(False, *product.type.broadcastable)):
            continue
        sequences[product] = opencl_sequence(made)
        replaced[node.outputs[0]] = OpenCLElemwise(scalars.add)(added, product) if is_left else product
    changes = replaced or has_unneeded_sequences(op)
    return scan_with_sequences(loop, replaced, sequences) if changes else None


def _sequences(loop: Apply) -> dict[Variable, Variable]:
    op = scan_of(loop)
    return dict(zip(op.inner_seqs(op.inputs), op.outer_seqs(loop.inputs), strict=True))


def _products(loop: Apply) -> Iterator[tuple[Apply, Variable, Variable]]:
    """For each product that can be hoisted, yield its node, the part of a sequence, and the matrix outside the loop."""
    op, outside = scan_of(loop), _sequences(loop)
    staying = dict(zip(op.inner_non_seqs(op.inputs), op.outer_non_seqs(loop.inputs), strict=True))
    for node in inner_nodes(op):
        factors = product_of(node)
        if factors is None:
            continue
        part, matrix, _ = factors
        out = node.outputs[0]
        if part not in outside or any(part.type.broadcastable) or any(out.type.broadcastable) or not is_quicker(out):
            continue
        if matrix in staying:
            yield node, part, staying[matrix]
        elif is_transpose(matrix.owner):
            transpose = owner_of(matrix)
            if transpose.inputs[0] in staying:
                yield node, part, transpose.op(staying[transpose.inputs[0]])


def _of_all_steps(fgraph: FunctionGraph, steps: Variable, wanted: WantedProduct) -> Variable:
    """Return the products of the first `steps` parts of a sequence with a matrix, plus the addend, if any."""
    # A loop may run fewer steps than its sequences have parts.
    first = OpenCLSubtensor([slice(None, scalars.scalar_type(steps.type.dtype), None)])
    parts, matrix = first(wanted.states, ops.ScalarFromTensor()(steps)), wanted.matrix
    plus = None if wanted.added is None else first(wanted.added, ops.ScalarFromTensor()(steps))
    saved = _saved_products(fgraph, wanted)
    if saved is not None:
        return OpenCLSavedProducts()(*saved[:2], parts, matrix, *saved[2:], *([] if plus is None else [plus]))
    lengths = ops.Shape_i(0)(parts), ops.Shape_i(1)(parts), ops.Shape_i(1)(matrix)
    below = _one_below_the_other(parts)
    if plus is None:
        together = OpenCLDot22()(below, matrix)
    else:
        one = as_tensor_variable(np.ones((), plus.type.dtype))
        together = OpenCLGemm(inplace=False)(_one_below_the_other(plus), one, below, matrix, one)
    return OpenCLReshape(3)(together, ops.MakeVector("int64")(*lengths))


def _one_below_the_other(parts: Variable) -> Variable:
    rows, cols = ops.Shape_i(0)(parts) * ops.Shape_i(1)(parts), ops.Shape_i(2)(parts)
    return OpenCLReshape(2)(parts, ops.MakeVector("int64")(rows, cols))


def _saved_products(fgraph: FunctionGraph, wanted: WantedProduct) -> Sequence[Variable] | None:
    """Make the loop that computes `wanted.states` store the products of its states and the matrix.

    Return the stored products, the states, and the added sequence, if any; None if no loop computes the product.
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
    """Return the product `wanted` as a variable of the loop's body, and the sequence that it adds, if any."""
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
    while var.owner is not None and isinstance(var.owner.op, OpenCLContiguous):
        (var,) = var.owner.inputs
    return var


# This pass runs after lifting, and before sums of products are stacked.
compile_db().register("opencl_hoisting", HoistedProducts(), 48.5, "opencl")
