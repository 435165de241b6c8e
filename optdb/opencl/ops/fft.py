"""Theano's Fourier transforms of real arrays and their inverses, on the device; the lengths are on the host."""

from __future__ import annotations

from optdb.codegen.operation import Operation
from optdb.codegen.real_fourier import InverseRealFourier, RealFourier
from optdb.host.api import ops as host
from optdb.host.api.graph import Apply
from optdb.opencl.lifting import floats_only, register_counterparts
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.shell import Shell, spec_of


class OpenCLRFFTOp(Counterpart, Shell, host.RFFTOp):
    """The Fourier transform of a real array over its last axes, without the redundant mirrored coefficients."""

    device_inputs = slice(0, 1)

    def operation(self, node: Apply) -> Operation:
        return RealFourier(self.get_context(node), spec_of(node.inputs[0]))


class OpenCLIRFFTOp(Counterpart, Shell, host.IRFFTOp):
    """The unnormalized inverse transform: the real array with the given transform, times the product of the lengths."""

    device_inputs = slice(0, 1)

    def operation(self, node: Apply) -> Operation:
        return InverseRealFourier(self.get_context(node), spec_of(node.inputs[0]))


register_counterparts("lift_fourier", 95, [host.RFFTOp, host.IRFFTOp], floats_only)
