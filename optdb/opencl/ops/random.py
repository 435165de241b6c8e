"""Theano's random numbers on the device: uniform numbers from MRG31k3p, and samples drawn with them."""

from __future__ import annotations

from typing import Any

from optdb.codegen.operation import Operation
from optdb.codegen.random_numbers import ChooseOutcomes, CountDraws, UniformNumbers, sample_dtype
from optdb.host.api import ops as host
from optdb.host.api.graph import Apply, PureOp
from optdb.host.api.variables import as_tensor_variable
from optdb.opencl.lifting import Inputs, real_arrays, register_counterparts, unsupported_reason
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.shell import Shell, spec_of
from optdb.opencl.transfers import as_opencl_variable
from optdb.opencl.type import OpenCLArrayType


class OpenCLMRGUniform(Shell, host.mrg_uniform_base):
    """Random numbers between 0 and 1, and the generator's next state; `inplace` overwrites the current state."""

    __props__ = ("output_type", "inplace")
    checks_lengths = False

    def __init__(self, output_type: OpenCLArrayType, inplace: bool = False) -> None:
        sample_dtype(output_type.dtype)
        super().__init__(output_type, inplace)

    def make_node(self, rstate: Any, size: Any) -> Apply:
        """Return a node for an int32 state of shape (n_streams, 6) and a sample's shape, which is on the host."""
        rstate = as_opencl_variable(rstate, self.output_type.context_name)
        if rstate.type.dtype != "int32" or rstate.type.ndim != 2:
            raise TypeError(f"{self} takes a state of type int32 matrix, not {rstate.type}")
        return Apply(self, [rstate, as_tensor_variable(size)], [rstate.type(), self.output_type()])

    def operation(self, node: Apply) -> Operation:
        return UniformNumbers(self.get_context(node), self.output_type.dtype, self.output_type.ndim, self.inplace)


class OpenCLMultinomialFromUniform(Counterpart, Shell, host.MultinomialFromUniform):
    """How often each outcome is drawn, for each row of probabilities; the number of draws is on the host."""

    device_inputs = slice(0, 2)

    def operation(self, node: Apply) -> Operation:
        p, u = map(spec_of, node.inputs[:2])
        return CountDraws(self.get_context(node), p, u, node.outputs[0].type.dtype)


class OpenCLChoiceFromUniform(Counterpart, Shell, host.ChoiceFromUniform):
    """The outcomes drawn for each row of probabilities; an outcome is -1 if the row's sum is too small."""

    device_inputs = slice(0, 2)

    def operation(self, node: Apply) -> Operation:
        p, u = map(spec_of, node.inputs[:2])
        return ChooseOutcomes(self.get_context(node), p, u, node.outputs[0].type.dtype, self.replace)


def _draws_unsupported_reason(op: PureOp, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    for x in inputs[:2]:
        if not x.type.dtype.startswith("float"):
            return f"probabilities and random numbers are floats on the device, not {x.type.dtype}"
    return real_arrays(op, context_name, inputs, outputs) or unsupported_reason(context_name, ["float64"])


register_counterparts("lift_multinomial", 81, [host.MultinomialFromUniform], _draws_unsupported_reason)
_CHOICES = (host.ChoiceFromUniform, host.MultinomialWOReplacementFromUniform)
register_counterparts("lift_choice", 82, _CHOICES, _draws_unsupported_reason)
