"""Products of matrices and vectors on the device, under the names that they have in BLAS."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from optdb.codegen.elementwise.operand import Operand
from optdb.codegen.fp16 import work_dtype
from optdb.codegen.layout import view
from optdb.host import ops as host
from optdb.host import scalars
from optdb.host.graph import Apply, Variable
from optdb.opencl.contexts import infer_context_name
from optdb.opencl.kernels import Kernel, Kernels, OpenCLKernelBase, Outputs, output_array
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.elements import ElementKernels, once_per_node
from optdb.opencl.ops.elemwise import cast
from optdb.opencl.ops.products import batched_matmul, matmul, matmul_kernels, matvec, matvec_kernels
from optdb.opencl.transfers import as_opencl_variable
from optdb.runtime.arrays import Array
from optdb.runtime.sizes import as_float

if TYPE_CHECKING:
    from optdb.runtime.context import Context


class _ArraysAndNumbers(Counterpart):
    """A counterpart of which the numbers among the inputs stay on the host."""

    numbers: ClassVar[tuple[int, ...]] = ()

    @classmethod
    def device_places(cls, number: int) -> Sequence[int]:
        return [i for i in range(number) if i not in cls.numbers]


class OpenCLDot22(Counterpart, OpenCLKernelBase, host.Dot22):
    """The product of two matrices."""

    host = host.Dot22

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        return matmul_kernels(node.outputs[0].type.dtype, self.get_context(node))

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        a, b = inputs
        z = output_array(outputs[0], context, (a.shape[0], b.shape[1]), a.dtype)
        matmul(kernels, context, a, b, z)


class OpenCLDot22Scalar(_ArraysAndNumbers, OpenCLKernelBase, host.Dot22Scalar):
    """The product of two matrices and a number."""

    host = host.Dot22Scalar
    numbers = (2,)

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        return matmul_kernels(node.outputs[0].type.dtype, self.get_context(node))

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        a, b, alpha = inputs
        z = output_array(outputs[0], context, (a.shape[0], b.shape[1]), a.dtype)
        matmul(kernels, context, a, b, z, as_float(alpha))


class OpenCLGemm(_ArraysAndNumbers, OpenCLKernelBase, host.Gemm):
    """A matrix, and the product of two others, added up with factors.

    Parameters
    ----------
    inplace : bool
        Whether the result is written over the first matrix.
    """

    host = host.Gemm
    numbers = (1, 4)

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        return matmul_kernels(node.outputs[0].type.dtype, self.get_context(node))

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        y, alpha, a, b, beta = inputs
        z = y if self.inplace else output_array(outputs[0], context, y.shape, y.dtype)
        matmul(kernels, context, a, b, z, as_float(alpha), y, as_float(beta))
        outputs[0][0] = z


class OpenCLGemv(_ArraysAndNumbers, OpenCLKernelBase, host.Gemv):
    """A vector, and the product of a matrix and a vector, added up with factors.

    Parameters
    ----------
    inplace : bool
        Whether the result is written over the first vector.
    """

    host = host.Gemv
    numbers = (1, 4)

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        return matvec_kernels(node.outputs[0].type.dtype, self.get_context(node))

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        y, alpha, a, x, beta = inputs
        z = y if self.inplace else output_array(outputs[0], context, y.shape, y.dtype)
        matvec(kernels, context, a, x, z, as_float(alpha), y, as_float(beta))
        outputs[0][0] = z


class OpenCLGer(_ArraysAndNumbers, OpenCLKernelBase, host.Ger):
    """A matrix, and the products of the elements of two vectors, added up with a factor.

    Parameters
    ----------
    destructive : bool
        Whether the result is written over the matrix.
    """

    host = host.Ger
    numbers = (1,)

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        return self._elements(node).kernels()

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        a, alpha, x, y = inputs
        if a.shape != (x.shape[0], y.shape[0]):
            raise ValueError(f"{self} cannot add the product of {x.shape} and {y.shape} to a matrix of {a.shape}")
        z = a if self.destructive else output_array(outputs[0], context, a.shape, a.dtype)
        item = a.dtype.itemsize
        column = view(x, (x.shape[0], 1), (x.strides[0], item))
        row = view(y, (1, y.shape[0]), (item, y.strides[0]))
        self._elements(node).launch(kernels, context, a.shape, [a, column, row, z], [as_float(alpha)])
        outputs[0][0] = z

    @once_per_node
    def _elements(self, node: Apply) -> ElementKernels:
        dtype = node.outputs[0].type.dtype
        return ElementKernels(
            [Operand.of(name, dtype) for name in ("a", "x", "y")],
            [Operand.of("z", dtype)],
            "z = a + alpha * (x * y);",
            ndim=2,
            flags=Kernel.get_flags(dtype),
            numbers=[("alpha", work_dtype(dtype))],
        )


class OpenCLDot(Counterpart, OpenCLKernelBase):
    """The product of matrices or vectors, of floats of any dtypes.

    It is no child of the host's: what makes products of matrices of those would take it for one, in a loop's graph.
    """

    __props__ = ()
    host = host.Dot
    grad, R_op, infer_shape = host.grad, host.R_op, host.infer_shape

    def make_node(self, a: Any, b: Any) -> Apply:
        """Return the node for two arrays, which get one dtype.

        Raises
        ------
        TypeError
            If they are not floats.
        """
        node = super().make_node(*_upcast(a, b))
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
            matvec(kernels, context, _as_row(a), b, view(z, (1,), (z.dtype.itemsize,)))


class OpenCLBatchedDot(Counterpart, OpenCLKernelBase, host.BatchedDot):
    """The products of the matrices, or vectors, that two arrays hold along their first axes."""

    host = host.BatchedDot

    def make_node(self, a: Any, b: Any) -> Apply:
        """Return the node for two arrays, which get one dtype."""
        return super().make_node(*_upcast(a, b))

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        return matmul_kernels(node.outputs[0].type.dtype, self.get_context(node))

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


def _upcast(a: Any, b: Any) -> list[Variable]:
    context_name = infer_context_name(*[x for x in (a, b) if isinstance(x, Variable)])
    moved = [as_opencl_variable(x, context_name) for x in (a, b)]
    dtype = scalars.upcast(*[x.type.dtype for x in moved])
    return [cast(x, dtype) for x in moved]


def _as_row(x: Array) -> Array:
    return view(x, (1, x.shape[0]), (x.dtype.itemsize, x.strides[0]))


def _with_axis(x: Array, axis: int) -> Array:
    """Return a view with another axis, of length 1."""
    shape, strides = list(x.shape), list(x.strides)
    shape.insert(axis, 1)
    strides.insert(axis, x.dtype.itemsize)
    return view(x, shape, strides)
