"""Lifters of ops that go along an axis: sums so far, sorting, the largest elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optdb.host import sorting as host
from optdb.host.graph import Op, Variable
from optdb.lifters.lifter import op_lifter
from optdb.opencl.device import lifters_db
from optdb.opencl.lifters.support import on_device, real_arrays
from optdb.opencl.ops.cumulate import OpenCLCumOp
from optdb.topo.db import register_topo

Inputs = Sequence[Variable]


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=90)
@op_lifter([host.CumOp], supports=real_arrays)
def lift_cumulation(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift the sums or products of all elements so far."""
    return OpenCLCumOp(op.axis, op.mode)(*on_device(inputs, context_name))
