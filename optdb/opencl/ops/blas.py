"""Products of matrices and vectors, under their BLAS names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optdb.codegen.gemm.operations import AddedOuterProduct, AddedProduct, BatchedProduct, Product
from optdb.codegen.layout import view
from optdb.codegen.named_blocks import AddBlockProducts, AddOuterProducts
from optdb.codegen.operation import Kernels, Operation, Outputs
from optdb.codegen.recurrence import SavedProducts
from optdb.host.api import ops as host
from optdb.host.api.config import config
from optdb.host.api.graph import Apply, Variable
from optdb.opencl.lifting import floats_only, register_counterparts
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.shell import Shell, spec_of
from optdb.opencl.type import opencl_type
from optdb.runtime.context import Context


class OpenCLDot22(Counterpart, Shell, host.Dot22):
    """The product of two matrices."""

    def operation(self, node: Apply) -> Operation:
        return Product(self.get_context(node), node.outputs[0].type.dtype, precision=config.optdb.matmul_precision)


class _MergedDot22(Shell):
    """Base class of ops that multiply two matrices of one dtype and take further inputs; rewriters create these ops."""

    __props__ = ()

    def make_node(self, a: Variable, b: Variable, *others: Variable) -> Apply:
        pattern = a.type.broadcastable[0], b.type.broadcastable[1]
        return Apply(self, [a, b, *others], [opencl_type(a.type.dtype, pattern, a.type.context_name)()])

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> Sequence[Any]:
        return [(shapes[0][0], shapes[1][1])]


class OpenCLStackedDot22(_MergedDot22):
    """A sum of matrix products, computed as one product of two joined matrices.

    The inputs are the two joined matrices, all left factors, and all right factors; the inner lengths must match.
    """

    operation = OpenCLDot22.operation

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        a, b, *others = inputs
        half = len(others) // 2
        for x, y in zip(others[:half], others[half:], strict=True):
            if x.shape[1] != y.shape[0]:
                raise ValueError(f"shapes do not match: a product of {tuple(x.shape)} and {tuple(y.shape)}")
        super().run(node, [a, b], outputs, kernels, context)


class OpenCLBiasedDot22(_MergedDot22):
    """The product of two matrices, with a vector added to each row."""

    def operation(self, node: Apply) -> Operation:
        out = node.outputs[0].type
        return AddedProduct(self.get_context(node), out.dtype, out.ndim, precision=config.optdb.matmul_precision)

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        a, b, bias = inputs
        if bias.shape[0] != b.shape[1]:
            raise ValueError(f"{self} adds a vector of {bias.shape[0]} elements to rows of {b.shape[1]}")
        rows = view(bias, (a.shape[0], bias.shape[0]), (0, bias.strides[0]))
        super().run(node, [rows, 1.0, a, b, 1.0], outputs, kernels, context)


class OpenCLSavedProducts(Shell):
    """Products of states and a matrix, plus an optional addend; a loop has already computed some of the products."""

    __props__ = ()
    view_map = {0: [0]}  # noqa: RUF012  (the host's protocol)

    def make_node(self, *inputs: Variable) -> Apply:
        return Apply(self, list(inputs), [inputs[0].type()])

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> Sequence[Any]:
        return [(*shapes[2][:2], shapes[3][1])]

    def operation(self, node: Apply) -> Operation:
        return SavedProducts(self.get_context(node), spec_of(node.inputs[2]), config.optdb.matmul_precision)


class OpenCLDot22Scalar(Counterpart, Shell, host.Dot22Scalar):
    """The product of two matrices and a number."""

    device_inputs = slice(0, 2)
    operation = OpenCLDot22.operation


class OpenCLGemm(Counterpart, Shell, host.Gemm):
    """``beta * c + alpha * dot(a, b)`` for matrices; `inplace` overwrites ``c``, the first input."""

    device_inputs = (0, 2, 3)

    def operation(self, node: Apply) -> Operation:
        out = node.outputs[0].type
        precision = config.optdb.matmul_precision
        return AddedProduct(self.get_context(node), out.dtype, out.ndim, self.inplace, precision)


class OpenCLGemv(Counterpart, Shell, host.Gemv):
    """``beta * y + alpha * dot(a, x)`` for a matrix and vectors; `inplace` overwrites ``y``, the first input."""

    device_inputs = OpenCLGemm.device_inputs
    operation = OpenCLGemm.operation


class OpenCLGer(Counterpart, Shell, host.Ger):
    """``a + alpha * outer(x, y)``; `destructive` overwrites ``a``, the first input."""

    device_inputs = (0, 2, 3)

    def operation(self, node: Apply) -> Operation:
        return AddedOuterProduct(self.get_context(node), node.outputs[0].type.dtype, self.destructive)


class OpenCLDot(Counterpart, Shell):
    """The product of matrices or vectors of floats, which may have different dtypes.

    This class does not derive from the host op's class, since Theano's rewriters would replace it with BLAS ops in a
    loop's graph.
    """

    __props__ = ()
    host = host.Dot
    common_dtype = "upcast"
    grad, R_op, infer_shape = host.grad, host.R_op, host.infer_shape

    def make_node(self, a: Any, b: Any) -> Apply:
        node = super().make_node(a, b)
        dtype = node.outputs[0].type.dtype
        if not dtype.startswith("float"):
            raise TypeError(f"{self} multiplies floats on the device, not {dtype}")
        return node

    def operation(self, node: Apply) -> Operation:
        left, right = [x.type.ndim for x in node.inputs]
        precision = config.optdb.matmul_precision
        return Product(self.get_context(node), node.outputs[0].type.dtype, left, right, precision)


class OpenCLBatchedDot(Counterpart, Shell, host.BatchedDot):
    """The products of corresponding matrices or vectors in two arrays, whose first axis is the batch axis."""

    common_dtype = "upcast"

    def operation(self, node: Apply) -> Operation:
        return BatchedProduct(self.get_context(node), node.outputs[0].type.dtype, config.optdb.matmul_precision)


class OpenCLSparseBlockGemv(Counterpart, Shell, host.SparseBlockGemv):
    """Vectors plus the products of other vectors and blocks of a matrix; the indices of the blocks are on the host."""

    device_inputs = slice(0, 3)
    common_dtype = 0
    computed_by = AddBlockProducts
    settings = ("inplace",)


class OpenCLSparseBlockOuter(Counterpart, Shell, host.SparseBlockOuter):
    """Blocks of a matrix plus outer products of vectors. Like the host op, this op ignores the factor `alpha`."""

    device_inputs = slice(0, 3)
    common_dtype = 0
    computed_by = AddOuterProducts
    settings = ("inplace",)


_PRODUCTS = (
    *(host.Dot, host.BatchedDot, host.Dot22, host.Dot22Scalar, host.Gemm, host.Gemv, host.CGemv),
    *(host.Ger, host.CGer, host.ScipyGer),
)
register_counterparts("lift_product", 50, _PRODUCTS, floats_only)
register_counterparts("lift_product_of_blocks", 57, [host.SparseBlockGemv], floats_only)
register_counterparts("lift_outer_products_of_blocks", 58, [host.SparseBlockOuter], floats_only)
