"""Products of matrices and vectors, for ops: see :mod:`optdb.opencl.gemm`, which computes them."""

from optdb.opencl.gemm.products import batched_matmul, matmul, matmul_kernels
from optdb.opencl.gemm.vector import matvec, matvec_kernels

__all__ = ["batched_matmul", "matmul", "matmul_kernels", "matvec", "matvec_kernels"]
