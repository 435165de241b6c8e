"""Softmax and cross-entropy over rows; ``perform`` computes them row by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from theano.tensor.nnet import nnet

from optdb.host.api.graph import Apply
from optdb.host.theano.vectorized.registry import Compute, computes, quiet


def _assert_labels(labels: np.ndarray, classes: int) -> None:
    """Raise ValueError for labels without a class, as the C code does."""
    if labels.size and (labels.min() < 0 or labels.max() >= classes):
        raise ValueError("y_i value out of bounds")


@computes(nnet.SoftmaxGrad)
def _softmax_gradient(node: Apply) -> Compute:
    def compute(inputs: Sequence[Any], storage: Sequence[list[Any]]) -> None:
        top, softmax = inputs
        product = top * softmax
        gradient = product - product.sum(axis=1, keepdims=True) * softmax
        storage[0][0] = gradient.astype(softmax.dtype, copy=False)

    return quiet(compute)


@computes(nnet.CrossentropySoftmaxArgmax1HotWithBias)
def _cross_entropy_of_softmax(node: Apply) -> Compute:
    dtypes = [var.type.dtype for var in node.outputs]

    def compute(inputs: Sequence[Any], storage: Sequence[list[Any]]) -> None:
        x, bias, labels = inputs
        if bias.shape[0] != x.shape[1]:
            raise ValueError("b must have same number of columns as x")
        if labels.shape[0] != x.shape[0]:
            raise ValueError("y_idx must have same number of rows as x")
        _assert_labels(labels, x.shape[1])
        results = _loss_and_softmax(x + bias, labels) if x.size else _of_nothing(x)
        for cell, result, dtype in zip(storage, results, dtypes, strict=True):
            cell[0] = result.astype(dtype, copy=False)

    return quiet(compute)


def _loss_and_softmax(rows: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    numbers = np.arange(len(rows))
    largest = rows.argmax(axis=1)
    deviations = rows - rows[numbers, largest][:, None]
    softmax = np.exp(deviations)
    sums = softmax.sum(axis=1)
    softmax /= sums[:, None]
    return np.log(sums) - deviations[numbers, labels], softmax, largest


def _of_nothing(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.zeros(x.shape[0]), np.zeros(x.shape), np.zeros(x.shape[0])


@computes(nnet.CrossentropySoftmax1HotWithBiasDx)
def _cross_entropy_gradient(node: Apply) -> Compute:
    dtype = node.outputs[0].type.dtype

    def compute(inputs: Sequence[Any], storage: Sequence[list[Any]]) -> None:
        top, softmax, labels = inputs
        _assert_labels(labels, softmax.shape[1])
        factors = np.broadcast_to(top, softmax.shape[:1])
        gradient = (softmax * factors[:, None]).astype(dtype, copy=False)
        gradient[np.arange(len(softmax)), labels] -= factors
        storage[0][0] = gradient

    return quiet(compute)


@computes(nnet.CrossentropyCategorical1Hot)
def _cross_entropy(node: Apply) -> Compute:
    def compute(inputs: Sequence[Any], storage: Sequence[list[Any]]) -> None:
        coding, labels = inputs
        storage[0][0] = -np.log(coding[np.arange(len(coding)), labels])

    return quiet(compute)


@computes(nnet.CrossentropyCategorical1HotGrad)
def _categorical_gradient(node: Apply) -> Compute:
    def compute(inputs: Sequence[Any], storage: Sequence[list[Any]]) -> None:
        top, coding, labels = inputs
        numbers = np.arange(len(top))
        gradient = np.zeros_like(coding)
        gradient[numbers, labels] = -top / coding[numbers, labels]
        storage[0][0] = gradient

    return quiet(compute)
