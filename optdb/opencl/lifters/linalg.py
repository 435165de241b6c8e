"""The lifter of linear algebra, which the host computes for the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optdb.host.graph import Op, Variable
from optdb.host.lifting import is_host_array
from optdb.host.linalg import LINEAR_ALGEBRA
from optdb.lifters.lifter import op_lifter
from optdb.opencl.device import lifters_db
from optdb.opencl.ops.on_host import OpenCLOnHost
from optdb.opencl.transfers import as_opencl_variable
from optdb.opencl.type import OpenCLArrayType
from optdb.topo.db import register_topo

Inputs = Sequence[Variable]


def _arrays_alone(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    if all(is_host_array(x) or isinstance(x.type, OpenCLArrayType) for x in (*inputs, *outputs)):
        return None
    return "only arrays are seen by the host where they are"


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=98)
@op_lifter(list(LINEAR_ALGEBRA), supports=_arrays_alone)
def lift_linear_algebra(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Let the host compute, for a graph that stays on the device; numbers and whole numbers stay on the host."""
    taken = [as_opencl_variable(x, context_name) if _moves(x) else x for x in inputs]
    lifted = OpenCLOnHost(op, [out.type for out in outputs])
    return lifted(*taken, return_list=True)


def _moves(x: Variable) -> bool:
    return isinstance(x.type, OpenCLArrayType) or (x.type.ndim > 0 and x.type.dtype.startswith(("float", "complex")))
