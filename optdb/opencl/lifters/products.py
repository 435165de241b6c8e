"""Lifters of products of matrices and vectors, and of softmax."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from optdb.host import ops as host
from optdb.host.graph import Op, Variable
from optdb.lifters.lifter import op_lifter
from optdb.opencl.device import lifters_db
from optdb.opencl.lifters.support import floats_only, node_like, on_device
from optdb.opencl.ops import blas, blocks, crossentropy, onehot, softmax
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
    return node_like(_one(blas.OpenCLDot22Scalar), context_name, inputs, outputs, numbers=(2,))


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=52)
@op_lifter([host.Gemm, host.Gemv, host.CGemv], supports=floats_only)
def lift_gemm(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift a product that is added to something; the factors stay on the host."""
    lifted = blas.OpenCLGemm if isinstance(op, host.Gemm) else blas.OpenCLGemv
    return node_like(_one(lifted, op.inplace), context_name, inputs, outputs, numbers=(1, 4))


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=53)
@op_lifter([host.Ger, host.CGer, host.ScipyGer], supports=floats_only)
def lift_ger(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift the product of two vectors that is added to a matrix; the factor stays on the host."""
    return node_like(_one(blas.OpenCLGer, op.destructive), context_name, inputs, outputs, numbers=(1,))


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=54)
@op_lifter([host.CrossentropySoftmaxArgmax1HotWithBias, host.CrossentropySoftmax1HotWithBiasDx])
def lift_crossentropy(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift a cross entropy of classes, or its gradient; the classes stay on the host."""
    forward = isinstance(op, host.CrossentropySoftmaxArgmax1HotWithBias)
    lifted = (
        crossentropy.OpenCLCrossentropySoftmaxArgmax1HotWithBias
        if forward
        else crossentropy.OpenCLCrossentropySoftmax1HotWithBiasDx
    )
    return lifted()(*on_device(inputs[:2], context_name), inputs[2], return_list=True)


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=55)
@op_lifter([host.CrossentropyCategorical1Hot], supports=floats_only)
def lift_lookup(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift how unlikely the class of each row is; the classes stay on the host."""
    return onehot.OpenCLCrossentropyCategorical1Hot()(*on_device(inputs[:1], context_name), inputs[1])


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=56)
@op_lifter([host.CrossentropyCategorical1HotGrad], supports=floats_only)
def lift_lookup_gradient(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift the gradient of that; the classes stay on the host."""
    return onehot.OpenCLCrossentropyCategorical1HotGrad()(*on_device(inputs[:2], context_name), inputs[2])


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=57)
@op_lifter([host.SparseBlockGemv], supports=floats_only)
def lift_product_of_blocks(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift products of blocks of a matrix; which ones stays on the host."""
    return blocks.OpenCLSparseBlockGemv(op.inplace)(*on_device(inputs[:3], context_name), *inputs[3:])


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=58)
@op_lifter([host.SparseBlockOuter], supports=floats_only)
def lift_outer_products_of_blocks(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift outer products that are added to blocks of a matrix; which ones stays on the host."""
    return blocks.OpenCLSparseBlockOuter(op.inplace)(*on_device(inputs[:3], context_name), *inputs[3:])
