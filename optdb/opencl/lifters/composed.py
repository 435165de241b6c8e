"""Lifters of ops that become several ops of the device, and need none of their own."""

from __future__ import annotations

from typing import Any

import numpy as np

from optdb.host import ops as host
from optdb.host.graph import Op
from optdb.host.scalars import get_scalar_type, sub
from optdb.host.variables import constant_slice
from optdb.opencl.lifters.support import Inputs, lifts, real_arrays, with_pattern
from optdb.opencl.ops.advanced import OpenCLAdvancedSubtensor
from optdb.opencl.ops.counterpart import to_host_variable
from optdb.opencl.ops.elemwise import OpenCLElemwise, cast
from optdb.opencl.ops.memory import OpenCLAlloc
from optdb.opencl.ops.parts import OpenCLJoin
from optdb.opencl.ops.views import OpenCLDimShuffle, OpenCLReshape, OpenCLSubtensor
from optdb.opencl.transfers import as_opencl_variable

_PLACE = get_scalar_type("int64")


@lifts([host.RepeatOp], 60)
def lift_repeat(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift an array with each element so many times: which ones is worked out on the host, and they are taken."""
    x, repeats = as_opencl_variable(inputs[0], context_name), to_host_variable(inputs[1])
    axis = op.axis
    if axis is None:
        x, axis = OpenCLReshape(1)(x, [-1]), 0
    axis += x.type.ndim * (axis < 0)
    numbers = host.ARange("int64")(0, host.Shape_i(axis)(x), 1)
    named = host.RepeatOp(axis=0)(numbers, repeats)
    before = [constant_slice(slice(None)) for _ in range(axis)]
    return with_pattern(OpenCLAdvancedSubtensor()(x, *before, named), outputs[0])


def _vector_unsupported_reason(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    dtype = outputs[0].type.dtype
    return None if dtype.startswith("float") else f"vectors of {dtype} are sizes and indexes: they are wanted there"


@lifts([host.MakeVector], 61, _vector_unsupported_reason)
def lift_make_vector(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift a vector of numbers, some of which are on the device."""
    numbers = [as_opencl_variable(x, context_name) for x in inputs]
    return with_pattern(OpenCLJoin()(0, *[OpenCLDimShuffle((), ("x",))(x) for x in numbers]), outputs[0])


def _difference_unsupported_reason(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    kind = inputs[0].type
    if kind.dtype == "bool" or kind.dtype.startswith("complex"):
        return f"no differences of {kind.dtype} on the device"
    if not -kind.ndim <= op.axis < kind.ndim or op.n < 0:
        return f"no differences {op.n} times along axis {op.axis} of {kind.ndim}"
    return "the axis is known to have length 1" if kind.broadcastable[op.axis] else None


@lifts([host.DiffOp], 62, _difference_unsupported_reason)
def lift_diff(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift differences of neighbours: those from the second on, less those up to the last."""
    x = as_opencl_variable(inputs[0], context_name)
    axis = op.axis % x.type.ndim
    for _ in range(op.n):
        later = OpenCLSubtensor([*[slice(None)] * axis, slice(_PLACE, None)])(x, np.int64(1))
        earlier = OpenCLSubtensor([*[slice(None)] * axis, slice(None, _PLACE)])(x, np.int64(-1))
        x = OpenCLElemwise(sub)(later, earlier)
    return x


@lifts([host.Prepend_scalar_constant_to_each_row, host.Prepend_scalar_to_each_row], 63, real_arrays)
def lift_prepend(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift a number in front of each row of a matrix."""
    *value, matrix = inputs
    value, matrix = (as_opencl_variable(x, context_name) for x in (value[0] if value else op.val.data, matrix))
    column = OpenCLAlloc(context_name)(cast(value, matrix.type.dtype), host.Shape_i(0)(matrix), 1)
    return with_pattern(OpenCLJoin()(1, column, matrix), outputs[0])
