"""Lifters of convolutions, and of linear algebra, which the host computes for the device."""

from __future__ import annotations

from typing import Any

from optdb.host import convolutions as host
from optdb.host import scalars
from optdb.host.graph import Op, Variable
from optdb.host.lifting import is_host_array
from optdb.host.linalg import LINEAR_ALGEBRA
from optdb.opencl.contexts import get_context
from optdb.opencl.lifters.support import Inputs, floats_only, lifts, on_device, unsupported_reason
from optdb.opencl.ops import convolve  # noqa: F401  which defines counterparts
from optdb.opencl.ops.counterpart import counterpart_of, on_one_device
from optdb.opencl.ops.elemwise import cast
from optdb.opencl.ops.on_host import OpenCLOnHost
from optdb.opencl.transfers import as_opencl_variable
from optdb.opencl.type import OpenCLArrayType

_CONVOLUTIONS = (
    *(host.AbstractConv2d, host.AbstractConv2d_gradWeights, host.AbstractConv2d_gradInputs),
    *(host.AbstractConv3d, host.AbstractConv3d_gradWeights, host.AbstractConv3d_gradInputs),
)

#: Work items of a group on a graphics card.
_GROUP = 256


def _convolution_unsupported_reason(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    dtypes = [x.type.dtype for x in inputs[:2]]
    profile = get_context(context_name).profile
    if not profile.runs_items_serially and profile.max_local_size < _GROUP:
        return f"{profile.name} has groups of fewer than {_GROUP} work items"
    if any(dtype.startswith("complex") for dtype in dtypes):
        return "no complex convolutions on the device"
    return floats_only(op, context_name, inputs, outputs) or unsupported_reason(context_name, [scalars.upcast(*dtypes)])


@lifts(_CONVOLUTIONS, 57, _convolution_unsupported_reason)
def lift_convolution(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift a convolution or a gradient of one; the shape that gradients take stays on the host."""
    arrays = on_one_device([on_device(x, context_name) for x in inputs[:2]], "upcast")
    lifted = counterpart_of(type(op)).like(op)(*arrays, *inputs[2:])
    return cast(lifted, outputs[0].type.dtype)


def _arrays_alone(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    if all(is_host_array(x) or isinstance(x.type, OpenCLArrayType) for x in (*inputs, *outputs)):
        return None
    return "only arrays are seen by the host where they are"


@lifts(list(LINEAR_ALGEBRA), 98, _arrays_alone)
def lift_linear_algebra(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Let the host compute, for a graph that stays on the device; numbers and whole numbers stay on the host."""
    taken = [as_opencl_variable(x, context_name) if _moves(x) else x for x in inputs]
    lifted = OpenCLOnHost(op, [out.type for out in outputs])
    return lifted(*taken, return_list=True)


def _moves(x: Variable) -> bool:
    return isinstance(x.type, OpenCLArrayType) or (x.type.ndim > 0 and x.type.dtype.startswith(("float", "complex")))
