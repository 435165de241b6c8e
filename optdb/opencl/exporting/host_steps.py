"""Symbolically executes a trace's host nodes, which compute numbers from shapes.

A host value that is unknown before a call is a symbolic integer (`SymInt`), a vector of symbolic integers
(`SymIntVector`), or a `DeferredArray`. `follow` applies a node to unknown values, so that each call of the exported
function recomputes the result. For nodes that need device values, `device_counterpart` returns an equivalent device
node.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from optdb.codegen.scalars.types import NoCode
from optdb.codegen.views import full_shape
from optdb.device.export.numbers import NotFollowed, cast_number, number_of
from optdb.device.export.walking import is_open
from optdb.host.api import ops, scalars
from optdb.host.api.graph import Apply, io_toposort, op_of
from optdb.host.api.linking import DeepCopyOp, ViewOp
from optdb.host.theano.functions.declared import DeclaredLengths
from optdb.opencl.ops.elemwise import OpenCLElemwise
from optdb.opencl.ops.views import OpenCLDimShuffle, OpenCLReshape
from optdb.opencl.scalar_programs import scalar_name
from optdb.opencl.type import UnsupportedDtype, opencl_type
from optdb.runtime.deferred import DeferredArray, FromArgument, FromNumbers, FromTable, Reshaped
from optdb.runtime.recording import Untraceable
from optdb.runtime.sizes import SymInt, SymIntVector, as_int, lengths_of, part_of

#: Host ops, their device counterparts, and the number of leading inputs that are arrays (None for all inputs); the
#: other inputs are host values.
_COUNTERPARTS: tuple[tuple[Any, Callable[[Any], Any], int | None], ...] = (
    (ops.Elemwise, lambda op: OpenCLElemwise(op.scalar_op), None),
    (ops.DimShuffle, lambda op: OpenCLDimShuffle(op.input_broadcastable, op.new_order), 1),
    (ops.Reshape, lambda op: OpenCLReshape(op.ndim), 1),
)


def follow(node: Apply, values: Sequence[Any]) -> list[Any]:
    """Return a host node's results for partly unknown values; raise `Untraceable` if no rule applies."""
    step = next((step for kinds, step in _STEPS if isinstance(node.op, kinds)), None)
    try:
        if step is not None:
            value = step(node, *values)
            # Return known values as arrays, as nodes do when they run.
            return [value if is_open(value) else np.asarray(value, node.outputs[0].type.dtype)]
    except NotFollowed:
        pass
    raise Untraceable(
        f"{node.op} runs on the host and needs values of the call. Make it run on the device, or compute it before "
        "the call and pass the result as an argument"
    )


def device_counterpart(node: Apply, context_name: Hashable) -> tuple[Apply, int] | None:
    """Return a host node's equivalent on the device, and the number of device inputs; None if none exists."""
    counterpart = next(((make, count) for kind, make, count in _COUNTERPARTS if isinstance(node.op, kind)), None)
    if counterpart is None:
        return None
    make, count = counterpart
    count = len(node.inputs) if count is None else count
    try:
        arrays = [opencl_type(var.type.dtype, var.type.broadcastable, context_name)() for var in node.inputs[:count]]
        twin = make(node.op).make_node(*arrays, *node.inputs[count:])
    except (TypeError, UnsupportedDtype):
        # The op has no OpenCL C code, or the device lacks its dtype.
        return None
    same = [(out.type.dtype, out.type.broadcastable) for out in twin.outputs]
    return (twin, count) if same == [(out.type.dtype, out.type.broadcastable) for out in node.outputs] else None


def _require_numbers(*values: Any) -> None:
    """Reject values other than numbers and vectors of numbers."""
    if any(isinstance(value, DeferredArray) for value in values):
        raise NotFollowed


def _checked(node: Apply, value: Any, *wanted: Any) -> Any:
    if isinstance(node.op, ops.SpecifyShape):
        lengths = lengths_of(wanted[0]) if not isinstance(wanted[0], DeferredArray) else ()
        fits = len(lengths) == len(value.shape) and all(map(operator.eq, lengths, value.shape))
    elif isinstance(node.op, DeclaredLengths):
        fits = node.op.admits(value.shape)
    else:
        pattern = op_of(node, ops.Rebroadcast).axis
        fits = all(value.shape[axis] == 1 for axis, broadcastable in pattern.items() if broadcastable)
    if not fits:
        raise NotFollowed
    return value


def _assert(node: Apply, value: Any, *conditions: Any) -> Any:
    _require_numbers(*conditions)
    if not all(conditions):
        raise NotFollowed
    return value


def _vector(node: Apply, *values: Any) -> SymIntVector:
    _require_numbers(*values)
    if "int" not in node.outputs[0].type.dtype:
        raise NotFollowed
    return SymIntVector(map(as_int, values))


def _joined(node: Apply, axis: Any, *values: Any) -> SymIntVector:
    _require_numbers(*values)
    if node.outputs[0].type.ndim != 1:
        raise NotFollowed
    return SymIntVector(length for value in values for length in lengths_of(value))


def _part(node: Apply, value: Any, *index: Any) -> Any:
    _require_numbers(value, *index)
    entries = ops.get_idx_list([value, *index], op_of(node, ops.Subtensor).idx_list)
    if not isinstance(value, SymIntVector):
        return np.asarray(value)[tuple(map(_plain_index, entries))]
    (entry,) = entries
    if not isinstance(entry, slice):
        return value[int(entry)]
    start, count, step = part_of(len(value), entry)
    return SymIntVector.of((value[start + i * step] for i in range(int(count))), node.outputs[0].type.dtype)


def _plain_index(entry: Any) -> int | slice:
    """Return an index as plain numbers, and record guards for them."""
    if isinstance(entry, slice):
        return slice(*(None if bound is None else int(bound) for bound in (entry.start, entry.stop, entry.step)))
    return int(entry)


def _turned(node: Apply, value: Any) -> Any:
    """Apply a DimShuffle to a single number, whose axes all have length 1."""
    order = op_of(node, ops.DimShuffle).new_order
    if isinstance(value, DeferredArray) and isinstance(value.source, FromNumbers):
        shape = tuple(1 if isinstance(axis, str) else value.shape[axis] for axis in order)
        return DeferredArray(shape, value.dtype, value.source)
    if isinstance(value, SymIntVector) and order == (0,):
        return value
    if not isinstance(value, SymInt):
        raise NotFollowed
    return _of_one_number(node, value)


def _of_one_number(node: Apply, value: Any) -> Any:
    """Return a number as the value of a node's one-element output."""
    kind = node.outputs[0].type
    if not isinstance(value, SymInt):
        return np.full((1,) * kind.ndim, value, kind.dtype)
    if not kind.ndim:
        return value
    return DeferredArray((1,) * kind.ndim, np.dtype(kind.dtype), FromNumbers(kind.dtype, (value,)))


def _reshaped(node: Apply, value: Any, wanted: Any) -> Any:
    if not isinstance(value, DeferredArray) or not isinstance(value.source, FromArgument | FromTable | Reshaped):
        raise NotFollowed
    shape = full_shape(value.shape, lengths_of(wanted), op_of(node, ops.Reshape).ndim)
    return DeferredArray(shape, value.dtype, Reshaped(value, shape))


def _product(node: Apply, value: Any) -> Any:
    scalar_op = op_of(node, ops.CAReduce).scalar_op
    if not isinstance(value, SymIntVector) or type(scalar_op) not in (scalars.Add, scalars.Mul):
        raise NotFollowed
    dtype = node.outputs[0].type.dtype
    dtypes = [value.dtype.name] * 2
    result = functools.reduce(lambda left, right: scalar(scalar_op, dtypes, (left, right), dtype), value)
    return cast_number(result, dtype)


def _elementwise(node: Apply, *values: Any) -> Any:
    if len(node.outputs) > 1:
        raise NotFollowed
    if node.outputs[0].type.ndim == 1 and any(isinstance(value, SymIntVector) for value in values):
        return _of_vectors(node, values)
    return _of_one_number(node, _of_numbers(node, list(map(_one_number, values))))


def _of_vectors(node: Apply, values: Sequence[Any]) -> SymIntVector:
    lengths = {len(value) for value in values if isinstance(value, SymIntVector)}
    if len(lengths) > 1:
        raise NotFollowed
    (length,) = lengths
    columns = []
    for value in values:
        single = not isinstance(value, SymIntVector) and np.size(value) != length
        columns.append([_one_number(value)] * length if single else list(value))
    return SymIntVector.of((_of_numbers(node, row) for row in zip(*columns, strict=True)), node.outputs[0].type.dtype)


def _of_numbers(node: Apply, values: Sequence[Any]) -> Any:
    dtypes = [var.type.dtype for var in node.inputs]
    return scalar(op_of(node, ops.Elemwise).scalar_op, dtypes, values, node.outputs[0].type.dtype)


def _one_number(value: Any) -> Any:
    if isinstance(value, DeferredArray) and isinstance(value.source, FromNumbers):
        (value,) = value.source.numbers
    if isinstance(value, SymInt):
        return value
    if isinstance(value, DeferredArray | SymIntVector) or np.size(value) != 1:
        raise NotFollowed
    return np.asarray(value).reshape(())[()]


def scalar(op: Any, dtypes: Sequence[str], values: Sequence[Any], dtype: str) -> Any:
    """Return the result of a scalar op for numbers, some of which are symbolic sizes."""
    if isinstance(op, scalars.Composite):
        return _composite(op, values)
    if not any(isinstance(value, SymInt) for value in values):
        return np.asarray(op.impl(*values)).astype(dtype)[()]
    try:
        name = scalar_name(op)
    except NoCode:
        raise NotFollowed from None
    return number_of(name, dtype, dtypes, values)


def _composite(op: Any, values: Sequence[Any]) -> Any:
    results = dict(zip(op.inputs, values, strict=True))
    for node in io_toposort(op.inputs, op.outputs[:1]):
        operands = [results.get(x, getattr(x, "data", None)) for x in node.inputs]
        (out,) = node.outputs
        results[out] = scalar(node.op, [x.type.dtype for x in node.inputs], operands, out.type.dtype)
    return results[op.outputs[0]]


_STEPS: tuple[tuple[Any, Callable[..., Any]], ...] = (
    (ops.Shape, lambda node, value: SymIntVector(value.shape)),
    (ops.Shape_i, lambda node, value: value.shape[node.op.i]),
    ((DeepCopyOp, ViewOp, ops.ScalarFromTensor, ops.TensorFromScalar), lambda node, value: value),
    ((ops.Rebroadcast, ops.SpecifyShape, DeclaredLengths), _checked),
    (ops.Assert, _assert),
    (ops.MakeVector, _vector),
    (ops.Join, _joined),
    (ops.Subtensor, _part),
    (ops.DimShuffle, _turned),
    (ops.Reshape, _reshaped),
    (ops.CAReduce, _product),
    (ops.Elemwise, _elementwise),
)
