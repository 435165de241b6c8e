"""Epilogue fusion of biases: a matrix product adds a bias to its rows when it stores them.

A network adds a bias to each row of a product. If an activation function follows, fusion computes both in one kernel.
If something else follows, such as a loop or a loss, the sum is a separate elementwise op, which reads and writes the
whole product again. In a language model, this is the largest array. On a GPU, a product's kernel can add another matrix
to its result when it stores the result; a bias is a matrix whose rows are all equal.
"""

from __future__ import annotations

from optdb.host.api import ops
from optdb.host.api.databases import compile_db
from optdb.host.api.graph import Apply, FunctionGraph, Variable, clients, is_output, owner_of
from optdb.host.api.rewriters import GraphRewriter
from optdb.opencl.fusing.groups import can_fuse, node_program
from optdb.opencl.ops.blas import OpenCLBiasedDot22, OpenCLDot22
from optdb.opencl.ops.views import OpenCLDimShuffle, OpenCLReshape
from optdb.opencl.rewriters.stacking import is_quicker
from optdb.opencl.transfers import OpenCLFromHost

#: The rewriter's position: after fusion, before any in-place rewrite.
POSITION = 48.72


class BiasedProducts(GraphRewriter):
    """Replaces sums of a product and a bias with products that add the bias."""

    def rewrite(self, fgraph: FunctionGraph) -> None:
        """Replace the sums whose products have no other user."""
        for node in fgraph.toposort():
            made = _biased(fgraph, node) if can_fuse(node) and is_quicker(node.outputs[0]) else None
            if made is not None and made.type == node.outputs[0].type:
                self.replace(fgraph, [(node.outputs[0], made)])


def _biased(fgraph: FunctionGraph, node: Apply) -> Variable | None:
    """Return the replacement for a sum of a product and a bias; None if the node computes something else."""
    steps = node_program(node).steps
    if len(node.inputs) != 2 or len(node.outputs) != 1 or len(steps) != 1 or steps[0][0].name != "Add":
        return None
    for product, row in (node.inputs, reversed(node.inputs)):
        bias = _vector(row)
        if bias is None or bias.type.dtype != product.type.dtype or not _is_for_one(fgraph, product):
            continue
        source = owner_of(product)
        if type(source.op) is OpenCLDot22:
            return OpenCLBiasedDot22()(*source.inputs, bias)
        if type(source.op) is OpenCLReshape and _is_of_rows(fgraph, source):
            biased = OpenCLBiasedDot22()(*owner_of(source.inputs[0]).inputs, bias)
            return source.op(biased, source.inputs[1])
    return None


def _vector(row: Variable) -> Variable | None:
    """Return the vector that was broadcast along all axes except the last to give an array; None for other arrays."""
    node = row.owner
    if node is None or type(node.op) is not OpenCLDimShuffle or node.inputs[0].type.ndim != 1:
        return None
    is_last = tuple(node.op.new_order) == ("x",) * (row.type.ndim - 1) + (0,)
    return node.inputs[0] if is_last and not row.type.broadcastable[-1] else None


def _is_of_rows(fgraph: FunctionGraph, node: Apply) -> bool:
    """Tell whether a reshape keeps the rows of a product intact and is the product's only user."""
    product = node.inputs[0]
    if product.owner is None or type(product.owner.op) is not OpenCLDot22 or not _is_for_one(fgraph, product):
        return False
    lengths = node.inputs[1].owner
    if lengths is None or not isinstance(lengths.op, ops.MakeVector) or lengths.inputs[-1].owner is None:
        return False
    last, matrix = lengths.inputs[-1].owner, product.owner.inputs[1]
    same = [product, matrix]
    if matrix.owner is not None and isinstance(matrix.owner.op, OpenCLFromHost):
        same += matrix.owner.inputs
    return isinstance(last.op, ops.Shape_i) and last.op.i == 1 and last.inputs[0] in same


def _is_for_one(fgraph: FunctionGraph, var: Variable) -> bool:
    """Tell whether a variable is the result of a node, and is used exactly once, as an input of a node."""
    users = clients(fgraph, var)
    return var.owner is not None and len(users) == 1 and not is_output(users[0][0])


compile_db().register("opencl_biases", BiasedProducts(), POSITION, "opencl")
