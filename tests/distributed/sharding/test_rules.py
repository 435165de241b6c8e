"""With each rule, the combined results of workers on parts of a batch equal those of one device on the whole batch."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.tensor.signal.pool import pool_2d

from optdb.distributed.batches import axes_of
from optdb.distributed.errors import NoGradients
from optdb.distributed.sharding.collective import MOMENTS, SUM, ReductionRound
from optdb.distributed.sharding.cutting import synchronous_training
from optdb.host.theano.functions.originals import original_of
from tests.distributed.hosts import check_step, compiled, spread_step

RNG = np.random.RandomState(0)
ROWS = 7
#: The smallest epsilon that batch normalization accepts.
EPSILON = 1e-5


def floats(*shape):
    return RNG.standard_normal(shape)


def shared(*shape, name=None):
    return theano.shared(floats(*shape), name=name)


x, y, z = tt.dmatrix("x"), tt.dmatrix("y"), tt.dmatrix("z")
pictures = tt.dtensor4("pictures")
numbers = tt.lvector("numbers")
CLASSES = RNG.randint(0, 5, ROWS)

#: Maps a name to inputs, their values, and an expression.
CASES = {
    "rows": ([x], [floats(ROWS, 5)], tt.tanh(x) * 2 + 1),
    "row sums": ([x], [floats(ROWS, 5)], x.sum(axis=1)),
    "column sums": ([x], [floats(ROWS, 5)], x.sum(axis=0)),
    "whole sum": ([x], [floats(ROWS, 5)], x.sum()),
    "mean": ([x], [floats(ROWS, 5)], x.mean()),
    "mean of a square of a mean": ([x], [floats(ROWS, 5)], tt.sqr(x - x.mean(axis=0)).mean()),
    "variance": ([x], [floats(ROWS, 5)], x.var(axis=0)),
    "standardized rows": ([x], [floats(ROWS, 5)], (x - x.mean(axis=0)) / x.std(axis=0)),
    "sum and constant": ([x], [floats(ROWS, 5)], x.sum(axis=0) + 3),
    "sums": ([x], [floats(ROWS, 5)], 2 * x.sum(axis=0) - tt.exp(x).sum(axis=0) / 3),
    "product of sums": ([x], [floats(ROWS, 5)], x.sum() * tt.sqr(x).sum()),
    "length": ([x], [floats(ROWS, 5)], x.shape[0] * 2 - 1),
    "float of a length": ([x], [floats(ROWS, 5)], 1.0 / (x.shape[0] - 1.0)),
    "shape": ([x], [floats(ROWS, 5)], tt.prod(x.shape)),
    "ones like": ([x], [floats(ROWS, 5)], tt.ones_like(x) * 2 + x),
    "alloc": ([x], [floats(ROWS, 5)], tt.alloc(1.5, x.shape[0], 3)),
    "alloc of a row": ([x], [floats(ROWS, 5)], tt.alloc(np.arange(3.0), x.shape[0], 3) + x[:, :3]),
    "transposed": ([x], [floats(ROWS, 5)], x.T.dot(x)),
    "product": ([x], [floats(ROWS, 5)], x.dot(np.arange(10.0).reshape(5, 2))),
    "product from the left": ([x], [floats(ROWS, 5)], tt.constant(np.arange(10.0).reshape(2, 5)).dot(x.T)),
    "vector product": ([x], [floats(ROWS, 5)], x.sum(axis=1).dot(x)),
    "part of rows": ([x], [floats(ROWS, 5)], x[:, 1:3]),
    "column": ([x], [floats(ROWS, 5)], x[:, 2]),
    "joined columns": ([x, y], [floats(ROWS, 5), floats(ROWS, 2)], tt.concatenate([x, y], axis=1)),
    "split columns": ([x], [floats(ROWS, 4)], tt.join(1, *tt.split(x, [1, 3], 2, axis=1)[::-1])),
    "set columns": ([x], [floats(ROWS, 5)], tt.set_subtensor(x[:, :2], 0.0)),
    "incremented columns": ([x], [floats(ROWS, 5)], tt.inc_subtensor(x[:, 1], x[:, 0])),
    "largest of rows": ([x], [floats(ROWS, 5)], x.max(axis=1)),
    "index of the largest": ([x], [floats(ROWS, 5)], x.argmax(axis=1)),
    "softmax": ([x], [floats(ROWS, 5)], tt.nnet.softmax(x)),
    "cross entropy": (
        [x, numbers],
        [floats(ROWS, 5), CLASSES],
        tt.nnet.categorical_crossentropy(tt.nnet.softmax(x), numbers).mean(),
    ),
    "elements by row": ([x, numbers], [floats(ROWS, 5), CLASSES], x[tt.arange(numbers.shape[0]), numbers]),
    "log of elements by row": (
        [x, numbers],
        [floats(ROWS, 5), CLASSES],
        -tt.log(tt.nnet.softmax(x))[tt.arange(x.shape[0]), numbers].mean(),
    ),
    "embedding": ([numbers], [CLASSES], tt.constant(floats(5, 3))[numbers]),
    "one hot": ([numbers], [CLASSES], tt.extra_ops.to_one_hot(numbers, 5)),
    "flattened": ([pictures], [floats(ROWS, 2, 3, 3)], pictures.flatten(2)),
    "reshaped": ([pictures], [floats(ROWS, 2, 3, 3)], pictures.reshape((pictures.shape[0], 3, 6)).sum(axis=1)),
    "reshaped by -1": ([x], [floats(ROWS, 4)], x.reshape((-1, 2)).sum(axis=1)),
    "channels": ([pictures], [floats(ROWS, 2, 3, 3)], pictures.dimshuffle(1, 0, 2, 3).reshape((2, -1)).sum(axis=1)),
    "convolved": ([pictures], [floats(ROWS, 2, 5, 5)], tt.nnet.conv2d(pictures, tt.constant(floats(3, 2, 3, 3)))),
    "pooled": ([pictures], [floats(ROWS, 2, 4, 4)], pool_2d(pictures, (2, 2), ignore_border=True)),
    "broadcast over rows": ([x], [floats(ROWS, 5)], x - x.sum(axis=1, keepdims=True)),
    "not a number of rows": ([x], [floats(ROWS, 5)], tt.switch(x > 0, x, 0.0).sum()),
    "cast": ([numbers], [CLASSES], numbers.sum().astype("float64") / numbers.shape[0]),
    "norm": ([x], [floats(ROWS, 5)], x / tt.sqrt(tt.sqr(x.sum(axis=0)).sum())),
}


@pytest.mark.parametrize("name", CASES)
def test_a_case(name):
    inputs, values, expression = CASES[name]
    check_step(compiled(inputs, [expression]), values)


def test_one_row_for_some_workers_and_none_for_others():
    check_step(compiled([x], [tt.tanh(x).sum(axis=0), x * 2]), [floats(2, 5)], workers=(2, 3, 4))


def test_gradients_and_any_optimizer():
    w = shared(5, 3, name="w")
    velocity = theano.shared(np.zeros((5, 3)), name="velocity")
    cost = tt.sqr(tt.tanh(x.dot(w)) - y).sum(axis=1).mean() + 0.1 * tt.sqr(w).sum()
    gradient = tt.grad(cost, w)
    norm = tt.sqrt(tt.sqr(gradient).sum())
    clipped = tt.switch(norm > 1, gradient / norm, gradient)
    updates = [(velocity, 0.9 * velocity - 0.1 * clipped), (w, w + 0.9 * velocity - 0.1 * clipped)]
    check_step(compiled([x, y], [cost], updates), [floats(ROWS, 5), floats(ROWS, 3)])


def test_an_argument_that_all_workers_get():
    rate = tt.dscalar("rate")
    w = shared(5, name="w")
    cost = tt.sqr(x.dot(w)).mean()
    check_step(compiled([x, rate], cost, [(w, w - rate * tt.grad(cost, w))]), [floats(ROWS, 5), 0.25])


def test_rows_of_an_argument_that_is_not_split():
    check_step(compiled([x, z], [(x * z).sum(axis=0)]), [floats(ROWS, 5), floats(ROWS, 5)], axes={"z": None})


def test_another_axis():
    check_step(compiled([x], [x.sum(axis=1), x.sum(axis=0), x * 2]), [floats(5, ROWS)], axes={"x": 1})


def test_time_and_batch_in_one_axis():
    sequence = tt.dtensor3("sequence")
    rows = sequence.reshape((sequence.shape[0] * sequence.shape[1], 4))
    back = tt.nnet.softmax(rows).reshape((sequence.shape[0], sequence.shape[1], 4))
    outputs = [tt.tanh(rows).sum(axis=0), back, sequence.reshape((-1, 4)).mean()]
    check_step(compiled([sequence], outputs), [floats(3, ROWS, 4)], axes={"sequence": 1})


def test_rows_of_sequences_that_are_mixed_are_refused_at_the_call():
    sequence = tt.dtensor3("sequence")
    f = compiled([sequence], [sequence.reshape((-1, 2)).max(axis=1).sum()])
    # Rows of 3 elements are reshaped to rows of 2 elements, some of which contain elements of two examples.
    with pytest.raises(AssertionError, match="mixes rows of different examples"):
        spread_step(f, [floats(2, 4, 3)], 2, axes={"sequence": 1})


def test_a_loop():
    sequence, w = tt.dtensor3("sequence"), shared(4, 4, name="w")
    start = tt.zeros((sequence.shape[1], 4))
    hidden, _ = theano.scan(lambda now, before, w: tt.tanh(now + before.dot(w)), sequence, start, [w])
    cost = tt.sqr(hidden[-1]).mean()
    f = compiled([sequence], [cost, hidden.sum(axis=0)], [(w, w - 0.1 * tt.grad(cost, w))])
    check_step(f, [floats(3, ROWS, 4)], axes={"sequence": 1})


def test_a_loop_over_the_batch_is_refused():
    total, _ = theano.scan(lambda row, before: before + row.sum(), x, tt.zeros((), "float64"))
    with pytest.raises(NoGradients, match="cannot be combined"):
        spread_step(compiled([x], [total[-1]]), [floats(ROWS, 5)], 2)


def test_random_numbers_are_those_of_one_device():
    from theano.sandbox.rng_mrg import MRG_RandomStreams

    streams = MRG_RandomStreams(3)
    dropped = x * streams.binomial(x.shape, p=0.5, dtype="float64")
    noise = streams.normal((x.shape[0], 5), dtype="float64")
    updates = [pair[:2] for pair in streams.updates()]
    check_step(compiled([x], [dropped, (x + noise).sum(axis=0)], updates), [floats(ROWS, 5)])


@pytest.mark.parametrize("axes", ["spatial", "per-activation"])
def test_batch_normalization_of_the_whole_batch(axes):
    shape = (1, 2, 1, 1) if axes == "spatial" else (1, 2, 3, 3)
    broadcast = tuple(n == 1 for n in shape)
    scale, bias, mean, variance = (theano.shared(floats(*shape), broadcastable=broadcast) for _ in range(4))
    variance.set_value(np.abs(variance.get_value()))
    out, _, _, new_mean, new_variance = tt.nnet.bn.batch_normalization_train(
        pictures, scale, bias, axes, running_mean=mean, running_var=variance
    )
    cost = tt.tanh(out).sum()
    updates = [(var, var - 0.1 * gradient) for var, gradient in zip((scale, bias), tt.grad(cost, [scale, bias]))]
    updates += [(mean, new_mean), (variance, new_variance)]
    f = compiled([pictures], [cost, out, tt.grad(cost, pictures)], updates)
    check_step(f, [floats(ROWS, 2, 3, 3)], rtol=1e-9)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_batch_normalization_keeps_digits_beside_a_large_mean(dtype):
    eps = np.finfo(dtype).eps
    inputs, changed = tt.tensor4("inputs", dtype), tt.tensor4("changed", dtype)
    ones, zeros = (np.full((1, 3, 1, 1), value, dtype) for value in (1, 0))
    scale, bias = (theano.shared(value, broadcastable=(True, False, True, True)) for value in (ones, zeros))
    mean, variance = (theano.shared(zeros, broadcastable=(True, False, True, True)) for _ in range(2))
    out, _, _, new_mean, new_variance = tt.nnet.bn.batch_normalization_train(
        inputs,
        scale,
        bias,
        "spatial",
        epsilon=EPSILON,
        running_average_factor=1.0,
        running_mean=mean,
        running_var=variance,
    )
    gradient = tt.grad((out * changed).sum(), inputs)
    f = compiled([inputs, changed], [out, gradient], [(mean, new_mean), (variance, new_variance)])
    value = (1e5 + RNG.standard_normal((6, 3, 8, 9)) + 50 * np.arange(6).reshape(6, 1, 1, 1)).astype(dtype)
    dy = floats(*value.shape).astype(dtype)
    exact = value.astype("float64")
    for workers in (1, 2, 3):
        (found, slope), states = spread_step(f, [value, dy], workers)
        by_shared = dict(zip(f.get_shared(), states[0], strict=True))
        wanted, size = exact.var((0, 2, 3)), value[:, 0].size
        np.testing.assert_allclose(by_shared[mean].ravel(), exact.mean((0, 2, 3)), rtol=2 * eps)
        np.testing.assert_allclose(by_shared[variance].ravel(), wanted * size / (size - 1), rtol=max(8 * eps, 1e-12))
        off = exact - by_shared[mean]  # the mean is rounded on one device as well
        inverse = 1 / np.sqrt(wanted.reshape(1, 3, 1, 1) + EPSILON)
        np.testing.assert_allclose(found, off * inverse, rtol=1e3 * eps, atol=1e2 * eps)
        off = exact - exact.mean((0, 2, 3), keepdims=True)
        product = (dy * off).sum((0, 2, 3), keepdims=True)
        want = inverse * (dy - dy.mean((0, 2, 3), keepdims=True, dtype="float64") - off * inverse**2 * product / size)
        np.testing.assert_allclose(slope, want, rtol=1e-4 if dtype == "float32" else 1e-9, atol=30 * eps)


def test_independent_normalizations_are_one_round():
    scale, bias = (theano.shared(np.ones((1, 2, 1, 1)), broadcastable=(1, 0, 1, 1)) for _ in range(2))
    one, other = (tt.nnet.bn.batch_normalization_train(x, scale, bias, "spatial")[0] for x in (pictures, 3 * pictures))
    deeper, _, _ = tt.nnet.bn.batch_normalization_train(tt.tanh(one) + other, scale, bias, "spatial")
    loss = tt.tanh(deeper).sum()
    f = compiled([pictures], [loss], [(scale, scale - tt.grad(loss, scale)), (bias, bias - tt.grad(loss, bias))])
    original = original_of(f)
    training = synchronous_training(original, axes_of(original.arguments, None), {}, None, False)
    rounds = [node.op for node in training.gradients.maker.fgraph.toposort() if isinstance(node.op, ReductionRound)]
    # The forward pass has one reduction round for the first two layers, and one for the last layer. The backward pass
    # has one round, for the last layer: its other sums are not needed before the end of the step.
    assert [round_.kinds for round_ in rounds] == [(MOMENTS,), (MOMENTS,), (SUM,)]
    assert training.rounds == 3
    check_step(compiled([pictures], [one * other]), [floats(ROWS, 2, 3, 3)])


def test_batch_normalization_of_parts():
    scale, bias, mean, variance = (theano.shared(np.ones((1, 2, 1, 1)), broadcastable=(1, 0, 1, 1)) for _ in range(4))
    out, _, _, new_mean, new_variance = tt.nnet.bn.batch_normalization_train(
        pictures, scale, bias, "spatial", running_mean=mean, running_var=variance
    )
    f = compiled([pictures], [out], [(mean, new_mean), (variance, new_variance)])
    value = floats(6, 2, 3, 3)
    (found,), states = spread_step(f, [value], 2, own_statistics=True)
    halves = []
    for half in np.split(value, 2):
        for var in (mean, variance):
            var.set_value(np.ones((1, 2, 1, 1)))
        halves.append((f(half)[0], mean.get_value(), variance.get_value()))
    np.testing.assert_allclose(found, np.concatenate([half[0] for half in halves]))
    for state in states:
        by_shared = dict(zip(f.get_shared(), state, strict=True))
        np.testing.assert_allclose(by_shared[mean], np.mean([half[1] for half in halves], axis=0))
        np.testing.assert_allclose(by_shared[variance], np.mean([half[2] for half in halves], axis=0))


REFUSED = {
    "sorted": tt.sort(x, axis=0),
    "largest": x.max(),
    "rows by number": x[:3],
    "pairs of examples": x.dot(x.T),
    "cumulated": tt.extra_ops.cumsum(x, axis=0),
    "rows upside down": x[::-1],
    "product of all": x.prod(),
    "row numbers": tt.arange(x.shape[0]) * 2,
    "pairs of rows in one": x.reshape((-1, 10)).max(axis=1).sum(),
    "mixed": x.T.reshape((-1, 3)).max(axis=1).sum(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_put_together_is_refused(name):
    f = compiled([x], [REFUSED[name]])
    with pytest.raises((NoGradients, AssertionError)) as raised:
        spread_step(f, [floats(6, 5)], 2)
    assert "The cure" in str(raised.value) or "to DataParallel" in str(raised.value)


def test_a_next_value_that_is_a_split_input_is_refused():
    f = compiled([x], [], [(shared(5, 5, name="weights"), x)])
    with pytest.raises(NoGradients, match="weights"):
        spread_step(f, [floats(6, 5)], 2)


@pytest.mark.parametrize("sets", [False, True])
def test_indexes_of_arrays_and_slices_are_refused(sets):
    images = tt.ftensor3("images")
    chosen = images[tt.arange(images.shape[0]), :, numbers]
    value = tt.set_subtensor(chosen, 0) if sets else chosen
    w = shared(5, name="weights")
    f = compiled([images, numbers], [], [(w, w - value.sum())])
    with pytest.raises(NoGradients, match="weights"):
        spread_step(f, [floats(6, 2, 5), np.arange(6) % 5], 2)


def test_a_table_of_statistics_of_parts_is_refused():
    out, mean, _ = tt.nnet.bn.batch_normalization_train(x, tt.ones((1, 5)), tt.zeros((1, 5)), axes=(0,))[:3]
    table = mean.dimshuffle(1)
    f = compiled([x, numbers], [tt.inc_subtensor(table[numbers], x[:, 0]), out.sum()])
    with pytest.raises(NoGradients):
        synchronous_training(
            original_of(f), axes_of(original_of(f).arguments, None), {}, None, own_statistics=True, buckets=0
        )


def test_the_error_names_the_variable_the_line_and_the_cures():
    w = shared(5, name="weights")
    sorted_rows = tt.sort(x, axis=0)
    f = compiled([x], [], [(w, w - sorted_rows.sum(axis=0))])
    with pytest.raises(NoGradients) as raised:
        spread_step(f, [floats(ROWS, 5)], 2)
    text = str(raised.value)
    for part in ("weights", "Sort", "test_rules.py", "gradients={weights: gradient}", "average_every=10"):
        assert part in text


def test_given_gradients_are_averaged_by_length():
    w = shared(5, name="w")
    # No rule recognizes this as a mean over the batch.
    gradient = tt.sort(x, axis=0).mean(axis=0) * w
    f = compiled([x], [], [(w, w - 0.5 * gradient)])
    value, before = floats(ROWS, 5), w.get_value()
    _, states = spread_step(f, [value], 2, gradients={w: gradient})
    means = [np.sort(part, axis=0).mean(axis=0) * before for part in (value[:4], value[4:])]
    np.testing.assert_allclose(states[0][0], before - 0.5 * (4 * means[0] + 3 * means[1]) / 7)


def test_a_given_gradient_that_is_not_in_the_graph():
    w = shared(5, name="w")
    f = compiled([x], [], [(w, w - x.sum(axis=0))])
    with pytest.raises(NoGradients, match="is not in the function's graph"):
        spread_step(f, [floats(ROWS, 5)], 2, gradients={w: x.mean(axis=0)})


@pytest.mark.parametrize(("how", "expected"), [("mean", 4), ("sum", 8)])
def test_reductions_as_the_caller_says(how, expected):
    f = compiled([x], [tt.alloc(4.0) + 0 * x[:, 0].sum()])
    (found,), _ = spread_step(f, [floats(ROWS, 5)], 2, reductions={0: how})
    np.testing.assert_allclose(found, expected)
