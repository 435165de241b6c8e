"""Lifters of convolutions and of their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optdb.host import convolutions as host
from optdb.host import scalars
from optdb.host.graph import Op, Variable
from optdb.lifters.lifter import op_lifter
from optdb.opencl.contexts import get_context
from optdb.opencl.device import lifters_db
from optdb.opencl.lifters.support import floats_only, on_device, unsupported_reason
from optdb.opencl.ops.convolve import OpenCLConv, OpenCLConvGradInputs, OpenCLConvGradWeights
from optdb.opencl.ops.elemwise import cast
from optdb.topo.db import register_topo

Inputs = Sequence[Variable]

_BY_CLASS = {
    host.AbstractConv2d: OpenCLConv,
    host.AbstractConv3d: OpenCLConv,
    host.AbstractConv2d_gradWeights: OpenCLConvGradWeights,
    host.AbstractConv3d_gradWeights: OpenCLConvGradWeights,
    host.AbstractConv2d_gradInputs: OpenCLConvGradInputs,
    host.AbstractConv3d_gradInputs: OpenCLConvGradInputs,
}

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


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=57)
@op_lifter(list(_BY_CLASS), supports=_convolution_unsupported_reason)
def lift_convolution(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift a convolution or a gradient of one; the shape that gradients take stays on the host."""
    arrays = on_device(inputs[:2], context_name)
    dtype = scalars.upcast(*[x.type.dtype for x in arrays])
    lifted = _BY_CLASS[type(op)].like(op)(*[cast(x, dtype) for x in arrays], *inputs[2:])
    return cast(lifted, outputs[0].type.dtype)
