"""Pooling and its gradients: one pass over the images for each element of a window.

The maximum never comes from the padding. Regions that extend beyond the border (``ignore_border=False``) are cut off
there.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from theano.tensor.signal.pool import AveragePoolGrad, DownsampleFactorMaxGradGrad, MaxPoolGrad, Pool

from optdb.host.api.graph import Apply
from optdb.host.theano.vectorized.registry import Compute, computes, quiet


class _Regions:
    def __init__(self, lengths: Sequence[int], counts: Sequence[int], window: Any, stride: Any, pad: Any) -> None:
        self.lengths = tuple(lengths)
        self.counts = tuple(counts)
        self.window, self.stride, self.pad = (tuple(int(n) for n in part) for part in (window, stride, pad))

    def padded(self, array: np.ndarray, fill: float) -> np.ndarray:
        lengths = [
            max(length + 2 * pad, (count - 1) * stride + window)
            for length, pad, count, stride, window in zip(
                self.lengths, self.pad, self.counts, self.stride, self.window, strict=True
            )
        ]
        if tuple(lengths) == self.lengths:
            return array
        padded = np.full((*array.shape[: -len(lengths)], *lengths), fill, array.dtype)
        padded[self.inner] = array
        return padded

    @property
    def inner(self) -> tuple[Any, ...]:
        return (..., *(slice(pad, pad + length) for pad, length in zip(self.pad, self.lengths, strict=True)))

    def offsets(self) -> Iterator[tuple[Any, ...]]:
        """For each element of a window, yield the index that selects this element in all regions."""
        starts = itertools.product(*map(range, self.window))
        for start in starts:
            yield (
                ...,
                *(
                    slice(first, first + (count - 1) * stride + 1, stride)
                    for first, count, stride in zip(start, self.counts, self.stride, strict=True)
                ),
            )

    def sizes(self, counts_padding: bool, dtype: np.dtype) -> np.ndarray:
        """Return the number of elements in each region; count padding if `counts_padding`, but nothing beyond it."""
        total = np.ones((), dtype)
        for length, pad, count, stride, window in zip(
            self.lengths, self.pad, self.counts, self.stride, self.window, strict=True
        ):
            first = np.arange(count) * stride
            last = first + window
            low, high = (0, length + 2 * pad) if counts_padding else (pad, pad + length)
            along = np.minimum(last, high) - np.maximum(first, low)
            total = np.multiply.outer(total, along.astype(dtype))
        return total


def _regions(op: Any, x: np.ndarray, counts: Sequence[int], geometry: Sequence[Any]) -> _Regions:
    """Return the regions of a node; raise an error if a parameter has the wrong length or `x` has too few axes."""
    if any(part.shape != (op.ndim,) for part in geometry):
        raise ValueError(f"window, stride and padding of {op} need {op.ndim} numbers each")
    if x.ndim < op.ndim:
        raise NotImplementedError(f"{op} requires input with {op.ndim} or more dimensions")
    return _Regions(x.shape[-op.ndim :], counts, *geometry)


def _is_of_floats(node: Apply) -> bool:
    return node.outputs[0].type.dtype in ("float32", "float64")


def _computing(node: Apply, compute: Callable[..., np.ndarray]) -> Compute | None:
    if not _is_of_floats(node):
        return None
    dtype = node.outputs[0].type.dtype

    def compute_node(inputs: Sequence[Any], storage: Sequence[list[Any]]) -> None:
        storage[0][0] = compute(node.op, *inputs).astype(dtype, copy=False)

    return quiet(compute_node)


def _pooled(op: Pool, x: np.ndarray, *geometry: np.ndarray) -> np.ndarray:
    window, stride, pad = geometry
    if x.ndim < op.ndim:
        raise NotImplementedError(f"{op} requires input with {op.ndim} or more dimensions")
    shape = [int(n) for n in op.out_shape(x.shape, window, op.ignore_border, stride, pad, op.ndim)]
    regions = _regions(op, x, shape[-op.ndim :], geometry)
    is_max = op.mode == "max"
    padded = regions.padded(x, -np.inf if is_max else 0)
    out = np.full(shape, -np.inf if is_max else 0, x.dtype)
    if not math.prod(shape):
        return out
    combine = np.maximum if is_max else np.add
    for index in regions.offsets():
        combine(out, padded[index], out)
    if op.mode.startswith("average"):
        out /= regions.sizes(op.mode == "average_inc_pad", out.dtype)
    return out


def _in_regions(regions: _Regions, x: np.ndarray, add: Callable[[np.ndarray, tuple[Any, ...]], None]) -> np.ndarray:
    """Call `add` on a padded array of zeros, once for each offset in a window; return the array without padding."""
    gradient = regions.padded(np.zeros(x.shape, x.dtype), 0)
    if gradient.size:
        for index in regions.offsets():
            add(gradient, index)
    return np.ascontiguousarray(gradient[regions.inner])


def _gradient_of_maximum(
    op: MaxPoolGrad, x: np.ndarray, largest: np.ndarray, top: np.ndarray, *geometry: np.ndarray
) -> np.ndarray:
    regions = _regions(op, x, largest.shape[-op.ndim :], geometry)
    padded = regions.padded(x, -np.inf)

    def add(gradient: np.ndarray, index: tuple[Any, ...]) -> None:
        view = gradient[index]
        np.add(view, top, out=view, where=padded[index] == largest)  # no multiplication: infinity times zero is NaN

    return _in_regions(regions, x, add)


def _gradient_of_average(op: AveragePoolGrad, x: np.ndarray, top: np.ndarray, *geometry: np.ndarray) -> np.ndarray:
    regions = _regions(op, x, top.shape[-op.ndim :], geometry)
    if op.mode == "average_exc_pad" and any(regions.pad):
        raise ValueError("padding must be zero for average_exc_pad")
    shares = top if op.mode == "sum" else top / regions.sizes(op.mode == "average_inc_pad", top.dtype)

    def add(gradient: np.ndarray, index: tuple[Any, ...]) -> None:
        gradient[index] += shares

    return _in_regions(regions, x, add)


def _second_gradient_of_maximum(
    op: DownsampleFactorMaxGradGrad, x: np.ndarray, largest: np.ndarray, ggx: np.ndarray, *geometry: np.ndarray
) -> np.ndarray:
    regions = _regions(op, x, largest.shape[-op.ndim :], geometry)
    padded, directions = regions.padded(x, -np.inf), regions.padded(ggx, 0)
    out = np.zeros(largest.shape, x.dtype)
    if out.size:
        for index in regions.offsets():
            np.add(out, directions[index], out=out, where=padded[index] == largest)
    return out


for _op, _compute in (
    *((Pool, _pooled), (MaxPoolGrad, _gradient_of_maximum), (AveragePoolGrad, _gradient_of_average)),
    (DownsampleFactorMaxGradGrad, _second_gradient_of_maximum),
):
    computes(_op)(functools.partial(_computing, compute=_compute))
