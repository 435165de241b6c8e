"""Lifters of ops that look at an array in another way, or ask for its shape."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from optdb.host import ops as host
from optdb.host.graph import Op, Variable
from optdb.lifters.lifter import op_lifter
from optdb.opencl.device import lifters_db
from optdb.opencl.lifters.support import node_like, register_counterparts, with_pattern
from optdb.opencl.ops import diagonals  # noqa: F401  counterparts
from optdb.opencl.ops.passthrough import OpenCLAssert
from optdb.opencl.ops.views import OpenCLDimShuffle, OpenCLReshape, OpenCLSubtensor
from optdb.opencl.transfers import as_opencl_variable
from optdb.opencl.type import OpenCLArrayType
from optdb.topo.db import register_topo

Inputs = Sequence[Variable]


@functools.lru_cache(maxsize=4096)
def _dimshuffle(pattern: tuple[bool, ...], order: tuple[int | str, ...]) -> OpenCLDimShuffle:
    """Return one and the same op for the same parameters."""
    return OpenCLDimShuffle(pattern, order)


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=20)
@op_lifter([host.DimShuffle])
def lift_dimshuffle(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift an exchange of axes."""
    return node_like(_dimshuffle(op.input_broadcastable, op.new_order), context_name, inputs, outputs)


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=21)
@op_lifter([host.Reshape])
def lift_reshape(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift a change of shape; the shape stays on the host."""
    x = as_opencl_variable(inputs[0], context_name)
    reshaped = OpenCLReshape(op.ndim)(x, *inputs[1:])
    return with_pattern(reshaped, outputs[0])


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=22)
@op_lifter([host.Subtensor])
def lift_subtensor(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift a part of an array; the indexes stay on the host."""
    x = as_opencl_variable(inputs[0], context_name)
    return with_pattern(OpenCLSubtensor(op.idx_list)(x, *inputs[1:]), outputs[0])


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=23)
@op_lifter([host.Rebroadcast, host.SpecifyShape])
def lift_same_array(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Apply an op of the host that hands its input on, wherever that is."""
    return op(as_opencl_variable(inputs[0], context_name), *inputs[1:])


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=24)
@op_lifter([host.Shape, host.Shape_i])
def lift_shape(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Ask an array on the device for its shape: that is known on the host, and moves nothing."""
    return op(as_opencl_variable(inputs[0], context_name))


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=27)
@op_lifter([host.Assert])
def lift_assert(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift an array that is handed on if conditions hold; an array of the host stays there."""
    if not isinstance(inputs[0].type, OpenCLArrayType):
        return None
    return OpenCLAssert(op.msg)(*inputs)


register_counterparts("lift_flatten", 25, [host.Flatten])
register_counterparts("lift_diagonal", 26, [host.ExtractDiag])
register_counterparts("lift_print", 28, [host.Print])
