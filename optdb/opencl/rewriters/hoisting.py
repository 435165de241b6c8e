"""Moves products that do not depend on a loop's states out of the loop, to compute them for all steps at once.

The body of a Scan often multiplies a part of a sequence by a loop-invariant matrix. For example, a network multiplies
its input by its weights. The gradient of a recurrent network multiplies the forward pass's states, which are then
known, by the forward pass's weights. If each step computed its own product, the products would be too small to fill a
GPU, and would add work-groups to each step. Stacking the steps of a sequence yields one large product, whose parts are
a new sequence.

A loop that may end early keeps its products, since it may need only a few of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from optdb.host.api import ops, scalars
from optdb.host.api.control_flow import Scan, has_unneeded_sequences, inner_nodes, scan_of, scan_with_sequences
from optdb.host.api.databases import compile_db
from optdb.host.api.graph import Apply, FunctionGraph, Variable, owner_of
from optdb.host.api.rewriters import GraphRewriter
from optdb.host.api.variables import as_tensor_variable
from optdb.opencl.ops.blas import OpenCLDot22, OpenCLGemm
from optdb.opencl.ops.contiguous import opencl_sequence
from optdb.opencl.ops.elemwise import OpenCLElemwise
from optdb.opencl.ops.recurrence import OpenCLSavedProducts
from optdb.opencl.ops.views import OpenCLDimShuffle, OpenCLReshape, OpenCLSubtensor
from optdb.opencl.rewriters.saving import WantedProduct, product_of, saved_products
from optdb.opencl.rewriters.stacking import is_quicker

#: The rewriter's position: after the lift, before sums of products are stacked.
POSITION = 48.5


class HoistedProducts(GraphRewriter):
    """Moves products out of loops."""

    def rewrite(self, fgraph: FunctionGraph) -> None:
        """Replace the loops that contain products independent of their states."""
        for node in fgraph.toposort():
            if isinstance(node.op, Scan):
                outputs = _hoisted(fgraph, node)
                if outputs is not None:
                    self.replace(fgraph, list(zip(node.outputs, outputs, strict=True)))


def _hoisted(fgraph: FunctionGraph, loop: Apply) -> list[Variable] | None:
    """Return a loop's outputs, computed without state-independent products and without sequences that become unused.

    Return None if there are no such products or sequences.
    """
    op = scan_of(loop)
    replaced: dict[Variable, Variable] = {}
    sequences: dict[Variable, Variable] = {}
    for node, part, matrix in () if op.as_while else _products(loop):
        # Read the sequences here, since loops before this one may have been replaced.
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
    """Return a mapping from the body's sequence variables to the outer sequences."""
    op = scan_of(loop)
    return dict(zip(op.inner_seqs(op.inputs), op.outer_seqs(loop.inputs), strict=True))


def _products(loop: Apply) -> Iterator[tuple[Apply, Variable, Variable]]:
    """Yield a loop's state-independent products, each as the node, the sequence's part, and the outer matrix."""
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
        elif _is_transpose(matrix):
            transpose = owner_of(matrix)
            if transpose.inputs[0] in staying:
                yield node, part, transpose.op(staying[transpose.inputs[0]])


def _is_transpose(var: Variable) -> bool:
    node = var.owner
    return node is not None and type(node.op) is OpenCLDimShuffle and tuple(node.op.new_order) == (1, 0)


def _of_all_steps(fgraph: FunctionGraph, steps: Variable, wanted: WantedProduct) -> Variable:
    """Return the product of each of the first `steps` parts of a sequence with a matrix, plus the addend, if any."""
    # A loop may run fewer steps than its sequences have parts.
    first = OpenCLSubtensor([slice(None, scalars.scalar_type(steps.type.dtype), None)])
    parts, matrix = first(wanted.states, ops.ScalarFromTensor()(steps)), wanted.matrix
    plus = None if wanted.added is None else first(wanted.added, ops.ScalarFromTensor()(steps))
    saved = saved_products(fgraph, wanted)
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


compile_db().register("opencl_hoisting", HoistedProducts(), POSITION, "opencl")
