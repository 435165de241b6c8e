"""Convolutions in two and three dimensions, and their gradients.

The ops are in :mod:`ops`; their kernels are those of :mod:`optdb.codegen.convolve`.
"""

from optdb.opencl.ops.convolve.ops import OpenCLConv, OpenCLConvGradInputs, OpenCLConvGradWeights

__all__ = ["OpenCLConv", "OpenCLConvGradInputs", "OpenCLConvGradWeights"]
