"""Lifters of ops that put arrays together, take them apart, and change parts of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optdb.host import ops as host
from optdb.host.graph import Op, Variable
from optdb.host.scalars import add, cast_op
from optdb.lifters.lifter import op_lifter
from optdb.opencl.device import lifters_db
from optdb.opencl.lifters.support import on_device, scalar_unsupported_reason
from optdb.opencl.ops import advanced
from optdb.opencl.ops.parts import OpenCLIncSubtensor, OpenCLJoin, OpenCLSplit
from optdb.opencl.ops.rows import OpenCLAdvancedIncSubtensor1, OpenCLAdvancedSubtensor1
from optdb.opencl.transfers import as_opencl_variable
from optdb.topo.db import register_topo

Inputs = Sequence[Variable]

_CHANGES = {
    host.AdvancedIncSubtensor: advanced.OpenCLAdvancedIncSubtensor,
    host.AdvancedBooleanIncSubtensor: advanced.OpenCLAdvancedBooleanIncSubtensor,
}


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=40)
@op_lifter([host.Join])
def lift_join(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift arrays one behind the other; the axis stays on the host."""
    return OpenCLJoin()(inputs[0], *on_device(inputs[1:], context_name))


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=41)
@op_lifter([host.Split])
def lift_split(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift the cutting of an array; axis and lengths stay on the host."""
    x = as_opencl_variable(inputs[0], context_name)
    return OpenCLSplit(op.len_splits)(x, *inputs[1:], return_list=True)


def _part_unsupported_reason(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    x, y = inputs[0].type.dtype, inputs[1].type.dtype
    return scalar_unsupported_reason(cast_op(x), context_name, [y]) if x != y else None


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=42)
@op_lifter([host.IncSubtensor], supports=_part_unsupported_reason)
def lift_inc_subtensor(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift the change of a part of an array; the indexes stay on the host."""
    lifted = OpenCLIncSubtensor(op.idx_list, op.inplace, op.set_instead_of_inc, op.destroyhandler_tolerate_aliased)
    return lifted(*on_device(inputs[:2], context_name), *inputs[2:])


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=43)
@op_lifter([host.AdvancedSubtensor1])
def lift_take(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift the taking of rows; their indexes stay on the host."""
    x = as_opencl_variable(inputs[0], context_name)
    return OpenCLAdvancedSubtensor1(op.sparse_grad)(x, *inputs[1:])


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=44)
@op_lifter([host.AdvancedIncSubtensor1], supports=_part_unsupported_reason)
def lift_change_of_rows(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift the change of rows; their indexes stay on the host."""
    lifted = OpenCLAdvancedIncSubtensor1(op.inplace, op.set_instead_of_inc)
    return lifted(*on_device(inputs[:2], context_name), *inputs[2:])


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=45)
@op_lifter([host.AdvancedSubtensor])
def lift_advanced(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift the taking of what several arrays of indexes name; they stay on the host."""
    return advanced.OpenCLAdvancedSubtensor()(as_opencl_variable(inputs[0], context_name), *inputs[1:])


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=46)
@op_lifter([host.AdvancedBooleanSubtensor])
def lift_masked(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift the taking of what masks name; a mask that is on the device comes home."""
    return advanced.OpenCLAdvancedBooleanSubtensor()(as_opencl_variable(inputs[0], context_name), *inputs[1:])


def _change_unsupported_reason(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    x, y = inputs[0].type.dtype, inputs[1].type.dtype
    if op.set_instead_of_inc:
        return scalar_unsupported_reason(cast_op(x), context_name, [y]) if x != y else None
    return advanced.adding_unsupported_reason(x, y) or scalar_unsupported_reason(add, context_name, [x, y])


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=47)
@op_lifter([host.AdvancedIncSubtensor, host.AdvancedBooleanIncSubtensor], supports=_change_unsupported_reason)
def lift_change(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift the change of what arrays of indexes or masks name; the indexes stay on the host."""
    lifted = _CHANGES[type(op)](op.inplace, op.set_instead_of_inc)
    return lifted(*on_device(inputs[:2], context_name), *inputs[2:])
