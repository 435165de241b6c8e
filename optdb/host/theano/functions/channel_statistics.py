"""Ops for the statistics that devices exchange in batch normalization.

A channel consists of the elements that are normalized together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from theano.tensor import TensorType, as_tensor_variable, constant, mul
from theano.tensor.var import TensorVariable

from optdb.host.api.graph import Apply, Op

NUMBERS = 3


class _ChannelStatistics(Op):
    """Base class of ops that return `NUMBERS` statistics per channel as a vector, sorted by statistic."""

    __props__ = ("axes",)
    _f16_ok = True

    def __init__(self, axes: Sequence[int]) -> None:
        self.axes = tuple(axes)

    def make_node(self, *inputs: Any) -> Apply:
        """Make a node for arrays of floats; the statistics of float16 arrays are float32."""
        arrays = [as_tensor_variable(x) for x in inputs]
        dtype = arrays[0].type.dtype
        if not dtype.startswith("float"):
            raise TypeError(f"{self} normalizes floats, not arrays of {dtype}")
        return Apply(self, arrays, [TensorType("float32" if dtype == "float16" else dtype, [False])()])

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: Sequence[list[Any]]) -> None:
        with np.errstate(all="ignore"):  # infinities and NaNs are propagated to the results
            numbers = self._numbers(*(np.asarray(x, "float64") for x in inputs), node.outputs[0].type.dtype)
        vector = np.concatenate([np.ravel(number) for number in numbers])
        output_storage[0][0] = vector.astype(node.outputs[0].type.dtype)

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        kept = [length for axis, length in enumerate(shapes[0]) if axis not in self.axes]
        return [(mul(*kept, constant(NUMBERS, dtype="int64"), constant(1, dtype="int64")),)]

    def _numbers(self, *arrays: Any) -> list[np.ndarray]:
        raise NotImplementedError

    def _sum(self, x: np.ndarray) -> np.ndarray:
        return x.sum(self.axes, keepdims=True)


class ChannelMoments(_ChannelStatistics):
    """Means, their rounding errors, and the sums of squared deviations from the means.

    The input is the array to be normalized.
    """

    def _numbers(self, x: np.ndarray, dtype: str) -> list[np.ndarray]:
        mean = x.mean(self.axes, keepdims=True)
        rest = np.where(np.isfinite(mean), mean - mean.astype(dtype), 0.0)
        return [mean, rest, self._sum((x - mean) ** 2)]


class ChannelGradientSums(_ChannelStatistics):
    """The gradients of the channels' scales and biases, and sums of deviations from the means.

    The inputs are the array, the gradient of the normalized array, and the means and inverse deviations.
    """

    def _numbers(
        self, x: np.ndarray, dy: np.ndarray, mean: np.ndarray, inverse: np.ndarray, dtype: str
    ) -> list[np.ndarray]:
        off = x - mean
        return [self._sum(dy * off) * inverse, self._sum(dy), self._sum(off)]


def of_channels(
    x: TensorVariable, axes: Sequence[int], vector: TensorVariable, number: int, count: int
) -> TensorVariable:
    """Extract one of `count` statistics from a vector; return it as an array whose length along `axes` is 1."""
    lengths = [x.shape[axis] for axis in range(x.type.ndim) if axis not in axes]
    size = mul(*lengths, constant(1, dtype="int64"), constant(1, dtype="int64"))
    part: TensorVariable = vector.reshape((count, size))[number] if count > 1 else vector
    kept = part.reshape(lengths, ndim=len(lengths))
    order = iter(range(len(lengths)))
    return kept.dimshuffle(*("x" if axis in axes else next(order) for axis in range(x.type.ndim)))
