"""The rules for layers of neural networks and for random numbers.

Each worker draws the random numbers for the whole batch and uses the rows of its own part. Each example thus gets the
same random numbers as on one device, and the states of generators stay equal on all workers.
"""

from __future__ import annotations

from optdb.distributed.errors import NotSplittable
from optdb.distributed.sharding.layouts import (
    Length,
    Own,
    Partial,
    Replicated,
    Sharded,
    Value,
    Vector,
    array_of,
    common_layout,
    has,
    with_layout_of,
)
from optdb.distributed.sharding.spreading import Spreader, remade, rule
from optdb.host.api import ops
from optdb.host.api.graph import Apply
from optdb.host.api.ops import RandomFunction, mrg_uniform_base
from optdb.host.api.variables import TensorVariable
from optdb.host.theano.functions.channel_statistics import ChannelGradientSums, ChannelMoments, of_channels
from optdb.host.theano.functions.originals import tensor


@rule(ops.AbstractConv, ops.AbstractBatchNormInference)
def convolve_or_normalize(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Convolve each image, or normalize it with given statistics."""
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
    """Apply an op to the split input `pictures`; the other inputs apply to all images."""
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


#: Maps ops to a number n; such an op computes each row of its results from the same row of its first n inputs.
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
    """Apply an op that computes each row of its results from the same row of the inputs."""
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
    """Apply an op that computes each row of its results from a row of the input and a shared bias."""
    rows, bias, *classes = inputs
    split = [rows, *classes]
    if not has(split, Sharded):
        return spreader.replicated(node, inputs)
    if not all(isinstance(value, Sharded) and not value.axis for value in split):
        raise NotSplittable(node, "all inputs must be split along axis 0")
    layout = common_layout(node, split)
    return [with_layout_of(layout, out) for out in remade(node, [rows, spreader.whole(bias, node), *classes])]


@rule(ops.AbstractBatchNormTrain)
def normalize(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Normalize rows with statistics of the whole batch or of a worker's part; workers get equal running averages."""
    x = inputs[0]
    if not isinstance(x, Sharded):
        return spreader.replicated(node, inputs)
    assert isinstance(node.op, ops.AbstractBatchNormTrain)
    axes = node.op.axes
    others = spreader.wholes(inputs[1:], node)
    if x.axis not in axes:
        raise NotSplittable(node, "it does not normalize along the axis of the batch")
    if spreader.own_statistics:
        out, mean, inverse, *averages = remade(node, [x, *others])
        share = (spreader.own_length / spreader.length).astype(x.var.type.dtype)
        sums = [Replicated(spreader.whole(Partial(array_of(average) * share), node).var) for average in averages]
        return [with_layout_of(x, out), Own(mean), Own(inverse), *sums]
    scale, bias, epsilon, factor, *running = (value.array for value in others)
    count = _count(spreader, x, axes)
    dtype = x.var.type.dtype
    own = tensor.mul(*(x.array.shape[axis] for axis in axes), tensor.constant(1, dtype="int64"))
    vector = spreader.moments(node, own, ChannelMoments(axes)(x.var))
    mean, variance = (of_channels(x.array, axes, vector, number, 2) for number in range(2))
    inverse = tensor.inv(tensor.sqrt(variance + epsilon.astype(dtype)))
    out = (x.array - mean) * (scale * inverse) + bias
    results = [out, mean, inverse]
    if running:
        factor = factor.astype(dtype)
        results.append(running[0] * (1 - factor) + mean * factor)
        results.append(running[1] * (1 - factor) + count / (count - 1) * variance * factor)
    typed = [
        old.type.filter_variable(new.astype(old.type.dtype)) for new, old in zip(results, node.outputs, strict=True)
    ]
    return [with_layout_of(x, typed[0]), *map(Replicated, typed[1:])]


@rule(ops.AbstractBatchNormTrainGrad)
def gradient(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Return the gradient for each row, and the gradients of the scale and the bias, which are sums over the batch."""
    x, dy, *rest = inputs
    assert isinstance(node.op, ops.AbstractBatchNormTrainGrad)
    axes = node.op.axes
    if not (isinstance(x, Sharded) and isinstance(dy, Sharded) and x.axis == dy.axis and x.axis in axes):
        if any(isinstance(value, Sharded | Own) for value in inputs):
            raise NotSplittable(node, "it does not normalize along the axis of the batch")
        return spreader.replicated(node, inputs)
    if any(isinstance(value, Own) for value in rest):
        local = [value if isinstance(value, Own) else spreader.whole(value, node) for value in rest]
        dx, dscale, dbias = remade(node, [x, dy, *local])
        return [with_layout_of(x, dx), Partial(dscale), Partial(dbias)]
    scale, mean, inverse, _ = (spreader.whole(value, node).array for value in rest)
    count = _count(spreader, x, axes)
    own = ChannelGradientSums(axes)(x.var, dy.var, mean, inverse)
    total = spreader.whole(Partial(own), node).array
    dscale, dbias, off = (of_channels(x.array, axes, total, number, 3) for number in range(3))
    # Deviations from the rounded mean may not add up to 0, so the gradient contains their sum, as on one device.
    slope = dscale / count * inverse * inverse
    offset = (dbias * inverse - off * slope) / count
    dx = scale * ((dy.array * inverse - (x.array - mean) * slope) - offset)
    dx, dscale, dbias = (
        out.type.filter_variable(tensor.patternbroadcast(new.astype(out.type.dtype), out.type.broadcastable))
        for out, new in zip(node.outputs, (dx, dscale, dbias), strict=True)
    )
    return [with_layout_of(x, dx), Replicated(dscale), Replicated(dbias)]


def _count(spreader: Spreader, x: Sharded, axes: tuple[int, ...]) -> TensorVariable:
    """Return the number of elements in the whole batch from which each statistic is computed."""
    lengths = [spreader.whole(spreader.length_along(x, axis), x.var.owner).var for axis in axes]
    count: TensorVariable = tensor.mul(*lengths, tensor.constant(1, dtype="int64")).astype(x.var.type.dtype)
    return count


@rule(mrg_uniform_base, RandomFunction)
def draw(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Draw numbers for the whole batch, given the generator's state, the shape and the parameters."""
    if has(inputs, Sharded):
        raise NotSplittable(node, "the distribution's parameters differ between examples")
    state, drawn = spreader.replicated(node, inputs)
    entries = inputs[1].entries if isinstance(inputs[1], Vector) else ()
    lengths = [(i, entry) for i, entry in enumerate(entries) if isinstance(entry, Length)]
    if len(lengths) != 1 or not lengths[0][1].unit:
        return [state, drawn]
    layout = Sharded(drawn.var, axis=lengths[0][0])
    return [state, with_layout_of(layout, spreader.own_rows(drawn.var, layout, node))]
