"""Reduction rounds compute their results from the vectors of all workers."""

from __future__ import annotations

import numpy as np
import pytest

from optdb.distributed.sharding.collective import MOMENTS, SUM, AllReduce, combined, thread_exchange
from optdb.host.theano.functions.channel_statistics import ChannelMoments
from optdb.host.theano.functions.originals import tensor


def moments(x, axes):
    """Return the moments of an array's channels, computed as on the host."""
    cell = [None]
    op = ChannelMoments(axes)
    op.perform(op.make_node(tensor.TensorType(x.dtype, [False] * x.ndim)()), [x], [cell])
    return cell[0]


def merged(x, cuts, axes=(0, 2)):
    """Compute means and variances of an array's parts, and merge them; return the merged moments."""
    parts = np.split(x, cuts)
    vectors = [moments(part, axes) for part in parts]
    counts = [np.array([part.shape[0] * part.shape[2]]) for part in parts]
    (found,) = combined(
        [MOMENTS], [list(pair) for pair in zip(vectors, counts, strict=True)], [np.array([len(vectors[0])])]
    )
    assert found.dtype == x.dtype
    return found.reshape(2, -1)


@pytest.mark.parametrize("cuts", [[], [1], [4], [2, 3], [1, 2, 3, 4]])
@pytest.mark.parametrize("offset", [0.0, 1e5])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_moments_are_those_of_the_whole(cuts, offset, dtype):
    x = (offset + np.random.default_rng(0).normal(size=(6, 3, 50))).astype(dtype)
    mean, variance = merged(x, cuts)
    exact, eps = x.astype("float64"), np.finfo(dtype).eps
    np.testing.assert_allclose(mean, exact.mean((0, 2)), rtol=2 * eps, atol=eps)
    np.testing.assert_allclose(variance, exact.var((0, 2)), rtol=max(8 * eps, 1e-11 if offset else 0))


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("row", range(6))
def test_infinite_elements_make_the_mean_infinite(value, row):
    x = np.random.default_rng(0).normal(size=(6, 2, 5))
    x[row, 1, 2] = value
    mean, variance = merged(x, [2, 4])
    np.testing.assert_allclose(mean, x.mean((0, 2)))
    np.testing.assert_allclose(variance[0], x[:, 0].var())
    assert np.isnan(variance[1])


def test_infinities_of_both_signs():
    x = np.zeros((4, 1, 1))
    x[0], x[3] = np.inf, -np.inf
    mean, variance = merged(x, [2])
    assert np.isnan(mean).all() and np.isnan(variance).all()


def test_pieces_and_sums_in_one_round():
    rng = np.random.default_rng(1)
    first, second, sums = rng.normal(size=(4, 3, 2)), rng.normal(size=(4, 5, 3)), rng.normal(size=(2, 7))
    received = [
        [sums[i], np.concatenate([moments(x[2 * i : 2 * i + 2], (0, 2)) for x in (first, second)]), np.array([4, 6])]
        for i in range(2)
    ]
    total, both = combined([SUM, MOMENTS], received, [np.array([9, 15])])
    np.testing.assert_allclose(total, sums.sum(0))
    wanted = [value for x in (first, second) for value in (x.mean((0, 2)), x.var((0, 2)))]
    np.testing.assert_allclose(both, np.concatenate(wanted))


def test_outside_of_a_step_there_is_nobody_to_wait_for():
    with pytest.raises(RuntimeError, match="outside of a training step"):
        thread_exchange()


def test_marks_compute_nothing():
    node = AllReduce(0).make_node(tensor.dvector())
    with pytest.raises(RuntimeError, match="is a placeholder"):
        node.op.perform(node, [np.zeros(2)], [[None]])
