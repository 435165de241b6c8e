"""Node rewriters that only the engine runs, for large powers and for reshapes to an array's own shape.

Theano expands powers up to 512. These rewriters halve larger exponents, so that x ** 1024 takes ten multiplications. A
reshape is removed if its lengths equal the inferred lengths of its input; in topological order, its lengths have been
rewritten before the reshape is visited. Shapes made by Join become MakeVectors, which Theano's rewriters recognize.
"""

from __future__ import annotations

import numpy as np

from optdb.host.api import tensor
from optdb.host.api.graph import Apply, Constant, FunctionGraph, Variable
from optdb.topo.db import ENGINE_TAG, register_topo

#: The largest exponent that Theano's local_pow_specialize_device expands.
MAX_THEANO_EXPONENT = 512
#: The largest exponent for which squaring is used: each squaring doubles the relative error, so for larger exponents,
#: pow is more accurate.
MAX_EXPONENT = 1024


@register_topo(ENGINE_TAG, tracks=[tensor.pow])
def local_pow_to_sqr(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """Rewrite ``x ** (2 * n)`` as ``sqr(x ** n)`` if ``2 * n`` is a large power of two."""
    base, exponent = node.inputs
    if not all(exponent.type.broadcastable):
        return None
    try:
        value = tensor.get_scalar_constant_value(exponent)
    except tensor.NotScalarConstantError:
        return None
    if not MAX_THEANO_EXPONENT < value <= MAX_EXPONENT or int(value) & (int(value) - 1) or value != int(value):
        return None
    half = tensor.constant(np.full((1,) * exponent.type.ndim, int(value) // 2, dtype=exponent.type.dtype))
    root = tensor.pow(base, half)
    squared = tensor.sqr(root)
    if squared.type != node.outputs[0].type:
        return None
    tensor.copy_stack_trace(node.outputs[0], [root, squared])
    return [squared]


_DTYPE = "int64"
#: The maximum number of axes of an array; a longer vector cannot be a shape.
_MAX_AXES = 32


@register_topo(ENGINE_TAG, tracks=[tensor.Join])
def local_join_to_make_vector(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """Rewrite a join of single lengths, ``join(0, [n], [3])``, as ``MakeVector(n, 3)``."""
    axis, *parts = node.inputs
    (joined,) = node.outputs
    assert isinstance(node.op, tensor.Join)
    if joined.type.ndim != 1 or joined.type.dtype != _DTYPE or node.op.view != -1 or not isinstance(axis, Constant):
        return None
    lengths: list[Variable] = []
    for part in parts:
        numbers = _numbers(part)
        if numbers is None or len(lengths) + len(numbers) > _MAX_AXES:
            return None
        lengths += numbers
    vector = tensor.MakeVector(_DTYPE)(*lengths)
    if vector.type != joined.type:
        return None
    tensor.copy_stack_trace(joined, vector)
    return [vector]


def _numbers(part: Variable) -> list[Variable] | None:
    """Return the elements of an integer vector as variables; None if they are not separate variables."""
    if part.type.dtype != _DTYPE:
        return None
    if isinstance(part, Constant):
        return [tensor.constant(number) for number in part.data] if len(part.data) <= _MAX_AXES else None
    owner = part.owner
    if owner is None:
        return None
    is_one_number = isinstance(owner.op, tensor.DimShuffle) and owner.op.new_order == ("x",)
    return list(owner.inputs) if is_one_number or isinstance(owner.op, tensor.MakeVector) else None


@register_topo(ENGINE_TAG, tracks=[tensor.Reshape])
def local_reshape_to_own_shape(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """Remove a reshape to its input's own shape."""
    x, wanted = node.inputs
    feature = getattr(fgraph, "shape_feature", None)
    if feature is None or x.type != node.outputs[0].type:
        return None
    if wanted.owner is None or not isinstance(wanted.owner.op, tensor.MakeVector):
        return None
    lengths = enumerate(wanted.owner.inputs)
    return [x] if all(_is_length(length, feature.get_shape(x, axis)) for axis, length in lengths) else None


def _is_length(length: Variable, inferred: Variable) -> bool:
    if length is inferred:
        return True
    if not isinstance(length, Constant):
        return False
    try:
        return bool(tensor.get_scalar_constant_value(inferred) == length.data)
    except tensor.NotScalarConstantError:
        return False


@register_topo(ENGINE_TAG, tracks=[tensor.DimShuffle])
def local_dimshuffle_of_dimshuffle(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """Merge two consecutive DimShuffles; Theano's own rewriter does this only in earlier phases."""
    inner = node.inputs[0].owner
    assert isinstance(node.op, tensor.DimShuffle)
    if inner is None or not isinstance(inner.op, tensor.DimShuffle):
        return None
    inner_order = inner.op.new_order
    order = ["x" if isinstance(axis, str) else inner_order[axis] for axis in node.op.new_order]
    x = inner.inputs[0]
    merged = x if order == list(range(x.type.ndim)) else tensor.DimShuffle(x.type.broadcastable, order)(x)
    if merged.type != node.outputs[0].type:
        return None
    if merged is not x:
        tensor.copy_stack_trace(node.outputs[0], merged)
    return [merged]
