"""Operations that multiply matrices and vectors of one dtype, scaled by factors from the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from optdb.codegen.elements import ElementKernels
from optdb.codegen.elementwise import ElementCode, Operand
from optdb.codegen.gemm.problem import Precision
from optdb.codegen.gemm.products import matmul, matmul_kernels
from optdb.codegen.gemm.vector import matvec, matvec_kernels
from optdb.codegen.kernels import Kernel
from optdb.codegen.layout import view, with_axis
from optdb.codegen.operation import Kernels, Operation, Outputs, output_array
from optdb.codegen.source import work_dtype
from optdb.runtime.arrays import Array
from optdb.runtime.sizes import as_float


@dataclass(eq=False)
class Product(Operation):
    """The product of matrices or vectors.

    The inputs are the two arrays and, optionally, a factor.
    """

    #: The dtype of the arrays.
    dtype: str
    #: Ranks of the two arrays, 1 or 2.
    left: int = 2
    right: int = 2
    #: Precision of the product of two matrices.
    precision: Precision = "highest"

    def __post_init__(self) -> None:
        self._of_matrices = self.left == self.right == 2

    def kernels(self) -> list[Kernel]:
        return (matmul_kernels if self._of_matrices else matvec_kernels)(self.dtype, self.context)

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        a, b, *factor = inputs
        z = output_array(outputs[0], self.context, (*a.shape[:-1], *b.shape[1:]), self.dtype)
        alpha = as_float(factor[0]) if factor else 1
        if self._of_matrices:
            matmul(kernels, self.context, a, b, z, alpha, precision=self.precision)
        elif b.ndim == 2:
            matvec(kernels, self.context, view(b, b.shape[::-1], b.strides[::-1]), a, z, alpha)
        elif a.ndim == 2:
            matvec(kernels, self.context, a, b, z, alpha)
        else:
            matvec(kernels, self.context, with_axis(a, 0), b, with_axis(z, 0), alpha)


@dataclass(eq=False)
class AddedProduct(Operation):
    """``beta * y + alpha * dot(a, b)``, where `a` is a matrix and `b` a matrix or a vector.

    The inputs are y, alpha, a, b and beta. If beta is 0, y is not read.
    """

    #: The dtype of the arrays.
    dtype: str
    #: Rank of y, 1 or 2.
    ndim: int
    #: Whether the result overwrites y.
    overwrites: bool = False
    #: Precision of the product of two matrices.
    precision: Precision = "highest"

    def kernels(self) -> list[Kernel]:
        return (matvec_kernels if self.ndim == 1 else matmul_kernels)(self.dtype, self.context)

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        y, alpha, a, b, beta = inputs
        z = y if self.overwrites else output_array(outputs[0], self.context, y.shape, self.dtype)
        if self.ndim == 1:
            matvec(kernels, self.context, a, b, z, as_float(alpha), y, as_float(beta))
        else:
            matmul(kernels, self.context, a, b, z, as_float(alpha), y, as_float(beta), self.precision)
        outputs[0][0] = z


@dataclass(eq=False)
class AddedOuterProduct(Operation):
    """A matrix plus a factor times the outer product of two vectors.

    The inputs are the matrix, the factor, and the vectors.
    """

    #: The dtype of the arrays.
    dtype: str
    #: Whether the result overwrites the matrix.
    overwrites: bool = False

    def __post_init__(self) -> None:
        arrays = tuple([Operand.of(name, self.dtype) for name in ("a", "x", "y")]), (Operand.of("z", self.dtype),)
        numbers = (("alpha", work_dtype(self.dtype)),)
        self._elements = ElementKernels(ElementCode(*arrays, "z = a + alpha * (x * y);", ndim=2, numbers=numbers))

    def kernels(self) -> list[Kernel]:
        return self._elements.kernels()

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        a, alpha, x, y = inputs
        if a.shape != (x.shape[0], y.shape[0]):
            raise ValueError(f"{self} cannot add the product of {x.shape} and {y.shape} to a matrix of {a.shape}")
        z = a if self.overwrites else output_array(outputs[0], self.context, a.shape, self.dtype)
        arrays = [a, with_axis(x, 1), with_axis(y, 0), z]
        self._elements.launch(kernels, self.context, a.shape, arrays, [as_float(alpha)])
        outputs[0][0] = z


@dataclass(eq=False)
class BatchedProduct(Operation):
    """The products of two batches of matrices or vectors; the batches run along the first axes of the arrays."""

    #: The dtype of the arrays.
    dtype: str
    precision: Precision = "highest"

    def kernels(self) -> list[Kernel]:
        return matmul_kernels(self.dtype, self.context)

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        a, b = inputs
        if a.shape[0] != b.shape[0]:
            raise ValueError(f"{self} has {a.shape[0]} matrices to multiply with {b.shape[0]}")
        z = output_array(outputs[0], self.context, (a.shape[0], *a.shape[1:-1], *b.shape[2:]), self.dtype)
        result: Array = z
        if a.ndim == 2:
            a, result = with_axis(a, 1), with_axis(result, 1)
        if b.ndim == 2:
            b, result = with_axis(b, 2), with_axis(result, 2)
        matmul(kernels, self.context, a, b, result, precision=self.precision)
