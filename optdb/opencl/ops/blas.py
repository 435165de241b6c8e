"""Products of matrices and vectors on the device, under the names that they have in BLAS."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optdb.codegen.elementwise import ElementCode, Operand
from optdb.codegen.layout import view
from optdb.codegen.source import work_dtype
from optdb.host import ops as host
from optdb.host.graph import Apply
from optdb.opencl.kernels import Context, Kernel, Kernels, OpenCLKernelBase, Outputs, output_array
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.elements import ElementKernels, once_per_node
from optdb.opencl.ops.products import batched_matmul, matmul, matmul_kernels, matvec, matvec_kernels
from optdb.runtime.arrays import Array
from optdb.runtime.sizes import as_float


class _Product(Counterpart, OpenCLKernelBase):
    """What products of matrices share."""

    #: What returns their kernels, and what launches these.
    kernels = staticmethod(matmul_kernels)
    multiply = staticmethod(matmul)

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        return self.kernels(node.outputs[0].type.dtype, self.get_context(node))


class OpenCLDot22(_Product, host.Dot22):
    """The product of two matrices."""

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        a, b, *alpha = inputs
        z = output_array(outputs[0], context, (a.shape[0], b.shape[1]), a.dtype)
        matmul(kernels, context, a, b, z, *map(as_float, alpha))


class OpenCLDot22Scalar(_Product, host.Dot22Scalar):
    """The product of two matrices and a number."""

    device_inputs = slice(0, 2)
    run = OpenCLDot22.run


class OpenCLGemm(_Product, host.Gemm):
    """A matrix, and the product of two others, added up with factors.

    Parameters
    ----------
    inplace : bool
        Whether the result is written over the first matrix.
    """

    device_inputs = (0, 2, 3)

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        y, alpha, a, b, beta = inputs
        z = y if self.inplace else output_array(outputs[0], context, y.shape, y.dtype)
        self.multiply(kernels, context, a, b, z, as_float(alpha), y, as_float(beta))
        outputs[0][0] = z


class OpenCLGemv(_Product, host.Gemv):
    """A vector, and the product of a matrix and a vector, added up with factors.

    Parameters
    ----------
    inplace : bool
        Whether the result is written over the first vector.
    """

    device_inputs = OpenCLGemm.device_inputs
    kernels = staticmethod(matvec_kernels)
    multiply = staticmethod(matvec)
    run = OpenCLGemm.run


class OpenCLGer(Counterpart, OpenCLKernelBase, host.Ger):
    """A matrix, and the products of the elements of two vectors, added up with a factor.

    Parameters
    ----------
    destructive : bool
        Whether the result is written over the matrix.
    """

    device_inputs = (0, 2, 3)

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        return self._elements(node).kernels()

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        a, alpha, x, y = inputs
        if a.shape != (x.shape[0], y.shape[0]):
            raise ValueError(f"{self} cannot add the product of {x.shape} and {y.shape} to a matrix of {a.shape}")
        z = a if self.destructive else output_array(outputs[0], context, a.shape, a.dtype)
        arrays = [a, _with_axis(x, 1), _with_axis(y, 0), z]
        self._elements(node).launch(kernels, context, a.shape, arrays, [as_float(alpha)])
        outputs[0][0] = z

    @once_per_node
    def _elements(self, node: Apply) -> ElementKernels:
        dtype = node.outputs[0].type.dtype
        arrays = tuple([Operand.of(name, dtype) for name in ("a", "x", "y")]), (Operand.of("z", dtype),)
        numbers = (("alpha", work_dtype(dtype)),)
        return ElementKernels(ElementCode(*arrays, "z = a + alpha * (x * y);", ndim=2, numbers=numbers))


class OpenCLDot(_Product):
    """The product of matrices or vectors, of floats of any dtypes.

    It is no child of the host's: what makes products of matrices of those would take it for one, in a loop's graph.
    """

    __props__ = ()
    host = host.Dot
    common_dtype = "upcast"
    grad, R_op, infer_shape = host.grad, host.R_op, host.infer_shape

    def make_node(self, a: Any, b: Any) -> Apply:
        """Return the node for two arrays of floats, which get one dtype."""
        node = super().make_node(a, b)
        dtype = node.outputs[0].type.dtype
        if not dtype.startswith("float"):
            raise TypeError(f"{self} multiplies floats on the device, not {dtype}")
        return node

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        dtype, context = node.outputs[0].type.dtype, self.get_context(node)
        if all(x.type.ndim == 2 for x in node.inputs):
            return matmul_kernels(dtype, context)
        return matvec_kernels(dtype, context)

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        a, b = inputs
        shape = (*a.shape[:-1], *b.shape[1:])
        z = output_array(outputs[0], context, shape, a.dtype)
        if a.ndim == b.ndim == 2:
            matmul(kernels, context, a, b, z)
        elif b.ndim == 2:
            matvec(kernels, context, view(b, b.shape[::-1], b.strides[::-1]), a, z)
        elif a.ndim == 2:
            matvec(kernels, context, a, b, z)
        else:
            matvec(kernels, context, _with_axis(a, 0), b, _with_axis(z, 0))


class OpenCLBatchedDot(_Product, host.BatchedDot):
    """The products of the matrices, or vectors, that two arrays hold along their first axes."""

    common_dtype = "upcast"

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        a, b = inputs
        if a.shape[0] != b.shape[0]:
            raise ValueError(f"{self} has {a.shape[0]} matrices to multiply with {b.shape[0]}")
        z = output_array(outputs[0], context, (a.shape[0], *a.shape[1:-1], *b.shape[2:]), a.dtype)
        result = z
        if a.ndim == 2:
            a, result = _with_axis(a, 1), _with_axis(result, 1)
        if b.ndim == 2:
            b, result = _with_axis(b, 2), _with_axis(result, 2)
        batched_matmul(kernels, context, a, b, result)


def _with_axis(x: Array, axis: int) -> Array:
    """Return a view with another axis, of length 1."""
    shape, strides = list(x.shape), list(x.strides)
    shape.insert(axis, 1)
    strides.insert(axis, x.dtype.itemsize)
    return view(x, shape, strides)
