"""Fuses a bias into products, and gradients into losses (epilogue fusion).

On a GPU, a product's kernel can add a bias when it stores its result. A cross entropy can write its gradient instead of
its softmax if the gradient of the cost with respect to the loss is known in advance, as for a mean. In a language
model, these fusions save passes over the largest arrays.
"""

from __future__ import annotations

from collections.abc import Mapping

from optdb.codegen.source import work_dtype
from optdb.host.api import ops
from optdb.host.api.databases import compile_db
from optdb.host.api.graph import Apply, FunctionGraph, Variable, clients, node_ancestors, owner_of
from optdb.host.api.rewriters import GraphRewriter
from optdb.opencl.fusing.groups import ALWAYS, Needs, can_fuse, is_for_one, needs_of, node_program
from optdb.opencl.ops import softmax as losses
from optdb.opencl.ops.blas import OpenCLBiasedDot22, OpenCLDot22
from optdb.opencl.ops.views import OpenCLDimShuffle, OpenCLReshape
from optdb.opencl.rewriters.stacking import is_quicker
from optdb.opencl.transfers import OpenCLFromHost


class BiasedProducts(GraphRewriter):
    """Replaces sums of a product and a bias with products that add the bias."""

    def rewrite(self, fgraph: FunctionGraph) -> None:
        for node in fgraph.toposort():
            made = _biased(fgraph, node) if can_fuse(node) and is_quicker(node.outputs[0]) else None
            if made is not None and made.type == node.outputs[0].type:
                self.replace(fgraph, [(node.outputs[0], made)])


def _biased(fgraph: FunctionGraph, node: Apply) -> Variable | None:
    """Return the replacement for a sum of a product and a bias; None for other nodes."""
    steps = node_program(node).steps
    if len(node.inputs) != 2 or len(node.outputs) != 1 or len(steps) != 1 or steps[0][0].name != "Add":
        return None
    for product, row in (node.inputs, reversed(node.inputs)):
        bias = _vector(row)
        source = product.owner
        if bias is None or bias.type.dtype != product.type.dtype or source is None or not is_for_one(fgraph, product):
            continue
        if type(source.op) is OpenCLDot22:
            return OpenCLBiasedDot22()(*source.inputs, bias)
        if type(source.op) is OpenCLReshape and _is_of_rows(fgraph, source):
            biased = OpenCLBiasedDot22()(*owner_of(source.inputs[0]).inputs, bias)
            return source.op(biased, source.inputs[1])
    return None


def _vector(row: Variable) -> Variable | None:
    """Return the vector that an array broadcasts along all axes except the last; None for other arrays."""
    node = row.owner
    if node is None or type(node.op) is not OpenCLDimShuffle or node.inputs[0].type.ndim != 1:
        return None
    is_last = tuple(node.op.new_order) == ("x",) * (row.type.ndim - 1) + (0,)
    return node.inputs[0] if is_last and not row.type.broadcastable[-1] else None


def _is_of_rows(fgraph: FunctionGraph, node: Apply) -> bool:
    """Return whether a reshape preserves a product's rows and is the product's only user."""
    product = node.inputs[0]
    if product.owner is None or type(product.owner.op) is not OpenCLDot22 or not is_for_one(fgraph, product):
        return False
    lengths = node.inputs[1].owner
    if lengths is None or not isinstance(lengths.op, ops.MakeVector) or lengths.inputs[-1].owner is None:
        return False
    last, matrix = lengths.inputs[-1].owner, product.owner.inputs[1]
    same = [product, matrix]
    if matrix.owner is not None and isinstance(matrix.owner.op, OpenCLFromHost):
        same += matrix.owner.inputs
    return isinstance(last.op, ops.Shape_i) and last.op.i == 1 and last.inputs[0] in same


class LossesWithGradients(GraphRewriter):
    """Lets cross entropies also compute their gradients."""

    def rewrite(self, fgraph: FunctionGraph) -> None:
        needs = needs_of(fgraph)
        for node in fgraph.toposort():
            if not _can_be_one(fgraph, node, needs):
                continue
            gradient, softmax, classes = node.inputs
            entropies = owner_of(softmax)
            matrix, bias, _ = entropies.inputs
            loss, dx, likeliest = losses.OpenCLCrossentropyAndGradient()(matrix, bias, classes, gradient)
            pairs = [(entropies.outputs[0], loss), (node.outputs[0], dx), (entropies.outputs[2], likeliest)]
            if any(old.type != new.type for old, new in pairs):
                continue
            self.replace(fgraph, pairs)


def _can_be_one(fgraph: FunctionGraph, node: Apply, needs: Mapping[Apply, Needs]) -> bool:
    """Return whether `node` is a gradient that its cross entropies can also compute, in the same precision."""
    if type(node.op) is not losses.OpenCLCrossentropySoftmax1HotWithBiasDx:
        return False
    gradient, softmax, classes = node.inputs
    entropies = softmax.owner
    if entropies is None or type(entropies.op) is not losses.OpenCLCrossentropySoftmaxArgmax1HotWithBias:
        return False
    if softmax is not entropies.outputs[1] or entropies.inputs[2] is not classes:
        return False
    # The fused kernel would use a softmax that is not rounded to the result's dtype.
    if work_dtype(softmax.type.dtype) != softmax.type.dtype:
        return False
    if len({x.type.dtype for x in (gradient, softmax, *entropies.inputs[:2])}) > 1:
        return False
    users = [client for client, _ in clients(fgraph, softmax)]
    if users != [node] or needs.get(node, ALWAYS) != needs.get(entropies, ALWAYS):
        return False
    return entropies not in node_ancestors([gradient])


# These rewriters run after fusion and before all in-place rewriters.
compile_db().register("opencl_biases", BiasedProducts(), 48.72, "opencl")
compile_db().register("opencl_losses", LossesWithGradients(), 48.73, "opencl")
