"""Lifters of products of matrices and vectors, and of softmax."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from optdb.host import ops as host
from optdb.host.graph import Op, Variable
from optdb.lifters.lifter import op_lifter
from optdb.opencl.device import lifters_db
from optdb.opencl.lifters.support import floats_only, node_like, on_device, register_counterparts
from optdb.opencl.ops import blas, blocks, crossentropy, softmax  # noqa: F401  counterparts
from optdb.opencl.ops.elemwise import cast
from optdb.topo.db import register_topo

Inputs = Sequence[Variable]

_BY_CLASS = {
    host.Dot: blas.OpenCLDot,
    host.BatchedDot: blas.OpenCLBatchedDot,
    host.Dot22: blas.OpenCLDot22,
    host.Softmax: softmax.OpenCLSoftmax,
    host.LogSoftmax: softmax.OpenCLLogSoftmax,
    host.SoftmaxWithBias: softmax.OpenCLSoftmaxWithBias,
    host.SoftmaxGrad: softmax.OpenCLSoftmaxGrad,
}


@functools.cache
def _one(op_class: type[Op], *parameters: Any) -> Op:
    """Return one and the same op for the same parameters."""
    return op_class(*parameters)


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=50)
@op_lifter(list(_BY_CLASS), supports=floats_only)
def lift_product_or_softmax(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift an op of which all inputs are arrays."""
    dtype = outputs[0].type.dtype
    if any(x.type.dtype != dtype for x in inputs):  # the host's op takes several at a time, the kernels one
        inputs = [cast(x, dtype) for x in on_device(inputs, context_name)]
    return node_like(_one(_BY_CLASS[type(op)]), context_name, inputs, outputs)


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=51)
@op_lifter([host.Dot22Scalar], supports=floats_only)
def lift_dot22scalar(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift the product of two matrices and a number, which stays on the host."""
    return node_like(_one(blas.OpenCLDot22Scalar), context_name, inputs, outputs)


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=52)
@op_lifter([host.Gemm, host.Gemv, host.CGemv], supports=floats_only)
def lift_gemm(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift a product that is added to something; the factors stay on the host."""
    lifted = blas.OpenCLGemm if isinstance(op, host.Gemm) else blas.OpenCLGemv
    return node_like(_one(lifted, op.inplace), context_name, inputs, outputs)


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=53)
@op_lifter([host.Ger, host.CGer, host.ScipyGer], supports=floats_only)
def lift_ger(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift the product of two vectors that is added to a matrix; the factor stays on the host."""
    return node_like(_one(blas.OpenCLGer, op.destructive), context_name, inputs, outputs)


register_counterparts(
    "lift_crossentropy", 54, [host.CrossentropySoftmaxArgmax1HotWithBias, host.CrossentropySoftmax1HotWithBiasDx]
)
register_counterparts("lift_lookup", 55, [host.CrossentropyCategorical1Hot], floats_only)
register_counterparts("lift_lookup_gradient", 56, [host.CrossentropyCategorical1HotGrad], floats_only)
register_counterparts("lift_product_of_blocks", 57, [host.SparseBlockGemv], floats_only)
register_counterparts("lift_outer_products_of_blocks", 58, [host.SparseBlockOuter], floats_only)
