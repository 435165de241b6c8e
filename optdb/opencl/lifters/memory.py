"""Lifters of ops that make arrays out of sizes and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optdb.host import ops as host
from optdb.host.graph import Op, Variable
from optdb.lifters.lifter import op_lifter
from optdb.opencl.device import lifters_db
from optdb.opencl.lifters.support import real_arrays, register_counterparts
from optdb.opencl.ops.contiguous import opencl_contiguous
from optdb.opencl.ops.diagonals import OpenCLAllocDiag
from optdb.opencl.ops.eye import OpenCLEye
from optdb.opencl.ops.memory import OpenCLAlloc, OpenCLAllocEmpty, OpenCLARange, OpenCLTri
from optdb.opencl.transfers import as_opencl_variable
from optdb.topo.db import register_topo

Inputs = Sequence[Variable]


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=30)
@op_lifter([host.Alloc])
def lift_alloc(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift an array filled with a value."""
    return OpenCLAlloc(context_name).make_node(*inputs).outputs


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=31)
@op_lifter([host.AllocEmpty])
def lift_alloc_empty(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift an array with nothing certain in it."""
    return OpenCLAllocEmpty(op.dtype, context_name)(*inputs)


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=32)
@op_lifter([host.ARange], supports=real_arrays)
def lift_arange(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift numbers at equal distances."""
    return OpenCLARange(op.dtype, context_name)(*inputs)


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=33)
@op_lifter([host.Tri], supports=real_arrays)
def lift_tri(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift ones at and below a diagonal."""
    return OpenCLTri(op.dtype, context_name)(*inputs)


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=34)
@op_lifter([host.Eye])
def lift_eye(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift ones on a diagonal."""
    return OpenCLEye(op.dtype, context_name)(*inputs)


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=35)
@op_lifter([host.AllocDiag, host.VectorAllocDiag])
def lift_alloc_diag(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift zeros with an array along a diagonal."""
    where = (op.offset, op.axis1, op.axis2) if isinstance(op, host.AllocDiag) else ()
    return OpenCLAllocDiag(*where)(as_opencl_variable(inputs[0], context_name))


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=38)
@op_lifter([host.CpuContiguous])
def lift_contiguous(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift an array in C order."""
    return opencl_contiguous(as_opencl_variable(inputs[0], context_name))


register_counterparts("lift_tile", 36, [host.Tile])
register_counterparts("lift_fill_diagonal", 37, [host.FillDiagonal, host.FillDiagonalOffset])
