"""Lifters of ops that put arrays together, take them apart, and change parts of them."""

from __future__ import annotations

from collections.abc import Sequence

from optdb.host import ops as host
from optdb.host.graph import Op, Variable
from optdb.host.scalars import add, cast_op
from optdb.opencl.lifters.support import register_counterparts, scalar_unsupported_reason
from optdb.opencl.ops import advanced, parts  # noqa: F401  counterparts

Inputs = Sequence[Variable]


def _part_unsupported_reason(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    x, y = inputs[0].type.dtype, inputs[1].type.dtype
    return scalar_unsupported_reason(cast_op(x), context_name, [y]) if x != y else None


def _change_unsupported_reason(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    x, y = inputs[0].type.dtype, inputs[1].type.dtype
    if op.set_instead_of_inc:
        return scalar_unsupported_reason(cast_op(x), context_name, [y]) if x != y else None
    return advanced.adding_unsupported_reason(x, y) or scalar_unsupported_reason(add, context_name, [x, y])


register_counterparts("lift_join", 40, [host.Join])
register_counterparts("lift_split", 41, [host.Split])
register_counterparts("lift_inc_subtensor", 42, [host.IncSubtensor], _part_unsupported_reason)
register_counterparts("lift_take", 43, [host.AdvancedSubtensor1])
register_counterparts("lift_change_of_rows", 44, [host.AdvancedIncSubtensor1], _part_unsupported_reason)
register_counterparts("lift_advanced", 45, [host.AdvancedSubtensor])
register_counterparts("lift_masked", 46, [host.AdvancedBooleanSubtensor])
register_counterparts(
    "lift_change", 47, [host.AdvancedIncSubtensor, host.AdvancedBooleanIncSubtensor], _change_unsupported_reason
)
