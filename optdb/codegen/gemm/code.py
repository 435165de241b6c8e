"""What kernels of products share: their types, and the kernel that adds up parts of sums."""

from __future__ import annotations

from typing import Any

from optdb.codegen.kernels import Kernel
from optdb.codegen.source import functions, typed


def product_kernel(code: str, dtype: str, **words: Any) -> Kernel:
    """Return a kernel of products of matrices of a dtype, from code with its types and other words left open."""
    return Kernel("#pragma OPENCL FP_CONTRACT ON\n" + typed(code, dtype, **words))


def total_kernel(dtype: str) -> Kernel:
    """Return the kernel that adds up the parts of sums that were too long for one item."""
    return product_kernel(functions("gemm/vector.cl")["matmul_total"], dtype)
