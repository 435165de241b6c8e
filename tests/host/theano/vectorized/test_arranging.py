"""Incrementing rows and taking windows of images on whole arrays agrees with ``perform``."""

from __future__ import annotations

import numpy as np
import pytest
import theano.tensor as tt
from theano.tensor.nnet.neighbours import Images2Neibs
from theano.tensor.subtensor import AdvancedIncSubtensor1

from tests.host.theano.vectorized.nodes import assert_alike, by_perform, by_whole_arrays, numbers


def node_of(x, y, **options):
    types = [tt.TensorType(str(array.dtype), [False] * array.ndim) for array in (x, y)]
    return AdvancedIncSubtensor1(**options).make_node(*(kind() for kind in types), tt.lvector())


INDICES = [[0, 2, 1], [2, 2, 2], [-1, 4, 0, 4, -5], [3], []]


@pytest.mark.parametrize("indices", INDICES, ids=str)
@pytest.mark.parametrize("dtype", ["float64", "float32", "int8"])
@pytest.mark.parametrize("sets", [False, True])
@pytest.mark.parametrize("shape", [(5,), (5, 3), (5, 2, 3)], ids=str)
def test_rows(shape, sets, dtype, indices):
    x = (numbers(shape) * 40).astype(dtype)
    y = (numbers((len(indices), *shape[1:]), 1) * 90).astype(dtype)
    node, before = node_of(x, y, set_instead_of_inc=sets), x.copy()
    indices = np.array(indices, "int64")
    assert_alike(by_whole_arrays(node, [x, y, indices]), by_perform(node, [x, y, indices]), rtol=1e-5)
    np.testing.assert_array_equal(x, before)


def test_in_place():
    x = numbers((4, 2))
    before = x.copy()
    (out,) = by_whole_arrays(node_of(x, x, inplace=True), [x, np.ones((3, 2)), np.array([1, 1, 3])])
    assert out is x
    np.testing.assert_allclose(out, before + np.array([0, 2, 0, 1])[:, None])


def test_one_row_for_all():
    x, y = numbers((4, 2)), numbers((1, 2), 1)
    node = node_of(x, y)
    arrays = [x, y, np.array([1, 1, 0])]
    assert_alike(by_whole_arrays(node, arrays), by_perform(node, arrays))


@pytest.mark.parametrize("index", [4, -5])
def test_no_such_row(index):
    x = numbers((4, 2))
    with pytest.raises(IndexError):
        by_whole_arrays(node_of(x, x), [x, x[:1], np.array([index])])


def test_other_lengths():
    x = numbers((4, 2))
    with pytest.raises(ValueError, match="broadcast"):
        by_whole_arrays(node_of(x, x), [x, x, np.array([0, 1])])


MODES = ["valid", "ignore_borders", "wrap_centered", "half", "full"]
WINDOWS = [((3, 3), (1, 1)), ((3, 1), (2, 1)), ((2, 2), (2, 2)), ((5, 3), (3, 2)), ((4, 5), (1, 3)), ((1, 1), (9, 9))]


def images_node(mode):
    return Images2Neibs(mode).make_node(tt.dtensor4(), tt.lvector(), tt.lvector())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sizes, steps", WINDOWS, ids=str)
@pytest.mark.parametrize("shape", [(2, 3, 6, 7), (1, 1, 5, 4), (0, 2, 5, 5)], ids=str)
def test_windows(shape, sizes, steps, mode):
    node, arrays = images_node(mode), [numbers(shape), np.array(sizes), np.array(steps)]
    try:
        expected = by_perform(node, arrays)
    except (TypeError, ValueError) as error:
        with pytest.raises(type(error)):
            by_whole_arrays(node, arrays)
    else:
        results = by_whole_arrays(node, arrays)
        assert_alike(results, expected)
        assert not np.shares_memory(results[0], arrays[0])


@pytest.mark.parametrize("sizes, steps", [((0, 1), (1, 1)), ((1, 1), (1, -1))], ids=str)
def test_wrong_windows(sizes, steps):
    with pytest.raises(ValueError, match="neib_"):
        by_whole_arrays(images_node("valid"), [numbers((1, 1, 3, 3)), np.array(sizes), np.array(steps)])
