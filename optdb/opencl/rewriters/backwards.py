"""A loop that runs backwards stores its results in the order of the sequences that it was given.

The gradient of a recurrent net begins at the last step. What it computes of each step is turned over afterwards, and
multiplied with the inputs and states of all steps. A product takes matrices: the steps of each, one below the other. No
strides reshape steps that run backwards in memory, so large arrays were copied. The loop gets memory for these results
that runs backwards itself; turned over, it is in order. A product with something else that runs backwards sums over all
steps, in either order: so both are turned over.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optdb.host.api import ops, scalars
from optdb.host.api.control_flow import Scan, part_lengths, scan_of, scan_storing_in
from optdb.host.api.databases import compile_db
from optdb.host.api.graph import Apply, Constant, FunctionGraph, PureOp, Variable, clients, is_output, owner_of
from optdb.host.api.rewriters import GraphRewriter, replace_all
from optdb.host.api.variables import TensorOperators
from optdb.opencl.ops.blas import OpenCLDot22, OpenCLGemm
from optdb.opencl.ops.contiguous import opencl_contiguous
from optdb.opencl.ops.memory import OpenCLAllocEmpty
from optdb.opencl.ops.recurrence import OpenCLInOneOrder
from optdb.opencl.ops.reduce import OpenCLCAReduce
from optdb.opencl.ops.views import OpenCLDimShuffle, OpenCLReshape, OpenCLSubtensor
from optdb.opencl.type import OpenCLArrayType

#: After parts are placed, before other in-place rewrites.
POSITION = 48.76

_BACKWARDS = OpenCLSubtensor([slice(None, None, scalars.scalar_type("int64"))])
_AFTER_FIRST = OpenCLSubtensor([slice(scalars.scalar_type("int64"), None, None)])
#: Class of products to the inputs that are matrices.
_FACTORS: dict[type[PureOp], tuple[int, int]] = {OpenCLDot22: (0, 1), OpenCLGemm: (2, 3)}
_SWAPPED, _LAST_FIRST = (1, 0), (2, 0, 1)


class BackwardResults(GraphRewriter):
    """Lets loops store their results backwards where these are turned over."""

    def rewrite(self, fgraph: FunctionGraph) -> None:
        """Replace the results that are turned over, and the products of these."""
        for node in fgraph.toposort():
            if not isinstance(node.op, Scan) or node.op.as_while:
                continue
            # A result that becomes a state moves those behind it.
            for number in reversed(range(node.op.n_nit_sot)):
                node = _stored_backwards(fgraph, node, number)


def _stored_backwards(fgraph: FunctionGraph, loop: Apply, number: int) -> Apply:
    """Return the loop, or one that stores a result backwards if that saves copies."""
    result = scan_of(loop).outer_nitsot_outs(loop)[number]
    products = _products_of(fgraph, result)
    memory = None if products is None else _memory_of(fgraph, loop, number)
    if memory is None:
        return loop
    outputs = scan_storing_in(loop, number, memory)
    index = loop.outputs.index(result)
    stored = owner_of(outputs[index])
    outputs[index] = _AFTER_FIRST(outputs[index], np.int64(1))
    if [out.type for out in outputs] != [out.type for out in loop.outputs]:
        return loop
    pairs = list(zip(loop.outputs, outputs, strict=True))
    _replace(fgraph, pairs)
    for product in dict.fromkeys(products or ()):
        _take_either_order(fgraph, product)
    return stored


def _replace(fgraph: FunctionGraph, pairs: list[tuple[Variable, Variable]]) -> None:
    replace_all(fgraph, pairs, reason=BackwardResults.__name__)


def _memory_of(fgraph: FunctionGraph, loop: Apply, number: int) -> Variable | None:
    """Return memory for a result of all steps, and a part before it, that runs backwards; None if it has no shape."""
    op = scan_of(loop)
    result = op.outer_nitsot_outs(loop)[number]
    steps = loop.inputs[0]
    lengths = part_lengths(loop, number) if op.outer_nitsot(loop.inputs)[number] is steps else None
    if lengths is None:
        return None
    assert isinstance(steps, TensorOperators), steps
    empty = OpenCLAllocEmpty(result.type.dtype, result.type.context_name)
    # In order, as other states are, unless the loop overwrites it.
    return opencl_contiguous(_BACKWARDS(empty(steps + 1, *lengths), np.int64(-1)))


def _products_of(fgraph: FunctionGraph, result: Variable) -> list[Apply] | None:
    """Return the products of all steps of a result; None if it is not turned over, or needed in its own order."""
    if not isinstance(result.type, OpenCLArrayType) or result.type.ndim != 3 or any(result.type.broadcastable):
        return None
    products: list[Apply] = []
    is_turned = False
    for client, _ in clients(fgraph, result):
        if is_output(client):
            return None
        if _runs_backwards(client):
            is_turned = True
        elif type(client.op) is OpenCLReshape and client.op.ndim == 2:
            found = _products_of_matrix(fgraph, client.outputs[0])
            if found is None:
                return None
            products += found
        elif type(client.op) not in (OpenCLCAReduce, OpenCLInOneOrder):
            return None
    return products if is_turned else None


def _runs_backwards(node: Apply) -> bool:
    """Tell whether a node takes parts of an array from the last to the first."""
    if type(node.op) is not OpenCLSubtensor or not node.op.idx_list:
        return False
    first = ops.get_idx_list(node.inputs, node.op.idx_list)[0]
    step = first.step if isinstance(first, slice) else None
    return isinstance(step, Constant) and step.data < 0


def _products_of_matrix(fgraph: FunctionGraph, matrix: Variable) -> list[Apply] | None:
    """Return the products that take a matrix, all of which sum over the steps of sequences; None if one does not."""
    products: list[Apply] = []
    for client, _ in clients(fgraph, matrix):
        if not is_output(client) and _is_transpose(client):
            found = _products_of_matrix(fgraph, client.outputs[0])
            if found is None:
                return None
            products += found
        elif is_output(client) or _factors(client) is None:
            return None
        else:
            products.append(client)
    return products


@dataclass(frozen=True)
class _Factor:
    """A matrix made of a sequence: the rows of its parts, one below the other, or that transposed."""

    sequence: Variable
    lengths: Variable  #: The host's, of the reshape.
    width: int  #: Which of the lengths is that of a row.
    views: tuple[Apply, ...]  #: What makes the matrix, in order.

    def of(self, sequence: Variable) -> Variable:
        """Return the matrix of another sequence."""
        for node in self.views:
            sequence = node.op(sequence, *node.inputs[1:])
        return sequence


def _factors(node: Apply) -> tuple[_Factor, _Factor] | None:
    """Return the matrices that a node multiplies if it sums over the rows of all parts of two sequences."""
    if type(node.op) not in _FACTORS:
        return None
    left, right = (node.inputs[slot] for slot in _FACTORS[type(node.op)])
    first, second = _factor(left, is_left=True), _factor(right, is_left=False)
    return None if first is None or second is None else (first, second)


def _factor(matrix: Variable, is_left: bool) -> _Factor | None:
    """Return what a matrix is made of; None if not of the rows of a sequence that a product sums over."""
    views: list[Apply] = []
    node, is_transposed = matrix.owner, False
    if node is not None and _is_transpose(node):
        views.append(node)
        node, is_transposed = node.inputs[0].owner, True
    if node is None or type(node.op) is not OpenCLReshape or node.op.ndim != 2 or node.inputs[0].type.ndim != 3:
        return None
    views.append(node)
    reshape, sequence = node, node.inputs[0]
    if is_left != is_transposed:
        # The rows of the matrix are columns of the parts.
        node = sequence.owner
        if node is None or type(node.op) is not OpenCLDimShuffle or tuple(node.op.new_order) != _LAST_FIRST:
            return None
        views.append(node)
        sequence = node.inputs[0]
    width = 0 if is_left != is_transposed else 1
    return _Factor(sequence, reshape.inputs[1], width, tuple(reversed(views)))


def _is_transpose(node: Apply) -> bool:
    return type(node.op) is OpenCLDimShuffle and tuple(node.op.new_order) == _SWAPPED


def _take_either_order(fgraph: FunctionGraph, product: Apply) -> None:
    """Let a product take its sequences in the order in which fewer are copied."""
    factors = _factors(product)
    if factors is None:
        return
    left, right = factors
    order = OpenCLInOneOrder((left.width, right.width))
    first, second = order(left.sequence, right.sequence, left.lengths, right.lengths)
    inputs = list(product.inputs)
    for slot, matrix in zip(_FACTORS[type(product.op)], (left.of(first), right.of(second)), strict=True):
        inputs[slot] = matrix
    _replace(fgraph, [(product.outputs[0], product.op(*inputs))])


# Where loops may overwrite states: otherwise they copy the memory that they are given.
compile_db().register("opencl_backwards", BackwardResults(), POSITION, "fast_run", "inplace")
