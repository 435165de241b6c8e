"""Lifters of Fourier transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optdb.host import fourier as host
from optdb.host.graph import Op, Variable
from optdb.lifters.lifter import op_lifter
from optdb.opencl.device import lifters_db
from optdb.opencl.lifters.support import floats_only, on_device
from optdb.opencl.ops.fft import OpenCLIRFFTOp, OpenCLRFFTOp
from optdb.topo.db import register_topo

Inputs = Sequence[Variable]


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=95)
@op_lifter([host.RFFTOp, host.IRFFTOp], supports=floats_only)
def lift_fourier(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift a transform over the last axes, or back; the lengths stay on the host."""
    lifted = OpenCLRFFTOp if isinstance(op, host.RFFTOp) else OpenCLIRFFTOp
    return lifted()(*on_device(inputs[:1], context_name), inputs[1])
