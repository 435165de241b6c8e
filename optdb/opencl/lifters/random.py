"""Lifters of random numbers and of draws by them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optdb.host import random as host
from optdb.host.graph import Op, Variable
from optdb.lifters.lifter import op_lifter
from optdb.opencl.device import lifters_db
from optdb.opencl.lifters.support import real_arrays, register_counterparts, unsupported_reason
from optdb.opencl.ops import multinomial  # noqa: F401  counterparts
from optdb.opencl.ops.mrg import OpenCLMRGUniform
from optdb.opencl.type import OpenCLArrayType
from optdb.topo.db import register_topo

Inputs = Sequence[Variable]


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=80)
@op_lifter([host.mrg_uniform])
def lift_mrg_uniform(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift uniform random numbers, and the state they come from; the shape stays on the host."""
    sample = outputs[1].type
    lifted = OpenCLMRGUniform(OpenCLArrayType(sample.dtype, sample.broadcastable, context_name), op.inplace)
    return lifted(*inputs, return_list=True)


def _draws_unsupported_reason(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    for x in inputs[:2]:
        if not x.type.dtype.startswith("float"):
            return f"probabilities and random numbers are floats on the device, not {x.type.dtype}"
    return real_arrays(op, context_name, inputs, outputs) or unsupported_reason(context_name, ["float64"])


register_counterparts("lift_multinomial", 81, [host.MultinomialFromUniform], _draws_unsupported_reason)
register_counterparts(
    "lift_choice", 82, [host.ChoiceFromUniform, host.MultinomialWOReplacementFromUniform], _draws_unsupported_reason
)


def _python_generator(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str:
    return "NumPy's RandomState draws on the host; MRG_RandomStreams draws on the device"


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=83)
@op_lifter([host.RandomFunction], supports=_python_generator)
def keep_random_function(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> None:
    """Say why random numbers of NumPy's generator stay on the host."""
