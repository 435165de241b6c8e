"""Lifters for elementwise ops, reductions, and ops that create arrays, view them, or are replaced with several ops.

Importing this module also registers the lifters of the counterparts in ``optdb.opencl.ops``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

import numpy as np

from optdb.host.api import ops as host
from optdb.host.api.graph import Op, PureOp
from optdb.host.api.scalars import get_scalar_type, sub
from optdb.host.api.variables import constant_slice
from optdb.host.theano.functions.declared import DeclaredLengths
from optdb.opencl.lifting import (
    Inputs,
    lifts,
    node_like,
    real_arrays,
    register_counterparts,
    scalar_unsupported_reason,
    unsupported_reason,
    with_pattern,
)
from optdb.opencl.ops import axes, batch_norm, blas, conv, linalg, softmax  # noqa: F401  which register lifters
from optdb.opencl.ops.contiguous import opencl_contiguous
from optdb.opencl.ops.counterpart_base import to_host_variable
from optdb.opencl.ops.elemwise import OpenCLElemwise, cast
from optdb.opencl.ops.memory import OpenCLAlloc, OpenCLAllocDiag, OpenCLAllocEmpty, OpenCLARange, OpenCLEye, OpenCLTri
from optdb.opencl.ops.parts import OpenCLAdvancedSubtensor, OpenCLJoin
from optdb.opencl.ops.random import OpenCLMRGUniform
from optdb.opencl.ops.reduce import OpenCLCAReduce
from optdb.opencl.ops.views import OpenCLAssert, OpenCLDimShuffle, OpenCLReshape, OpenCLSubtensor
from optdb.opencl.scalar_programs import folding_unsupported_reason
from optdb.opencl.transfers import as_opencl_variable
from optdb.opencl.type import OpenCLArrayType

_PLACE = get_scalar_type("int64")

register_counterparts("lift_reshape", 21, [host.Reshape])
register_counterparts("lift_subtensor", 22, [host.Subtensor])
register_counterparts("lift_flatten", 25, [host.Flatten])
register_counterparts("lift_print", 28, [host.Print])


@functools.lru_cache(maxsize=4096)
def _dimshuffle(pattern: tuple[bool, ...], order: tuple[int | str, ...]) -> OpenCLDimShuffle:
    return OpenCLDimShuffle(pattern, order)


@lifts([host.DimShuffle], 20)
def lift_dimshuffle(op: host.DimShuffle, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift a permutation of axes."""
    return node_like(_dimshuffle(op.input_broadcastable, op.new_order), context_name, inputs, outputs)


@lifts((host.Rebroadcast, host.SpecifyShape, DeclaredLengths, host.Shape, host.Shape_i), 23)
def lift_same_op(op: PureOp, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Apply a host op to its input on the device; the op returns the input itself or the input's shape."""
    return op(as_opencl_variable(inputs[0], context_name), *inputs[1:])


@lifts([host.Assert], 27)
def lift_assert(op: host.Assert, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift an assertion whose array is on the device; an array on the host stays there."""
    if not isinstance(inputs[0].type, OpenCLArrayType):
        return None
    return OpenCLAssert(op.msg)(*inputs)


@lifts([host.Alloc], 30)
def lift_alloc(op: PureOp, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift the creation of an array filled with a value."""
    return with_pattern(OpenCLAlloc(context_name)(*inputs), outputs[0])


#: Ops that create an array of a given dtype from numbers.
_OfNumbers: TypeAlias = "host.AllocEmpty | host.Eye | host.ARange | host.Tri"

#: Maps each op class to a function that takes a dtype and a context name and returns the op's counterpart.
_MADE_OF_NUMBERS: dict[type[_OfNumbers], Callable[[str, str | None], Op]] = {
    host.AllocEmpty: OpenCLAllocEmpty,
    host.Eye: OpenCLEye,
    host.ARange: OpenCLARange,
    host.Tri: OpenCLTri,
}


def _maker_unsupported_reason(op: PureOp, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    of_any_dtype = isinstance(op, (host.AllocEmpty, host.Eye))
    return None if of_any_dtype else real_arrays(op, context_name, inputs, outputs)


@lifts(list(_MADE_OF_NUMBERS), 31, _maker_unsupported_reason)
def lift_maker(op: _OfNumbers, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift an op that creates an array from numbers, which stay on the host."""
    return with_pattern(_MADE_OF_NUMBERS[type(op)](op.dtype, context_name)(*inputs), outputs[0])


@lifts((host.AllocDiag, host.VectorAllocDiag), 35)
def lift_alloc_diag(op: PureOp, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift the creation of an array that is zero except along a diagonal."""
    where = (op.offset, op.axis1, op.axis2) if isinstance(op, host.AllocDiag) else ()
    return OpenCLAllocDiag(*where)(as_opencl_variable(inputs[0], context_name))


@lifts([host.CpuContiguous], 38)
def lift_contiguous(op: PureOp, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift an op that makes its input C-contiguous."""
    return opencl_contiguous(as_opencl_variable(inputs[0], context_name))


@lifts([host.RepeatOp], 60)
def lift_repeat(op: host.RepeatOp, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift the repetition of elements: the host computes indices, and the device takes elements by index."""
    x, repeats = as_opencl_variable(inputs[0], context_name), to_host_variable(inputs[1])
    axis = op.axis
    if axis is None:
        x, axis = OpenCLReshape(1)(x, [-1]), 0
    axis += x.type.ndim * (axis < 0)
    numbers = host.ARange("int64")(0, host.Shape_i(axis)(x), 1)
    named = host.RepeatOp(axis=0)(numbers, repeats)
    before = [constant_slice(slice(None)) for _ in range(axis)]
    return with_pattern(OpenCLAdvancedSubtensor()(x, *before, named), outputs[0])


def _vector_unsupported_reason(op: PureOp, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    dtype = outputs[0].type.dtype
    return None if dtype.startswith("float") else f"vectors of {dtype} are sizes and indexes, which the host needs"


@lifts([host.MakeVector], 61, _vector_unsupported_reason)
def lift_make_vector(op: PureOp, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift the creation of a vector from numbers, some of which are on the device."""
    numbers = [as_opencl_variable(x, context_name) for x in inputs]
    return with_pattern(OpenCLJoin()(0, *[OpenCLDimShuffle((), ("x",))(x) for x in numbers]), outputs[0])


def _difference_unsupported_reason(
    op: host.DiffOp, context_name: str | None, inputs: Inputs, outputs: Inputs
) -> str | None:
    kind = inputs[0].type
    if kind.dtype == "bool" or kind.dtype.startswith("complex"):
        return f"no differences of {kind.dtype} on the device"
    if not -kind.ndim <= op.axis < kind.ndim or op.n < 0:
        return f"no differences of order {op.n} along axis {op.axis} of {kind.ndim} axes"
    return "the axis is known to have length 1" if kind.broadcastable[op.axis] else None


@lifts([host.DiffOp], 62, _difference_unsupported_reason)
def lift_diff(op: host.DiffOp, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift differences between neighbours: all elements but the first, minus all elements but the last."""
    x = as_opencl_variable(inputs[0], context_name)
    axis = op.axis % x.type.ndim
    for _ in range(op.n):
        later = OpenCLSubtensor([*[slice(None)] * axis, slice(_PLACE, None)])(x, np.int64(1))
        earlier = OpenCLSubtensor([*[slice(None)] * axis, slice(None, _PLACE)])(x, np.int64(-1))
        x = OpenCLElemwise(sub)(later, earlier)
    return x


@lifts((host.Prepend_scalar_constant_to_each_row, host.Prepend_scalar_to_each_row), 63, real_arrays)
def lift_prepend(op: PureOp, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift an op that prepends a number to each row of a matrix."""
    value = op.val.data if isinstance(op, host.Prepend_scalar_constant_to_each_row) else inputs[0]
    value, matrix = (as_opencl_variable(x, context_name) for x in (value, inputs[-1]))
    column = OpenCLAlloc(context_name)(cast(value, matrix.type.dtype), host.Shape_i(0)(matrix), 1)
    return with_pattern(OpenCLJoin()(1, column, matrix), outputs[0])


@lifts([host.mrg_uniform], 80)
def lift_mrg_uniform(op: host.mrg_uniform, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift the generation of uniform random numbers and the generator's state; the shape stays on the host."""
    sample = outputs[1].type
    lifted = OpenCLMRGUniform(OpenCLArrayType(sample.dtype, sample.broadcastable, context_name), op.inplace)
    return lifted(*inputs, return_list=True)


def _python_generator(op: PureOp, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str:
    return "NumPy's RandomState draws on the host; MRG_RandomStreams draws on the device"


@lifts([host.RandomFunction], 83, _python_generator)
def keep_random_function(op: PureOp, context_name: str | None, inputs: Inputs, outputs: Inputs) -> None:
    """Lift nothing; this lifter lets reports say why random numbers from NumPy's generator stay on the host."""


#: Maps the ``id`` of a scalar op to the device op. Scalar ops cannot be the keys, since scalar ops that compare equal
#: may differ.
_ops: WeakValueDictionary[int, OpenCLElemwise] = WeakValueDictionary()


def _elemwise(scalar_op: Any) -> OpenCLElemwise:
    """Return a scalar op's device op: always the same object, so that it is fast to compare and hash."""
    op = _ops.get(id(scalar_op))
    # Because of the op cache, `op` may hold a different but equal scalar op; the id may also have been reused.
    if op is None or op.scalar_op is not scalar_op:
        op = _ops[id(scalar_op)] = OpenCLElemwise(scalar_op)
    return op


def _elemwise_unsupported_reason(
    op: host.Elemwise, context_name: str | None, inputs: Inputs, outputs: Inputs
) -> str | None:
    return scalar_unsupported_reason(op.scalar_op, context_name, [x.type.dtype for x in inputs])


@lifts([host.Elemwise], 10, _elemwise_unsupported_reason)
def lift_elemwise(op: host.Elemwise, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift a scalar op that is applied to all elements of arrays."""
    return node_like(_elemwise(op.scalar_op), context_name, inputs, outputs)


_REDUCTIONS = (host.CAReduce, host.CAReduceDtype, host.Sum, host.Prod, host.ProdWithoutZeros, host.All, host.Any)


def _acc_dtype(op: host.CAReduce, inputs: Inputs, outputs: Inputs) -> str:
    """Return the accumulator dtype that the host would use."""
    (x,), (out,) = inputs, outputs
    if isinstance(op, host.CAReduceDtype):
        return op._acc_dtype(x.type.dtype)
    return out.type.dtype


def _reduction_unsupported_reason(
    op: host.CAReduce, context_name: str | None, inputs: Inputs, outputs: Inputs
) -> str | None:
    (x,), (out,) = inputs, outputs
    acc_dtype = _acc_dtype(op, inputs, outputs)
    reason = folding_unsupported_reason(op.scalar_op, x.type.dtype, acc_dtype)
    return reason or unsupported_reason(context_name, [x.type.dtype, acc_dtype, out.type.dtype])


@lifts(_REDUCTIONS, 11, _reduction_unsupported_reason)
def lift_reduction(op: host.CAReduce, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift a reduction, which folds a scalar op over axes."""
    (out,) = outputs
    lifted = OpenCLCAReduce(op.scalar_op, op.axis, out.type.dtype, _acc_dtype(op, inputs, outputs))
    return node_like(lifted, context_name, inputs, outputs)
