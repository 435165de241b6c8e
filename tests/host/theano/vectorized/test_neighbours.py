"""Windows of images as rows, compared with ``perform``."""

from __future__ import annotations

import numpy as np
import pytest
import theano.tensor as tt
from theano.tensor.nnet.neighbours import Images2Neibs

from tests.host.theano.vectorized.nodes import assert_alike, by_perform, by_whole_arrays, numbers

MODES = ["valid", "ignore_borders", "wrap_centered", "half", "full"]
WINDOWS = [((3, 3), (1, 1)), ((3, 1), (2, 1)), ((2, 2), (2, 2)), ((5, 3), (3, 2)), ((4, 5), (1, 3)), ((1, 1), (9, 9))]


def node_of(mode):
    return Images2Neibs(mode).make_node(tt.dtensor4(), tt.lvector(), tt.lvector())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sizes, steps", WINDOWS, ids=str)
@pytest.mark.parametrize("shape", [(2, 3, 6, 7), (1, 1, 5, 4), (0, 2, 5, 5)], ids=str)
def test_windows(shape, sizes, steps, mode):
    node, arrays = node_of(mode), [numbers(shape), np.array(sizes), np.array(steps)]
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
        by_whole_arrays(node_of("valid"), [numbers((1, 1, 3, 3)), np.array(sizes), np.array(steps)])
