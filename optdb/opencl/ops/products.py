"""Products of matrices and vectors, for ops: see :mod:`optdb.codegen.gemm`, which computes them."""

from optdb.codegen.gemm.products import matmul, matmul_kernels
from optdb.codegen.gemm.vector import matvec, matvec_kernels

__all__ = ["batched_matmul", "matmul", "matmul_kernels", "matvec", "matvec_kernels"]

#: The same for arrays of three dimensions, the first of which counts the products.
batched_matmul = matmul
