"""Operations that multiply matrices and vectors of float16, float32 or float64.

All arrays of a product have one dtype; factors are numbers of the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optdb.codegen.elements import ElementKernels
from optdb.codegen.elementwise import ElementCode, Operand
from optdb.codegen.gemm.products import matmul, matmul_kernels
from optdb.codegen.gemm.vector import matvec, matvec_kernels
from optdb.codegen.kernels import Kernel
from optdb.codegen.layout import view, with_axis
from optdb.codegen.operation import Kernels, Operation, Outputs, output_array
from optdb.codegen.source import work_dtype
from optdb.runtime.arrays import Array
from optdb.runtime.context import Context
from optdb.runtime.sizes import as_float


class Product(Operation):
    """The product of matrices or vectors.

    The inputs are the two arrays, and a factor if one is given.

    Parameters
    ----------
    context : Context
        Where it runs.
    dtype : str
        The dtype of the arrays.
    left, right : int
        The numbers of their axes, 1 or 2.
    """

    def __init__(self, context: Context, dtype: str, left: int = 2, right: int = 2) -> None:
        super().__init__(context)
        self.dtype = dtype
        self._of_matrices = left == right == 2

    def kernels(self) -> list[Kernel]:
        return (matmul_kernels if self._of_matrices else matvec_kernels)(self.dtype, self.context)

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        a, b, *factor = inputs
        z = output_array(outputs[0], self.context, (*a.shape[:-1], *b.shape[1:]), self.dtype)
        factor = [as_float(number) for number in factor]
        if self._of_matrices:
            matmul(kernels, self.context, a, b, z, *factor)
        elif b.ndim == 2:
            matvec(kernels, self.context, view(b, b.shape[::-1], b.strides[::-1]), a, z, *factor)
        elif a.ndim == 2:
            matvec(kernels, self.context, a, b, z, *factor)
        else:
            matvec(kernels, self.context, with_axis(a, 0), b, with_axis(z, 0), *factor)


class AddedProduct(Operation):
    """An array, and the product of a matrix and a matrix or vector, added up with factors.

    The inputs are the array y, a factor, the two arrays that are multiplied, and the factor of y, which is not read
    where that is 0.

    Parameters
    ----------
    context : Context
        Where it runs.
    dtype : str
        The dtype of the arrays.
    ndim : int
        The number of axes of y, 1 or 2.
    overwrites : bool
        Whether the result is written over y.
    """

    def __init__(self, context: Context, dtype: str, ndim: int, overwrites: bool = False) -> None:
        super().__init__(context)
        self.dtype = dtype
        self.overwrites = overwrites
        self._kernels, self._multiply = (matvec_kernels, matvec) if ndim == 1 else (matmul_kernels, matmul)

    def kernels(self) -> list[Kernel]:
        return self._kernels(self.dtype, self.context)

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        y, alpha, a, b, beta = inputs
        z = y if self.overwrites else output_array(outputs[0], self.context, y.shape, self.dtype)
        self._multiply(kernels, self.context, a, b, z, as_float(alpha), y, as_float(beta))
        outputs[0][0] = z


class AddedOuterProduct(Operation):
    """A matrix, and the outer product of two vectors times a factor.

    The inputs are the matrix, the factor, and the vectors.

    Parameters
    ----------
    context : Context
        Where it runs.
    dtype : str
        The dtype of the arrays.
    overwrites : bool
        Whether the result is written over the matrix.
    """

    def __init__(self, context: Context, dtype: str, overwrites: bool = False) -> None:
        super().__init__(context)
        self.dtype = dtype
        self.overwrites = overwrites
        arrays = tuple([Operand.of(name, dtype) for name in ("a", "x", "y")]), (Operand.of("z", dtype),)
        numbers = (("alpha", work_dtype(dtype)),)
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


class BatchedProduct(Operation):
    """The products of the matrices, or vectors, that two arrays hold along their first axes.

    Parameters
    ----------
    context : Context
        Where it runs.
    dtype : str
        The dtype of the arrays.
    """

    def __init__(self, context: Context, dtype: str) -> None:
        super().__init__(context)
        self.dtype = dtype

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
        matmul(kernels, self.context, a, b, result)
