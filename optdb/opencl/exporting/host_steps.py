"""Steps of the host that a trace goes through: numbers that follow from shapes.

A value of the host that is not known before a call is a `SymInt`, a vector of them (`SymIntVector`), or a
`DeferredArray`. `follow` does with these what a node does with numbers, so that the result can be worked out again.
What it does not know ends the trace, by the name of the node: such a step would have to stay on the host.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from optdb.host import ops, scalars
from optdb.host.graph import Apply
from optdb.host.linking import DeepCopyOp, ViewOp
from optdb.opencl.ops.views import full_shape
from optdb.runtime.host_scalar_ops import host_scalar
from optdb.runtime.sizes import (
    DeferredArray,
    SymInt,
    SymIntVector,
    as_int,
    example_value,
    largest,
    lengths_of,
    part_of,
    smallest,
)
from optdb.runtime.tracing import Untraceable

__all__ = ["follow", "is_open", "stays"]

#: Whole numbers stay sizes.
_ARITHMETIC: dict[type, Callable[..., Any]] = {
    scalars.Add: lambda *x: _folded(operator.add, x),
    scalars.Mul: lambda *x: _folded(operator.mul, x),
    scalars.Sub: operator.sub,
    scalars.IntDiv: operator.floordiv,
    scalars.Mod: operator.mod,
    scalars.Neg: operator.neg,
    scalars.Abs: abs,
    scalars.Maximum: largest,
    scalars.Minimum: smallest,
    scalars.Sqr: lambda x: x * x,
}
#: Answers are those of the example, and guarded.
_COMPARISONS: dict[type, Callable[..., Any]] = {
    scalars.LT: operator.lt,
    scalars.LE: operator.le,
    scalars.GT: operator.gt,
    scalars.GE: operator.ge,
    scalars.EQ: operator.eq,
    scalars.NEQ: operator.ne,
}
#: Of the last, the names by which ``optdb.runtime.host_scalar_ops`` knows them.
_HOST_SCALAR_OPS = {
    scalars.TrueDiv: "true_div",
    scalars.IntDiv: "int_div",
    scalars.Mod: "mod",
    scalars.Sub: "sub",
    scalars.Pow: "pow",
    scalars.Maximum: "maximum",
    scalars.Minimum: "minimum",
    scalars.Neg: "neg",
    scalars.Abs: "abs",
    scalars.Inv: "inv",
    scalars.Sqr: "sqr",
    scalars.Sqrt: "sqrt",
    scalars.Exp: "exp",
    scalars.Log: "log",
    scalars.Floor: "floor",
    scalars.Ceil: "ceil",
    scalars.Cast: "cast",
}


def is_open(value: Any) -> bool:
    """Tell whether a value of the host is not known before a call."""
    return isinstance(value, SymInt | SymIntVector | DeferredArray)


def follow(node: Apply, values: Sequence[Any]) -> list[Any]:
    """Return what a node of the host gives for values of which some are open.

    Raises
    ------
    Untraceable
        If it is not known how to work that out again.
    """
    for kinds, step in _STEPS:
        if isinstance(node.op, kinds):
            return [_as_host_has_it(node, step(node, *values))]
    raise stays(node)


def _as_host_has_it(node: Apply, value: Any) -> Any:
    """Return what is known after all as an array, for steps that are computed as ever."""
    return value if is_open(value) else np.asarray(value, node.outputs[0].type.dtype)


def stays(node: Apply) -> Untraceable:
    """Return the error of a step that cannot be left on the host."""
    return Untraceable(
        f"{node.op} stays on the host, where it needs values of the call. Let it be lifted, or compute it ahead of the "
        "call and pass the result as an argument"
    )


def _same(node: Apply, value: Any, *_: Any) -> Any:
    return value


def _checked(node: Apply, value: Any, *wanted: Any) -> Any:
    """Have the shape be what it is said to be."""
    if isinstance(node.op, ops.SpecifyShape):
        lengths = lengths_of(wanted[0]) if not isinstance(wanted[0], DeferredArray) else ()
        fits = len(lengths) == len(value.shape) and all(map(operator.eq, lengths, value.shape))
    else:
        fits = all(value.shape[axis] == 1 for axis, one in node.op.axis.items() if one)
    if not fits:
        raise stays(node)
    return value


def _assert(node: Apply, value: Any, *conditions: Any) -> Any:
    for condition in conditions:
        if isinstance(condition, DeferredArray) or not condition:
            raise stays(node)
    return value


def _shape(node: Apply, value: Any) -> SymIntVector:
    return SymIntVector(value.shape)


def _length(node: Apply, value: Any) -> Any:
    return value.shape[node.op.i]


def _vector(node: Apply, *values: Any) -> SymIntVector:
    if any(isinstance(value, DeferredArray) for value in values) or "int" not in node.outputs[0].type.dtype:
        raise stays(node)
    return SymIntVector(map(as_int, values))


def _joined(node: Apply, axis: Any, *values: Any) -> SymIntVector:
    if any(isinstance(value, DeferredArray) for value in values) or node.outputs[0].type.ndim != 1:
        raise stays(node)
    return SymIntVector(length for value in values for length in lengths_of(value))


def _part(node: Apply, value: Any, *index: Any) -> Any:
    if isinstance(value, DeferredArray) or any(isinstance(x, DeferredArray) for x in index):
        raise stays(node)
    entries = ops.get_idx_list([value, *index], node.op.idx_list)
    if not isinstance(value, SymIntVector):
        return np.asarray(value)[tuple(map(_plain_index, entries))]
    (entry,) = entries
    if not isinstance(entry, slice):
        return value[int(entry)]
    start, count, step = part_of(len(value), entry)
    return SymIntVector.of((value[start + i * step] for i in range(int(count))), node.outputs[0].type.dtype)


def _plain_index(entry: Any) -> int | slice:
    """Return an index as numbers, which the call then has to repeat: an array that is known has no open lengths."""
    if isinstance(entry, slice):
        return slice(*(None if bound is None else int(bound) for bound in (entry.start, entry.stop, entry.step)))
    return int(entry)


def _turned(node: Apply, value: Any) -> Any:
    """Give one number other axes, all of length 1."""
    order = node.op.new_order
    if isinstance(value, DeferredArray):
        source, shape = value.source, tuple(1 if axis == "x" else value.shape[axis] for axis in order)
        if source[0] != "value":
            raise stays(node)
        return DeferredArray(shape, value.dtype, source)
    if isinstance(value, SymIntVector) and order == (0,):
        return value
    if not isinstance(value, SymInt):
        raise stays(node)
    if not order:
        return value
    return DeferredArray((1,) * len(order), np.dtype(node.outputs[0].type.dtype), ("value", value))


def _reshaped(node: Apply, value: Any, wanted: Any) -> Any:
    """Give an argument, or what is made of it, another shape."""
    if not isinstance(value, DeferredArray) or value.source[0] not in ("argument", "table", "shaped"):
        raise stays(node)
    shape = full_shape(value.shape, lengths_of(wanted), node.op.ndim)
    return DeferredArray(shape, value.dtype, ("shaped", value))


def _product(node: Apply, value: Any) -> Any:
    if not isinstance(value, SymIntVector) or type(node.op.scalar_op) not in (scalars.Add, scalars.Mul):
        raise stays(node)
    dtype = node.outputs[0].type.dtype
    result = value[0]
    for number in value[1:]:
        result = scalar(node.op.scalar_op, [value.dtype.name] * 2, [result, number], dtype)
        if result is None:
            raise stays(node)
    return _cast(result, dtype)


def _elementwise(node: Apply, *values: Any) -> Any:
    if len(node.outputs) > 1:
        raise stays(node)
    if node.outputs[0].type.ndim == 1 and any(isinstance(value, SymIntVector) for value in values):
        return _of_vectors(node, values)
    given = [_one_number(node, value) for value in values]
    result = _of_numbers(node, given)
    ndim = node.outputs[0].type.ndim
    if not isinstance(result, SymInt):
        return np.full((1,) * ndim, result, node.outputs[0].type.dtype)
    if not ndim:
        return result
    return DeferredArray((1,) * ndim, np.dtype(node.outputs[0].type.dtype), ("value", result))


def _of_vectors(node: Apply, values: Sequence[Any]) -> SymIntVector:
    lengths = {len(value) for value in values if isinstance(value, SymIntVector)}
    if len(lengths) > 1:
        raise stays(node)
    (length,) = lengths
    columns = []
    for value in values:
        single = not isinstance(value, SymIntVector) and np.size(value) != length
        columns.append([_one_number(node, value)] * length if single else list(value))
    return SymIntVector.of((_of_numbers(node, row) for row in zip(*columns, strict=True)), node.outputs[0].type.dtype)


def _of_numbers(node: Apply, values: Sequence[Any]) -> Any:
    dtypes = [var.type.dtype for var in node.inputs]
    result = scalar(node.op.scalar_op, dtypes, values, node.outputs[0].type.dtype)
    if result is None:
        raise stays(node)
    return result


def _one_number(node: Apply, value: Any) -> Any:
    """Return the one number that a value is."""
    if isinstance(value, DeferredArray) and value.source[0] == "value":
        return value.source[1]
    if isinstance(value, DeferredArray | SymIntVector):
        raise stays(node)
    if isinstance(value, SymInt):
        return value
    if np.size(value) != 1:
        raise stays(node)
    return np.asarray(value).reshape(())[()]


def scalar(op: Any, dtypes: Sequence[str], values: Sequence[Any], dtype: str) -> Any:
    """Return what a scalar op gives for numbers of which some are sizes; None if that is not known."""
    if isinstance(op, scalars.Composite):
        return _composite(op, values)
    if not any(isinstance(value, SymInt) for value in values):
        return np.asarray(op.impl(*values)).astype(dtype)[()]
    kind = type(op)
    if kind in _COMPARISONS:
        return np.bool_(_COMPARISONS[kind](*values))
    if kind is scalars.Switch:
        chosen = values[1] if values[0] else values[2]
        return _cast(chosen, dtype)
    if kind is scalars.Identity:
        return values[0]
    if kind is scalars.Second:
        return _cast(values[1], dtype)
    if kind is scalars.Cast:
        return _cast(values[0], dtype)
    if "int" in dtype and all("int" in given or given == "bool" for given in dtypes):
        return _ARITHMETIC[kind](*map(as_int, values)) if kind in _ARITHMETIC else None
    if kind in (scalars.Add, scalars.Mul):
        name = "add" if kind is scalars.Add else "mul"
        return _folded(lambda one, other: _host_scalar(name, dtype, one, other), values)
    return _host_scalar(_HOST_SCALAR_OPS[kind], dtype, *values) if kind in _HOST_SCALAR_OPS else None


def _composite(op: Any, values: Sequence[Any]) -> Any:
    """Go through the scalar ops of which one is made."""
    known = dict(zip(op.inputs, values, strict=True))
    for var in _in_order(op.outputs[0]):
        node = var.owner
        given = [known.get(x, getattr(x, "data", None)) for x in node.inputs]
        known[var] = scalar(node.op, [x.type.dtype for x in node.inputs], given, var.type.dtype)
        if known[var] is None:
            return None
    return known[op.outputs[0]]


def _in_order(output: Any) -> list[Any]:
    """Return the variables that an output is computed by, each behind those that it needs."""
    found: dict[Any, None] = {}

    def visit(var: Any) -> None:
        if var.owner is None or var in found:
            return
        for other in var.owner.inputs:
            visit(other)
        found[var] = None

    visit(output)
    return list(found)


def _cast(value: Any, dtype: str) -> Any:
    if not isinstance(value, SymInt):
        return np.asarray(value).astype(dtype)[()]
    if isinstance(value.value, int) and "int" in dtype:
        return value
    return _host_scalar("cast", dtype, value)


def _host_scalar(name: str, dtype: str, *values: Any) -> Any:
    sizes = [value for value in values if isinstance(value, SymInt)]
    result = host_scalar(name, dtype, *map(example_value, values))
    if not sizes:
        return result
    if result.dtype.kind in "iub":
        result = int(result)
    return sizes[0].rules.derived(result, name, dtype, *values)


def _folded(function: Callable[[Any, Any], Any], values: Sequence[Any]) -> Any:
    result = values[0]
    for value in values[1:]:
        result = function(result, value)
    return result


_STEPS: tuple[tuple[Any, Callable[..., Any]], ...] = (
    (ops.Shape, _shape),
    (ops.Shape_i, _length),
    ((DeepCopyOp, ViewOp, ops.ScalarFromTensor, ops.TensorFromScalar), _same),
    ((ops.Rebroadcast, ops.SpecifyShape), _checked),
    (ops.Assert, _assert),
    (ops.MakeVector, _vector),
    (ops.Join, _joined),
    (ops.Subtensor, _part),
    (ops.DimShuffle, _turned),
    (ops.Reshape, _reshaped),
    (ops.CAReduce, _product),
    (ops.Elemwise, _elementwise),
)
