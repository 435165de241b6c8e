"""Products of matrices as lazy tensors."""

from __future__ import annotations

from optdb.codegen.gemm.operations import Product
from optdb.device.tensors import Application, Tensor

__all__ = ["MatrixProduct"]


class MatrixProduct(Application):
    """The product of two matrices of one dtype, whose shapes fit, by an operation."""

    def __init__(self, a: Tensor, b: Tensor) -> None:
        dtype = a.dtype
        super().__init__(lambda context: Product(context, dtype), [a, b], [((a.shape[0], b.shape[1]), dtype)])
