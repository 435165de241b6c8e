"""Softmax and cross entropy, computed on whole arrays, agree with ``perform``."""

from __future__ import annotations

import numpy as np
import pytest
import theano.tensor as tt
from theano.tensor.nnet import nnet

from tests.host.theano.vectorized.nodes import assert_alike, by_perform, by_whole_arrays, numbers

LABELS = np.array([0, 4, 2, 2], "int32")


def cases():
    matrix, vector, labels = tt.dmatrix, tt.dvector, tt.ivector
    x, softmax = numbers((4, 5)), nnet.Softmax()(tt.dmatrix())
    probabilities = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    assert softmax.ndim == 2
    return [
        (nnet.SoftmaxGrad().make_node(matrix(), matrix()), [x, probabilities]),
        (
            nnet.CrossentropySoftmaxArgmax1HotWithBias().make_node(matrix(), vector(), labels()),
            [x * 50, numbers(5, 1), LABELS],
        ),
        (
            nnet.CrossentropySoftmax1HotWithBiasDx().make_node(vector(), matrix(), labels()),
            [numbers(4, 2), probabilities, LABELS],
        ),
        (
            nnet.CrossentropySoftmax1HotWithBiasDx().make_node(tt.dscalar(), matrix(), labels()),
            [np.asarray(0.5), probabilities, LABELS],
        ),
        (nnet.CrossentropyCategorical1Hot().make_node(matrix(), tt.lvector()), [probabilities, LABELS.astype("int64")]),
        (
            nnet.CrossentropyCategorical1HotGrad().make_node(vector(), matrix(), tt.lvector()),
            [numbers(4, 2), probabilities, LABELS.astype("int64")],
        ),
    ]


@pytest.mark.parametrize("node, arrays", cases(), ids=lambda value: str(value.op) if hasattr(value, "op") else "")
def test_as_perform_computes_them(node, arrays):
    before = [array.copy() for array in arrays]
    assert_alike(by_whole_arrays(node, arrays), by_perform(node, before))
    for array, old in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, old)


@pytest.mark.parametrize("label", [-1, 5])
@pytest.mark.parametrize("index", [1, 2])
def test_labels_that_name_no_class(index, label):
    node, arrays = cases()[index]
    with pytest.raises(ValueError, match="out of bounds"):
        by_whole_arrays(node, [*arrays[:2], np.full(4, label, "int32")])


@pytest.mark.parametrize("shape", [(0, 5), (3, 5)])
def test_other_numbers_of_rows(shape):
    node, (_, bias, labels) = cases()[1]
    if shape[0]:
        with pytest.raises(ValueError, match="same number of rows"):
            by_whole_arrays(node, [numbers(shape), bias, labels])
        return
    results = by_whole_arrays(node, [numbers(shape), bias, labels[:0]])
    assert [result.shape for result in results] == [(0,), shape, (0,)]
