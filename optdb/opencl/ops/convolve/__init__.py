"""Convolutions in two and three dimensions, and their gradients.

Shapes become :mod:`geometry`, geometry becomes tables (:mod:`plan`), and kernels go by these:
:mod:`packing` lays arrays out, :mod:`correlate` computes results and gradients for images,
:mod:`weights` gradients for filters, :mod:`unshared` all three for filters that are not
shared. :mod:`workspace` keeps memory and tables, and :mod:`ops` has the ops.
"""

from optdb.opencl.ops.convolve.ops import OpenCLConv, OpenCLConvGradInputs, OpenCLConvGradWeights

__all__ = ["OpenCLConv", "OpenCLConvGradInputs", "OpenCLConvGradWeights"]
