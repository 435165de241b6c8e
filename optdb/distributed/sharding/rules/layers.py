"""The rules for layers of neural networks: convolutions, pooling, softmax, and normalization by given statistics."""

from __future__ import annotations

from optdb.distributed.errors import NotSplittable
from optdb.distributed.sharding.layouts import Partial, Replicated, Sharded, Value, common_layout, has, with_layout_of
from optdb.distributed.sharding.spreading import Spreader, remade, rule
from optdb.host.api import ops
from optdb.host.api.graph import Apply


@rule(ops.AbstractConv, ops.AbstractBatchNormInference)
def convolve_or_normalize(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Convolve each image, or normalize it by given statistics."""
    return _by_pictures(spreader, node, inputs, 0)


@rule(ops.AbstractConvGradInputs)
def gradient_of_pictures(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Return a gradient for each image."""
    return _by_pictures(spreader, node, inputs, 1)


@rule(ops.AbstractConvGradWeights)
def gradient_of_filters(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Return a gradient that is a sum over images."""
    pictures, gradient, *rest = inputs
    if not (isinstance(pictures, Sharded) and isinstance(gradient, Sharded) and pictures.axis == gradient.axis == 0):
        return _by_pictures(spreader, node, inputs, None)
    common_layout(node, [pictures, gradient])
    return list(map(Partial, remade(node, [pictures, gradient, *spreader.wholes(rest, node)])))


def _by_pictures(spreader: Spreader, node: Apply, inputs: list[Value], pictures: int | None) -> list[Value]:
    """Return the result of an op with one input that may be split; the other inputs apply to all images."""
    others = [value for i, value in enumerate(inputs) if i != pictures]
    if has(others, Sharded):
        raise NotSplittable(node, "filters, or their gradients, differ between examples")
    value = None if pictures is None else inputs[pictures]
    if isinstance(value, Sharded) and value.axis:
        raise NotSplittable(node, f"the batch is split along axis {value.axis} of the images instead of axis 0")
    if not isinstance(value, Sharded):
        return spreader.replicated(node, inputs)
    local = [each if each is value else spreader.whole(each, node) for each in inputs]
    return [with_layout_of(value, out) for out in remade(node, local)]


#: Ops whose outputs depend row by row, along axis 0, on the same rows of the inputs. Maps each op to the number of its
#: inputs that have rows.
_ROW_OPS = {
    ops.Softmax: 1,
    ops.LogSoftmax: 1,
    ops.SoftmaxGrad: 2,
    ops.CrossentropyCategorical1Hot: 2,
    ops.CrossentropyCategorical1HotGrad: 3,
    ops.CrossentropySoftmax1HotWithBiasDx: 3,
    ops.Pool: 1,
    ops.MaxPoolGrad: 3,
    ops.AveragePoolGrad: 2,
    ops.DownsampleFactorMaxGradGrad: 3,
    ops.MaxPoolRop: 2,
}
_POOLING = (ops.Pool, ops.MaxPoolGrad, ops.AveragePoolGrad, ops.DownsampleFactorMaxGradGrad, ops.MaxPoolRop)


@rule(*_ROW_OPS)
def row_op(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Apply an op that computes each row of its results from the same row of its inputs."""
    count = next(_ROW_OPS[cls] for cls in type(node.op).__mro__ if cls in _ROW_OPS)
    rows, others = inputs[:count], spreader.wholes(inputs[count:], node)
    if not has(rows, Sharded):
        return list(map(Replicated, remade(node, [*spreader.wholes(rows, node), *others])))
    layout = common_layout(node, rows)
    pooled = isinstance(node.op, _POOLING) and node.op.ndim == layout.var.type.ndim
    if layout.axis or pooled or not all(isinstance(value, Sharded) for value in rows):
        raise NotSplittable(node, "all inputs must be split along axis 0")
    return [with_layout_of(layout, out) for out in remade(node, [*rows, *others])]


@rule(ops.SoftmaxWithBias, ops.CrossentropySoftmaxArgmax1HotWithBias)
def softmax_with_bias(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Apply an op that computes each row of its results from a row of its input and from a bias that all rows share."""
    rows, bias, *classes = inputs
    split = [rows, *classes]
    if not has(split, Sharded):
        return spreader.replicated(node, inputs)
    if not all(isinstance(value, Sharded) and not value.axis for value in split):
        raise NotSplittable(node, "all inputs must be split along axis 0")
    layout = common_layout(node, split)
    return [with_layout_of(layout, out) for out in remade(node, [rows, spreader.whole(bias, node), *classes])]
