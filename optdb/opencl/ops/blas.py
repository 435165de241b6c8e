"""Products of matrices and vectors, under the names that they have in BLAS."""

from __future__ import annotations

from typing import Any

from optdb.codegen.gemm.operations import AddedOuterProduct, AddedProduct, BatchedProduct, Product
from optdb.codegen.operation import Operation
from optdb.host.api import ops as host
from optdb.host.api.config import config
from optdb.host.api.graph import Apply
from optdb.opencl.lifting import floats_only, register_counterparts
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.shell import Shell


class OpenCLDot22(Counterpart, Shell, host.Dot22):
    """The product of two matrices."""

    def operation(self, node: Apply) -> Operation:
        return Product(self.get_context(node), node.outputs[0].type.dtype, precision=config.optdb.matmul_precision)


class OpenCLDot22Scalar(Counterpart, Shell, host.Dot22Scalar):
    """The product of two matrices and a number."""

    device_inputs = slice(0, 2)
    operation = OpenCLDot22.operation


class OpenCLGemm(Counterpart, Shell, host.Gemm):
    """A matrix, and the product of two others, added up with factors; `inplace` writes over the first matrix."""

    device_inputs = (0, 2, 3)

    def operation(self, node: Apply) -> Operation:
        out = node.outputs[0].type
        precision = config.optdb.matmul_precision
        return AddedProduct(self.get_context(node), out.dtype, out.ndim, self.inplace, precision)


class OpenCLGemv(Counterpart, Shell, host.Gemv):
    """A vector, and the product of a matrix and a vector, added up with factors; `inplace` writes over the first."""

    device_inputs = OpenCLGemm.device_inputs
    operation = OpenCLGemm.operation


class OpenCLGer(Counterpart, Shell, host.Ger):
    """A matrix, and the outer product of two vectors, added up with a factor; over the matrix if `destructive`."""

    device_inputs = (0, 2, 3)

    def operation(self, node: Apply) -> Operation:
        return AddedOuterProduct(self.get_context(node), node.outputs[0].type.dtype, self.destructive)


class OpenCLDot(Counterpart, Shell):
    """The product of matrices or vectors, of floats of any dtypes.

    It does not derive from the host's op: the rewriters that turn that into BLAS ops would match it in a loop's graph.
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

    def operation(self, node: Apply) -> Operation:
        ranks = [x.type.ndim for x in node.inputs]
        precision = config.optdb.matmul_precision
        return Product(self.get_context(node), node.outputs[0].type.dtype, *ranks, precision)


class OpenCLBatchedDot(Counterpart, Shell, host.BatchedDot):
    """The products of the matrices, or vectors, that two arrays hold along their first axes."""

    common_dtype = "upcast"

    def operation(self, node: Apply) -> Operation:
        return BatchedProduct(self.get_context(node), node.outputs[0].type.dtype, config.optdb.matmul_precision)


_PRODUCTS = (
    *(host.Dot, host.BatchedDot, host.Dot22, host.Dot22Scalar, host.Gemm, host.Gemv, host.CGemv),
    *(host.Ger, host.CGer, host.ScipyGer),
)
register_counterparts("lift_product", 50, _PRODUCTS, floats_only)
