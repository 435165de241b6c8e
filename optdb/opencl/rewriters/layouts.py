"""Makes arrays contiguous where that saves copies: reversed results of backward loops, and next values.

The gradient of a recurrent network begins at the last step. Its results are then reversed and stacked to a matrix,
which an array with a negative stride cannot become without a copy. The loop therefore stores them in reverse.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optdb.host.api import ops, scalars
from optdb.host.api.control_flow import Scan, part_lengths, scan_of, scan_storing_in
from optdb.host.api.databases import compile_db
from optdb.host.api.graph import Apply, Constant, FunctionGraph, PureOp, Variable, clients, is_output, owner_of
from optdb.host.api.rewriters import GraphRewriter, replace_all
from optdb.host.api.traces import copy_trace
from optdb.host.api.variables import TensorOperators
from optdb.opencl.aliasing import may_lie_in
from optdb.opencl.linking.waiting import begins_copy
from optdb.opencl.ops.blas import OpenCLDot22, OpenCLGemm
from optdb.opencl.ops.contiguous import opencl_contiguous
from optdb.opencl.ops.memory import OpenCLAllocEmpty
from optdb.opencl.ops.recurrence import OpenCLInOneOrder
from optdb.opencl.ops.reduce import OpenCLCAReduce
from optdb.opencl.ops.views import OpenCLDimShuffle, OpenCLReshape, OpenCLSubtensor, is_transpose
from optdb.opencl.type import OpenCLArrayType

_REORDERING = (ops.DimShuffle, ops.Subtensor)

_BACKWARDS = OpenCLSubtensor([slice(None, None, scalars.scalar_type("int64"))])
_AFTER_FIRST = OpenCLSubtensor([slice(scalars.scalar_type("int64"), None, None)])
#: Maps a class of products to the positions of its matrix inputs.
_FACTORS: dict[type[PureOp], tuple[int, int]] = {OpenCLDot22: (0, 1), OpenCLGemm: (2, 3)}
_LAST_FIRST = (2, 0, 1)


class BackwardResults(GraphRewriter):
    """Lets loops store results in reverse where the graph reverses them."""

    def rewrite(self, fgraph: FunctionGraph) -> None:
        """Replace the reversed results and the products that read them."""
        for node in fgraph.toposort():
            if not isinstance(node.op, Scan) or node.op.as_while:
                continue
            # Iterate backwards, since a result that becomes a state shifts the results after it.
            for number in reversed(range(node.op.n_nit_sot)):
                node = _stored_backwards(fgraph, node, number)


def _stored_backwards(fgraph: FunctionGraph, loop: Apply, number: int) -> Apply:
    """Return a loop that stores a result in reverse if that saves copies, else the loop itself."""
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
    """Return memory in reverse order for a result's steps and one more part; None if the result's shape is unknown."""
    op = scan_of(loop)
    result = op.outer_nitsot_outs(loop)[number]
    steps = loop.inputs[0]
    lengths = part_lengths(loop, number) if op.outer_nitsot(loop.inputs)[number] is steps else None
    if lengths is None:
        return None
    assert isinstance(steps, TensorOperators), steps
    empty = OpenCLAllocEmpty(result.type.dtype, result.type.context_name)
    # Make the memory contiguous, as the memory of other states is, unless the loop overwrites it.
    return opencl_contiguous(_BACKWARDS(empty(steps + 1, *lengths), np.int64(-1)))


def _products_of(fgraph: FunctionGraph, result: Variable) -> list[Apply] | None:
    """Return the products that sum over a result's steps; None if something else also needs the unreversed result."""
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
    """Tell whether a node reverses an array along its first axis."""
    if type(node.op) is not OpenCLSubtensor or not node.op.idx_list:
        return False
    first = ops.get_idx_list(node.inputs, node.op.idx_list)[0]
    step = first.step if isinstance(first, slice) else None
    return isinstance(step, Constant) and step.data < 0


def _products_of_matrix(fgraph: FunctionGraph, matrix: Variable) -> list[Apply] | None:
    """Return the products that use a matrix; None if anything except products that sum over steps uses it."""
    products: list[Apply] = []
    for client, _ in clients(fgraph, matrix):
        if not is_output(client) and is_transpose(client):
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
    """A matrix made from a sequence: the stacked rows of its parts, or the transpose of that matrix."""

    sequence: Variable
    lengths: Variable  #: The shape passed to the reshape, on the host.
    width: int  #: Index in `lengths` of a row's length.
    views: tuple[Apply, ...]  #: The nodes that compute the matrix, in order.

    def of(self, sequence: Variable) -> Variable:
        """Return the matrix that the factor's views make from another sequence."""
        for node in self.views:
            sequence = node.op(sequence, *node.inputs[1:])
        return sequence


def _factors(node: Apply) -> tuple[_Factor, _Factor] | None:
    """Return the factors of a product that sums over the rows of two sequences' parts; None for other nodes."""
    if type(node.op) not in _FACTORS:
        return None
    left, right = (node.inputs[slot] for slot in _FACTORS[type(node.op)])
    first, second = _factor(left, is_left=True), _factor(right, is_left=False)
    return None if first is None or second is None else (first, second)


def _factor(matrix: Variable, is_left: bool) -> _Factor | None:
    """Return the factor for a matrix made from a sequence; None if the product does not sum over its rows."""
    views: list[Apply] = []
    node, is_transposed = matrix.owner, False
    if node is not None and is_transpose(node):
        views.append(node)
        node, is_transposed = node.inputs[0].owner, True
    if node is None or type(node.op) is not OpenCLReshape or node.op.ndim != 2 or node.inputs[0].type.ndim != 3:
        return None
    views.append(node)
    reshape, sequence = node, node.inputs[0]
    if is_left != is_transposed:
        # The matrix's rows are columns of the parts.
        node = sequence.owner
        if node is None or type(node.op) is not OpenCLDimShuffle or tuple(node.op.new_order) != _LAST_FIRST:
            return None
        views.append(node)
        sequence = node.inputs[0]
    width = 0 if is_left != is_transposed else 1
    return _Factor(sequence, reshape.inputs[1], width, tuple(reversed(views)))


def _take_either_order(fgraph: FunctionGraph, product: Apply) -> None:
    """Let a product read its sequences in the order that needs fewer copies."""
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


class NextValuesInOrder(GraphRewriter):
    """Makes next values of shared arrays C-contiguous, since a plan keeps each shared array at the same address."""

    def rewrite(self, fgraph: FunctionGraph) -> None:
        """Replace the outputs of a function's graph that are updates."""
        mapping = getattr(fgraph, "update_mapping", None) or {}
        for index in mapping:
            out = fgraph.outputs[index]
            if isinstance(out.type, OpenCLArrayType) and _may_be_out_of_order(out):
                # If a node starts copying the next value and returns it, the node must receive the contiguous array.
                node = out.owner
                begins = node is not None and begins_copy(node)
                client, slot = (node, out.index) if begins else ("output", index)
                value = node.inputs[slot] if begins else out
                ordered = opencl_contiguous(value)
                copy_trace(value, ordered)
                if ordered is not value:
                    # Other users of the value accept any layout.
                    fgraph.change_input(client, slot, ordered, reason=type(self).__name__)


def _may_be_out_of_order(out: Variable) -> bool:
    """Tell whether a value may have a view's layout, because it is a view or an op has written it over a view."""
    owners = (var.owner for var in may_lie_in(out))
    return any(node is not None and isinstance(node.op, _REORDERING) for node in owners)


# After parts are placed, before other in-place rewrites; only for modes that let loops overwrite states, since in other
# modes, loops copy the memory that they receive.
compile_db().register("opencl_backwards", BackwardResults(), 48.76, "fast_run", "inplace")
# After all in-place rewrites, when most next values overwrite the current values.
compile_db().register("opencl_updates", NextValuesInOrder(), 75.7, "opencl")
