"""The rules of batch normalization: of the whole batch, or, if that is asked for, of each worker's part.

With statistics of the whole batch, the op is written out: means and variances are sums over all workers, which wait for
each other twice in each layer, and once more for its gradient. With those of parts nobody waits. Each worker then
normalizes by its own statistics, which is not what one device does, and running averages are means over workers.
"""

from __future__ import annotations

from optdb.distributed.errors import NotSplittable
from optdb.distributed.sharding.layouts import Own, Partial, Replicated, Sharded, Value
from optdb.distributed.sharding.spreading import Spreader, remade, rule
from optdb.host.api import ops
from optdb.host.api.graph import Apply, Variable
from optdb.host.functions.originals import tensor


@rule(ops.AbstractBatchNormTrain)
def normalize(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Normalize the rows by statistics of the whole batch, or of the part."""
    x = inputs[0]
    if not isinstance(x, Sharded):
        return list(map(Replicated, remade(node, spreader.wholes(inputs, node))))
    axes = node.op.axes
    others = spreader.wholes(inputs[1:], node)
    if x.axis not in axes:
        raise NotSplittable(node, "it normalizes along other axes than that of the batch")
    if spreader.own_statistics:
        out, mean, inverse, *averages = remade(node, [x, *others])
        share = _share(spreader, x)
        sums = [Replicated(spreader.whole(Partial(average * share), node).var) for average in averages]
        return [_rows(x, out), Own(mean), Own(inverse), *sums]
    scale, bias, epsilon, factor, *running = (value.var for value in others)
    count = _count(spreader, x, axes)
    dtype = x.var.dtype
    mean = _total(spreader, node, x.var, axes) / count
    variance = _total(spreader, node, tensor.sqr(x.var - mean), axes) / count
    inverse = tensor.inv(tensor.sqrt(variance + epsilon.astype(dtype)))
    out = (x.var - mean) * (scale * inverse) + bias
    results = [out, mean, inverse]
    if running:
        factor = factor.astype(dtype)
        results.append(running[0] * (1 - factor) + mean * factor)
        results.append(running[1] * (1 - factor) + count / (count - 1) * variance * factor)
    typed = [old.type.filter_variable(new.astype(old.dtype)) for new, old in zip(results, node.outputs, strict=True)]
    return [_rows(x, typed[0]), *map(Replicated, typed[1:])]


@rule(ops.AbstractBatchNormTrainGrad)
def gradient(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Return the gradients for the rows, and for scale and bias, which are sums over the batch."""
    x, dy, *rest = inputs
    axes = node.op.axes
    if not (isinstance(x, Sharded) and isinstance(dy, Sharded) and x.axis == dy.axis and x.axis in axes):
        if any(isinstance(value, Sharded | Own) for value in inputs):
            raise NotSplittable(node, "it normalizes along other axes than that of the batch")
        return list(map(Replicated, remade(node, spreader.wholes(inputs, node))))
    if any(isinstance(value, Own) for value in rest):
        local = [value if isinstance(value, Own) else spreader.whole(value, node) for value in rest]
        dx, dscale, dbias = remade(node, [x, dy, *local])
        return [_rows(x, dx), Partial(dscale), Partial(dbias)]
    scale, mean, inverse, _ = (spreader.whole(value, node).var for value in rest)
    count = _count(spreader, x, axes)
    centred = x.var - mean
    own_scale = (dy.var * centred * inverse).sum(axes, keepdims=True)
    own_bias = dy.var.sum(axes, keepdims=True)
    types = [out.type for out in node.outputs]
    own_scale, own_bias = (
        kind.filter_variable(tensor.patternbroadcast(var, kind.broadcastable))
        for kind, var in zip(types[1:], (own_scale, own_bias), strict=True)
    )
    total_scale, total_bias = (spreader.whole(Partial(var), node).var for var in (own_scale, own_bias))
    dx = scale * inverse * (dy.var - total_bias / count - centred * inverse * total_scale / count)
    return [_rows(x, types[0].filter_variable(dx.astype(types[0].dtype))), Partial(own_scale), Partial(own_bias)]


def _rows(x: Sharded, var: Variable) -> Sharded:
    return Sharded(var, x.axis, x.unit, x.interleaved)


def _total(spreader: Spreader, node: Apply, var: Variable, axes: tuple[int, ...]) -> Variable:
    """Return the sum over all workers and some axes, which are kept."""
    own = tensor.addbroadcast(var.sum(axes, keepdims=True), *axes)
    return spreader.whole(Partial(own), node).var


def _count(spreader: Spreader, x: Sharded, axes: tuple[int, ...]) -> Variable:
    """Return over how many numbers of the whole batch statistics are taken."""
    lengths = [spreader.whole(spreader.length_along(x, axis), x.var.owner).var for axis in axes]
    return tensor.mul(*lengths, tensor.constant(1, dtype="int64")).astype(x.var.dtype)


def _share(spreader: Spreader, x: Sharded) -> Variable:
    """Return which part of the batch is the worker's."""
    return (spreader.own_length / spreader.length).astype(x.var.dtype)
