"""Pooling and its gradients, computed on whole arrays, agree with Theano's C code."""

from __future__ import annotations

import numpy as np
import pytest
import theano.tensor as tt
from theano.tensor.signal import pool

from tests.host.theano.vectorized.nodes import assert_alike, by_c, by_perform, by_whole_arrays, numbers

#: Each case has a window, a stride, a padding, and a flag to ignore partial regions at the end.
GEOMETRIES = [
    ((2, 2), (2, 2), (0, 0), True),
    ((2, 3), (1, 2), (0, 0), True),
    ((3, 3), (2, 2), (1, 1), True),
    ((2, 2), (2, 2), (0, 0), False),
    ((3, 2), (2, 3), (0, 0), False),
    ((2, 2), (3, 3), (0, 0), False),
]
MODES = ["max", "sum", "average_inc_pad", "average_exc_pad"]
X = numbers((2, 3, 7, 8))
X[0, 0, :4, :4] = 1  # ties


def geometry_of(window, stride, pad):
    return [np.array(part, "int64") for part in (window, stride, pad)]


def cases(mode, window, stride, pad, ignores):
    """Return nodes for a pooling mode, its gradient and that gradient's gradient, each with its arrays."""
    tensor, sizes = tt.dtensor4, tt.lvectors(3)
    geometry = geometry_of(window, stride, pad)
    forward = pool.Pool(ignore_border=ignores, mode=mode).make_node(tensor(), *sizes), [X, *geometry]
    (out,) = by_whole_arrays(*forward)
    top = numbers(out.shape, 3)
    if mode == "average_exc_pad" and any(pad):
        return [forward]  # its gradient is not defined
    if mode != "max":
        gradient = pool.AveragePoolGrad(ignore_border=ignores, mode=mode).make_node(tensor(), tensor(), *sizes)
        return [forward, (gradient, [X, top, *geometry])]
    gradient = pool.MaxPoolGrad(ignore_border=ignores).make_node(tensor(), tensor(), tensor(), *sizes)
    second = pool.DownsampleFactorMaxGradGrad(ignore_border=ignores).make_node(tensor(), tensor(), tensor(), *sizes)
    return [forward, (gradient, [X, out, top, *geometry]), (second, [X, out, numbers(X.shape, 4), *geometry])]


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_as_c_computes_them(mode, geometry):
    for node, arrays in cases(mode, *geometry):
        assert_alike(by_whole_arrays(node, arrays), by_c(node, arrays))


@pytest.mark.parametrize("mode", MODES)
def test_as_perform_computes_them(mode):
    for node, arrays in cases(mode, (2, 2), (2, 2), (0, 0), True)[:1]:
        assert_alike(by_whole_arrays(node, arrays), by_perform(node, arrays))


def test_three_dimensions_below_two_others():
    x, sizes = tt.TensorType("float64", [False] * 5), tt.lvectors(3)
    node = pool.Pool(ignore_border=True, ndim=3).make_node(x(), *sizes)
    values = numbers((2, 1, 4, 6, 4))
    (out,) = by_whole_arrays(node, [values, *geometry_of((2, 3, 2), (2, 3, 2), (0, 0, 0))])
    np.testing.assert_array_equal(out, values.reshape(2, 1, 2, 2, 2, 3, 2, 2).max(axis=(3, 5, 7)))


def test_infinities_win_over_padding():
    values = np.full((1, 1, 3, 3), -np.inf)
    node = pool.Pool(ignore_border=True).make_node(tt.dtensor4(), *tt.lvectors(3))
    (out,) = by_whole_arrays(node, [values, *geometry_of((2, 2), (2, 2), (1, 1))])
    assert (out == -np.inf).all()


def test_the_gradient_of_averages_without_padding_takes_no_padding():
    op = pool.AveragePoolGrad(ignore_border=True, mode="average_exc_pad")
    node = op.make_node(tt.dtensor4(), tt.dtensor4(), *tt.lvectors(3))
    with pytest.raises(ValueError, match="padding must be zero"):
        by_whole_arrays(node, [X, numbers((2, 3, 4, 4)), *geometry_of((3, 3), (2, 2), (1, 1))])


def test_an_infinite_gradient_reaches_the_largest_alone():
    node = pool.MaxPoolGrad(ignore_border=True).make_node(*(tt.dtensor4() for _ in range(3)), *tt.lvectors(3))
    x = np.arange(4.0).reshape(1, 1, 2, 2)
    arrays = [x, x[..., 1:, 1:], np.full((1, 1, 1, 1), np.inf), *geometry_of((2, 2), (2, 2), (0, 0))]
    (gradient,) = by_whole_arrays(node, arrays)
    np.testing.assert_array_equal(gradient, [[[[0, 0], [0, np.inf]]]])


def test_nothing_to_pool():
    node = pool.Pool(ignore_border=True).make_node(tt.dtensor4(), *tt.lvectors(3))
    (out,) = by_whole_arrays(node, [numbers((0, 2, 4, 4)), *geometry_of((2, 2), (2, 2), (0, 0))])
    assert out.shape == (0, 2, 2, 2)


def test_sizes_that_are_not_one_for_each_dimension():
    node = pool.Pool(ignore_border=True).make_node(tt.dtensor4(), *tt.lvectors(3))
    with pytest.raises((ValueError, IndexError)):
        by_whole_arrays(node, [X, *geometry_of((2,), (2,), (0,))])
