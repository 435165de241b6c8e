"""Faster inference of PyTensor's constant values and static shapes.

Inferring a constant value or a static shape walks a graph or rewrites a copy of it, and nearly always finds nothing.
This module recognizes the common cases in which the value is unknown, without such a search.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from pytensor.graph.basic import Constant, Variable
from pytensor.scalar import basic as scalar
from pytensor.tensor import basic as tensor
from pytensor.tensor.basic import NotScalarConstantError
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorConstantSignature, TensorVariable

from optdb.host.api.patching import Wrapper

T = TypeVar("T")

_MOST_OPS = 100_000


class CachedByOp(Generic[T]):
    """A function of ops whose values are cached by the ids of the ops, because hashing ops is slow."""

    __slots__ = ("_compute", "known")

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        #: Maps an op's id to the op and its value. The map keeps the ops alive, so that ids are not reused.
        self.known: dict[int, tuple[Any, T]] = {}

    def __call__(self, op: Any) -> T:
        """Return the function's value for an op."""
        known = self.known
        entry = known.get(id(op))
        if entry is None:
            if len(known) > _MOST_OPS:
                known.clear()
            entry = known[id(op)] = (op, self._compute(op))
        return entry[1]


_DEPTH = 10
#: The maximum number of operands that are examined without a search. Larger numbers save no time: products have few
#: operands, and most long sums begin with a product.
_FEW_OPERANDS = 8
_OPAQUE, _COMPUTED, _SECOND, _FIRST, _UNKNOWN = range(5)


@functools.cache
def _kind_of_scalar(op_class: type) -> int:
    if issubclass(op_class, scalar.Second):
        return _SECOND
    return _COMPUTED if issubclass(op_class, tensor._scalar_constant_value_elemwise_ops) else _OPAQUE


@functools.cache
def _kind_of_class(op_class: type) -> int:
    if issubclass(op_class, (DimShuffle, tensor.Alloc)):
        return _FIRST
    return _OPAQUE if issubclass(op_class, (Dot, CAReduce)) else _UNKNOWN


@CachedByOp
def _kind_of(op: Any) -> int:
    return _kind_of_scalar(op.scalar_op.__class__) if type(op) is Elemwise else _kind_of_class(op.__class__)


@functools.cache
def _is_constant_class(variable_class: type) -> bool:
    return issubclass(variable_class, Constant)


def may_be_constant(var: Variable) -> bool:
    """Return False only if ``get_underlying_scalar_constant_value`` cannot find a value."""
    return _may_be_constant(var, _DEPTH)


def _may_be_constant(var: Variable, depth: int) -> bool:
    """Return False only if PyTensor cannot find a value for `var` when it searches at most `depth` nodes deep."""
    node = var.owner
    if node is None:
        return _is_constant_class(var.__class__)
    if depth <= 0:
        return False
    known = _kind_of.known  # read directly, because calling `_kind_of` takes longer than the rest of the function
    entry = known.get(id(node.op))
    kind = _kind_of(node.op) if entry is None else entry[1]
    if kind == _COMPUTED:
        inputs = node.inputs
        for operand in inputs[:_FEW_OPERANDS]:  # first examine the operands that need no search
            owner = operand.owner
            if owner is not None:
                entry = known.get(id(owner.op))
                if (_kind_of(owner.op) if entry is None else entry[1]) == _OPAQUE:
                    return False
            elif not _is_constant_class(operand.__class__):
                return False
        for operand in inputs:  # noqa: SIM110  a loop takes half as long as all() with a generator
            if not _may_be_constant(operand, depth - 1):
                return False
        return True
    if kind == _FIRST:
        return _may_be_constant(node.inputs[0], depth - 1)
    if kind == _SECOND:
        return _may_be_constant(node.inputs[1], depth - 1)
    return kind == _UNKNOWN


def _where_a_value_may_be(find: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(find)
    def find_value(
        orig_v: Any, elemwise: bool = True, only_process_constants: bool = False, max_recur: int = _DEPTH
    ) -> Any:
        if type(orig_v) is TensorVariable and (only_process_constants or not _may_be_constant(orig_v, max_recur)):
            raise NotScalarConstantError
        return find(orig_v, elemwise, only_process_constants, max_recur)

    return find_value


def _is_one_number(data: Any) -> bool:
    """Return whether an array has one element, which is finite and converts exactly to a Python number."""
    if data.size != 1 or data.dtype.kind not in "biuf" or data.dtype.itemsize > _LARGEST_NUMBER:
        return False
    return math.isfinite(data.item())


#: The largest item size, in bytes, of dtypes with an exact conversion to Python numbers.
_LARGEST_NUMBER = 8


def _of_one_number(sum_of_data: property) -> property:
    def sum_once(self: TensorConstantSignature) -> Any:
        if not hasattr(self, "_sum") and _is_one_number(self[1]):
            self._sum = self[1].item()
        return sum_of_data.__get__(self)

    return property(sum_once)


def _comparing_numbers(equals: Callable[..., bool]) -> Callable[..., bool]:
    @functools.wraps(equals)
    def compare(self: TensorConstantSignature, other: Any) -> bool:
        if (
            type(self) is type(other) is TensorConstantSignature
            and _is_one_number(self[1])
            and _is_one_number(other[1])
        ):
            return self[1].item() == other[1].item() and self[1].shape == other[1].shape and self[0] == other[0]
        return equals(self, other)

    return compare


def _where_a_length_may_be(infer: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(infer)
    def infer_static_shape(shape: Any) -> Any:
        lengths = list(shape) if isinstance(shape, (list, tuple)) else None
        if lengths is None or not all(isinstance(length, (int, Variable)) for length in lengths):
            return infer(shape)
        known = [_known_length(length) for length in lengths]
        if _UNDECIDED in known:
            return infer(shape)
        return [tensor.as_tensor_variable(length, ndim=0) for length in lengths], tuple(known)

    return infer_static_shape


#: Means that PyTensor must be asked for the length, because this module cannot infer it.
_UNDECIDED = object()


def _known_length(length: Any) -> Any:
    """Return the value of an axis length, None if PyTensor cannot infer the value, or `_UNDECIDED`."""
    if isinstance(length, int):
        return length
    if isinstance(length, Constant):
        return (
            length.data.item()
            if length.type.ndim == 0 and length.type.dtype.startswith(("int", "uint"))
            else _UNDECIDED
        )
    if length.type.ndim or length.type.dtype != "int64" or length.owner is None:
        return _UNDECIDED
    axis = _axis_read(length)
    return _UNDECIDED if axis is None else _LengthsOfTypes().of(*axis)


def _axis_read(length: Variable) -> tuple[Variable, int] | None:
    node = length.owner
    if type(node.op) is Shape_i:
        return node.inputs[0], node.op.i
    if type(node.op) is not Subtensor or len(node.inputs) != 2 or len(node.op.idx_list) != 1:
        return None
    shape, index = node.inputs
    if shape.owner is None or type(shape.owner.op) is not Shape or not isinstance(index, Constant):
        return None
    return shape.owner.inputs[0], int(index.data)


class _LengthsOfTypes:
    """Infers the length of an axis from the static types of a variable and of operands that share the axis."""

    def __init__(self) -> None:
        self._found: dict[tuple[Variable, int], Any] = {}

    def of(self, var: Variable, axis: int) -> Any:
        """Return a length, None if it is unknown, or `_UNDECIDED`."""
        if not isinstance(var.type, TensorType) or axis >= var.type.ndim or -axis > var.type.ndim:
            return _UNDECIDED
        start = (var, axis % var.type.ndim)
        todo = [start]
        found = self._found
        if var.type.shape[start[1]] is not None:
            return var.type.shape[start[1]]
        while todo:
            at = todo.pop()
            if at in found:
                continue
            found[at] = None
            if at[0].type.shape[at[1]] is not None:
                # An operand's length is known, so PyTensor may be able to infer the result's length.
                return _UNDECIDED
            operands = _axes_of_operands(*at)
            if operands is None:
                return _UNDECIDED
            todo += operands
        return None


def _axes_of_operands(var: Variable, axis: int) -> list[tuple[Variable, int]] | None:
    """Return the operands, each with an axis, that determine the length of a result's axis; None for unknown ops."""
    node = var.owner
    if node is None:
        return []
    op = node.op
    if type(op) is Elemwise:
        return [(inp, axis) for inp in node.inputs if not inp.type.broadcastable[axis]]
    if type(op) is Dot:
        return [(node.inputs[axis], axis)]
    if type(op) is DimShuffle:
        source = op.new_order[axis]
        return None if source == "x" else [(node.inputs[0], source)]
    if isinstance(op, CAReduce) and op.axis is not None:
        kept = [i for i in range(node.inputs[0].type.ndim) if i not in op.axis]
        return [(node.inputs[0], kept[axis])]
    if type(op) is Subtensor and not any(isinstance(index, slice) for index in op.idx_list):
        return [(node.inputs[0], axis + len(op.idx_list))]
    if type(op) is tensor.Alloc:
        read = _axis_read(node.inputs[1 + axis]) if node.inputs[1 + axis].owner is not None else None
        return None if read is None or read[1] < 0 else [read]
    return None


PATCHES = [
    Wrapper(
        tensor,
        "_get_underlying_scalar_constant_value",
        _where_a_value_may_be,
        "graphs that cannot be constant are not traversed",
    ),
    Wrapper(TensorConstantSignature, "sum", _of_one_number, "one number is its own sum"),
    Wrapper(TensorConstantSignature, "__eq__", _comparing_numbers, "one number needs no mask of those that are nan"),
    Wrapper(tensor, "infer_static_shape", _where_a_length_may_be, "lengths that no type declares are not inferred"),
]
