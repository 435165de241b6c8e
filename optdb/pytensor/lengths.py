"""Integers that depend on lengths, while a function is exported: the ops that compute shapes and bounds of slices.

Without `may_guard`, functions raise `NotFollowed` instead of recording a guard.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.scalar.basic import ScalarOp
from pytensor.tensor.basic import Join, MakeVector
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.subtensor import Subtensor, unflatten_index_variables

from optdb.codegen.scalars.program import Number, Scalar
from optdb.codegen.scalars.types import NoCode
from optdb.device.export.numbers import NotFollowed, needs_guard, number_of
from optdb.device.expressions import cast
from optdb.device.tensors import Constant, Lengths, Tensor, length_tensor
from optdb.numpy_types import HostArray
from optdb.pytensor.dispatch import of_lengths
from optdb.pytensor.elemwise import program_of

#: A number with its dtype.
_Typed = tuple[Any, str]


def _numbers(x: Constant | Lengths) -> HostArray:
    """Return an array of Python objects: integers, some of which are symbolic."""
    return x.value.astype(object) if isinstance(x, Constant) else _objects(x.numbers, x.shape)


def _objects(numbers: Sequence[Any], shape: Sequence[int]) -> HostArray:
    array = np.empty(len(numbers), object)
    for position, number in enumerate(numbers):  # assigning a sequence would convert symbolic numbers
        array[position] = number
    return array.reshape(shape)


def _tensor(numbers: HostArray, dtype: str) -> Tensor | None:
    if dtype == "bool":
        return Constant(numbers.astype(bool))
    return cast(length_tensor(numbers.reshape(-1), numbers.shape), dtype) if "int" in dtype else None


def _applied(op: ScalarOp, operands: Sequence[_Typed], may_guard: bool) -> Any:
    """Return the result of a scalar op on numbers; raise `NotFollowed` if no rule applies."""

    def step(scalar: Scalar, values: Sequence[_Typed]) -> _Typed:
        numbers, dtypes = zip(*values, strict=True)
        if not may_guard and needs_guard(scalar.name, scalar.dtype, numbers):
            raise NotFollowed
        return number_of(scalar.name, scalar.dtype, dtypes, numbers), scalar.dtype

    def constant(number: Number) -> _Typed:
        return number.value.item(), number.dtype

    try:
        program = program_of(op, [dtype for _, dtype in operands])
    except NoCode:
        raise NotFollowed from None
    (result, _), *_ = program.evaluate(operands, step, constant)
    return result


@of_lengths.register(ScalarOp)
@of_lengths.register(Elemwise)
def _elementwise(op: Any, node: Apply, inputs: Sequence[Constant | Lengths], may_guard: bool) -> Tensor | None:
    arrays = np.broadcast_arrays(*map(_numbers, inputs))
    dtypes, scalar_op = [x.dtype for x in inputs], getattr(op, "scalar_op", op)
    columns = zip(*[x.reshape(-1) for x in arrays], strict=True)
    results = [_applied(scalar_op, list(zip(numbers, dtypes, strict=True)), may_guard) for numbers in columns]
    return _tensor(_objects(results, arrays[0].shape), node.outputs[0].type.dtype)


@of_lengths.register(CAReduce)
def _folded(op: CAReduce, node: Apply, inputs: Sequence[Constant | Lengths], may_guard: bool) -> Tensor | None:
    (x,) = inputs
    dtype = node.outputs[0].type.dtype
    if node.outputs[0].type.ndim or not x.size:
        return None

    def combined(one: Any, other: Any) -> Any:
        return _applied(op.scalar_op, [(one, dtype), (other, dtype)], may_guard)

    return _tensor(_objects([functools.reduce(combined, _numbers(x).reshape(-1))], ()), dtype)


@of_lengths.register(DimShuffle)
def _dimshuffle(op: DimShuffle, node: Apply, inputs: Sequence[Constant | Lengths], may_guard: bool) -> Tensor | None:
    array = _numbers(inputs[0])
    kept = [axis for axis in op.new_order if axis != "x"]
    dropped = tuple(axis for axis in range(array.ndim) if axis not in kept)
    array = array.transpose([*dropped, *kept]).squeeze(tuple(range(len(dropped))))
    new = [number for number, axis in enumerate(op.new_order) if axis == "x"]
    return _tensor(np.expand_dims(array, new), inputs[0].dtype)


@of_lengths.register(MakeVector)
def _make_vector(op: MakeVector, node: Apply, inputs: Sequence[Constant | Lengths], may_guard: bool) -> Tensor | None:
    return _tensor(np.concatenate([_numbers(x).reshape(1) for x in inputs]), node.outputs[0].type.dtype)


@of_lengths.register(Join)
def _join(op: Join, node: Apply, inputs: Sequence[Constant | Lengths], may_guard: bool) -> Tensor | None:
    return _tensor(np.concatenate(list(map(_numbers, inputs)), op.axis), node.outputs[0].type.dtype)


@of_lengths.register(Subtensor)
def _subtensor(op: Subtensor, node: Apply, inputs: Sequence[Constant | Lengths], may_guard: bool) -> Tensor | None:
    known = dict(zip(node.inputs, inputs, strict=True))

    def plain(entry: Any) -> Any:
        if isinstance(entry, slice):
            return slice(plain(entry.start), plain(entry.stop), plain(entry.step))
        return int(_numbers(known[entry]).item()) if isinstance(entry, Variable) else entry

    if not may_guard and any(isinstance(x, Lengths) for x in inputs[1:]):
        raise NotFollowed
    entries = unflatten_index_variables(node.inputs[1:], op.idx_list)
    # The last entry prevents NumPy from returning a number instead of an array.
    return _tensor(_numbers(inputs[0])[(*map(plain, entries), ...)], inputs[0].dtype)
