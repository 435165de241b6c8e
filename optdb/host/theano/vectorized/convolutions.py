"""Computes convolutions as matrix products; the windows of a few images at a time are laid out as columns (im2col).

The groups of a convolution form a batch axis of the products. Unshared and integer convolutions use ``perform``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from theano.tensor.nnet import abstract_conv
from theano.tensor.nnet.corr import CorrMM, CorrMM_gradInputs, CorrMM_gradWeights
from theano.tensor.nnet.corr3d import Corr3dMM, Corr3dMM_gradInputs, Corr3dMM_gradWeights

from optdb.host.api.graph import Apply
from optdb.host.theano.vectorized.registry import Compute, computes, quiet

#: The number of column elements that are laid out at a time, for one or several images.
_COLUMNS = 1 << 19


@dataclass(frozen=True)
class Geometry:
    """The attributes of a convolution that determine which elements are multiplied."""

    dimensions: int
    border_mode: Any
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    #: Whether the filters are flipped, as in a convolution but not in a correlation.
    flips: bool
    dtype: str

    @classmethod
    def of(cls, node: Apply) -> Geometry | None:
        """Return the geometry of a node; None if it must use ``perform``."""
        op: Any = node.op  # an instance of one of several classes with the same attributes
        dtype = node.outputs[0].type.dtype
        if getattr(op, "unshared", False) or not dtype.startswith("float"):
            return None
        return cls(
            dimensions=len(op.subsample),
            border_mode=op.border_mode,
            stride=tuple(op.subsample),
            dilation=tuple(op.filter_dilation),
            groups=op.num_groups,
            flips=getattr(op, "filter_flip", False),
            dtype="float32" if dtype == "float16" else dtype,
        )

    def pads(self, kernel: Sequence[int]) -> list[tuple[int, int]]:
        """Return the padding before and after each dimension, for filters of a given size."""
        return list(abstract_conv.border_mode_to_pad(self.border_mode, self.dimensions, self.extent(kernel)))

    def extent(self, kernel: Sequence[int]) -> tuple[int, ...]:
        """Return the number of elements that a dilated filter spans in each dimension."""
        return tuple((size - 1) * dilation + 1 for size, dilation in zip(kernel, self.dilation, strict=True))

    def flipped(self, kernel: np.ndarray) -> np.ndarray:
        """Return the filters in the orientation of a correlation."""
        backwards: tuple[slice | EllipsisType, ...] = (..., *(slice(None, None, -1),) * self.dimensions)
        return kernel[backwards] if self.flips else kernel


def forward(geometry: Geometry, images: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """Return the convolution of images (batch, channels, ...) with filters (filters, channels of a group, ...)."""
    size = kernel.shape[2:]
    windows = _windows(geometry, _padded(images, geometry.pads(size), geometry.dtype), size)
    outside = windows.shape[2 + len(size) :]
    out = np.empty((images.shape[0], kernel.shape[0], *outside), geometry.dtype)
    weights = _grouped_kernel(geometry, kernel)
    grouped = out.reshape(images.shape[0], *weights.shape[:2], math.prod(outside))
    for chunk, columns in _columns(geometry, windows):
        np.matmul(weights, columns, out=grouped[chunk])
    return out


def kernel_gradient(geometry: Geometry, images: np.ndarray, top: np.ndarray, size: Sequence[int]) -> np.ndarray:
    """Return the gradient with respect to the filters, which have the spatial lengths `size`."""
    windows = _windows(geometry, _padded(images, geometry.pads(size), geometry.dtype), size)
    _assert_same(windows.shape[2 + len(size) :], top.shape[2:])
    grouped = _grouped_top(geometry, top)
    total = np.zeros(
        (geometry.groups, grouped.shape[2], windows.shape[1] // geometry.groups * math.prod(size)), grouped.dtype
    )
    for chunk, columns in _columns(geometry, windows):
        for top_of_image, of_image in zip(grouped[chunk], columns, strict=True):
            total += np.matmul(top_of_image, of_image.transpose(0, 2, 1))
    gradient = total.reshape(top.shape[1], windows.shape[1] // geometry.groups, *size)
    return np.ascontiguousarray(geometry.flipped(gradient))


def image_gradient(geometry: Geometry, kernel: np.ndarray, top: np.ndarray, inside: Sequence[int]) -> np.ndarray:
    """Return the gradient with respect to the images, which have the spatial lengths `inside`."""
    size = kernel.shape[2:]
    pads = geometry.pads(size)
    channels = kernel.shape[1] * geometry.groups
    padded = [length + before + after for length, (before, after) in zip(inside, pads, strict=True)]
    gradient = np.zeros((top.shape[0], channels, *padded), geometry.dtype)
    windows = _windows(geometry, gradient, size)
    _assert_same(windows.shape[2 + len(size) :], top.shape[2:])
    weights = np.ascontiguousarray(_grouped_kernel(geometry, kernel).transpose(0, 2, 1))
    grouped = _grouped_top(geometry, top)
    for chunk in _chunks(windows):
        columns = np.matmul(weights, grouped[chunk]).reshape(windows[chunk].shape)
        for offset in np.ndindex(*size):
            # Add the columns of one offset at a time: at the same offset, no two windows share an element.
            at: tuple[slice | int, ...] = (slice(None), slice(None), *offset)
            windows[chunk][at] += columns[at]
    whole = (slice(None), slice(None))
    kept = tuple(slice(before, before + length) for length, (before, _) in zip(inside, pads, strict=True))
    return np.ascontiguousarray(gradient[whole + kept])


def _padded(images: np.ndarray, pads: Sequence[tuple[int, int]], dtype: str) -> np.ndarray:
    if not any(before or after for before, after in pads):
        return images.astype(dtype, copy=False)
    lengths = [length + before + after for length, (before, after) in zip(images.shape[2:], pads, strict=True)]
    padded = np.zeros((*images.shape[:2], *lengths), dtype)
    inner = tuple(slice(before, before + n) for n, (before, _) in zip(images.shape[2:], pads, strict=True))
    padded[(slice(None), slice(None), *inner)] = images
    return padded


def _windows(geometry: Geometry, images: np.ndarray, size: Sequence[int]) -> np.ndarray:
    """Return the windows of images as a view, of shape (batch, channels, ...size, ...positions)."""
    lengths = images.shape[2:]
    extent = geometry.extent(size)
    if any(reach > length + 1 for reach, length in zip(extent, lengths, strict=True)):
        raise ValueError(f"Filters of extent {extent} exceed images of {lengths}, including borders")
    positions = [
        (length - reach) // stride + 1 for length, reach, stride in zip(lengths, extent, geometry.stride, strict=True)
    ]
    strides = images.strides[2:]
    return as_strided(
        images,
        (*images.shape[:2], *size, *positions),
        (
            *images.strides[:2],
            *(stride * step for stride, step in zip(strides, geometry.dilation, strict=True)),
            *(stride * step for stride, step in zip(strides, geometry.stride, strict=True)),
        ),
    )


def _chunks(windows: np.ndarray) -> Iterator[slice]:
    step = max(1, _COLUMNS // max(1, math.prod(windows.shape[1:])))
    return (slice(start, start + step) for start in range(0, windows.shape[0], step))


def _columns(geometry: Geometry, windows: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """For each part of the batch, yield its slice, and its columns of shape (images, groups, rows, positions)."""
    _, channels, *rest = windows.shape
    size, positions = rest[: geometry.dimensions], rest[geometry.dimensions :]
    rows = channels // geometry.groups * math.prod(size)
    for chunk in _chunks(windows):
        part = windows[chunk]
        yield chunk, part.reshape(part.shape[0], geometry.groups, rows, math.prod(positions))


def _grouped_kernel(geometry: Geometry, kernel: np.ndarray) -> np.ndarray:
    """Return filters as matrices, of shape (groups, filters of a group, rows of the columns)."""
    groups, (filters, channels, *size) = geometry.groups, kernel.shape
    matrices = geometry.flipped(kernel).astype(geometry.dtype, copy=False)
    return np.ascontiguousarray(matrices).reshape(groups, filters // groups, channels * math.prod(size))


def _grouped_top(geometry: Geometry, top: np.ndarray) -> np.ndarray:
    batch, filters, *positions = top.shape
    dense = np.ascontiguousarray(top.astype(geometry.dtype, copy=False))
    return dense.reshape(batch, geometry.groups, filters // geometry.groups, math.prod(positions))


def _assert_same(expected: Sequence[int], positions: Sequence[int]) -> None:
    if tuple(expected) != tuple(positions):
        raise ValueError(
            f"These shapes give an output of {tuple(expected)}, but the gradient of the output has {tuple(positions)}"
        )


def _assert_channels(geometry: Geometry, images: np.ndarray, kernel: np.ndarray) -> None:
    channels, groups = kernel.shape[1] * geometry.groups, geometry.groups
    if images.shape[1] != channels or kernel.shape[0] % groups:
        raise ValueError(
            f"Images of shape {images.shape} do not match filters of shape {kernel.shape} in {groups} groups"
        )


def _computing(node: Apply, compute: Callable[[Geometry, Sequence[Any]], np.ndarray]) -> Compute | None:
    geometry, dtype = Geometry.of(node), node.outputs[0].type.dtype
    if geometry is None:
        return None

    def compute_node(inputs: Sequence[Any], storage: Sequence[list[Any]]) -> None:
        storage[0][0] = compute(geometry, inputs).astype(dtype, copy=False)

    return quiet(compute_node)


@computes(abstract_conv.AbstractConv, CorrMM, Corr3dMM)
def _forward(node: Apply) -> Compute | None:
    def compute(geometry: Geometry, inputs: Sequence[Any]) -> np.ndarray:
        images, kernel = inputs
        _assert_channels(geometry, images, kernel)
        return forward(geometry, images, kernel)

    return _computing(node, compute)


@computes(abstract_conv.AbstractConv_gradWeights, CorrMM_gradWeights, Corr3dMM_gradWeights)
def _kernel_gradient(node: Apply) -> Compute | None:
    def compute(geometry: Geometry, inputs: Sequence[Any]) -> np.ndarray:
        images, top, *size = inputs
        if images.shape[0] != top.shape[0] or images.shape[1] % geometry.groups or top.shape[1] % geometry.groups:
            raise ValueError(f"Images of shape {images.shape} do not match a gradient of shape {top.shape}")
        lengths = _lengths(size) if size else _size_of_filters(geometry, images.shape[2:], top.shape[2:])
        return kernel_gradient(geometry, images, top, lengths)

    return _computing(node, compute)


@computes(abstract_conv.AbstractConv_gradInputs, CorrMM_gradInputs, Corr3dMM_gradInputs)
def _image_gradient(node: Apply) -> Compute | None:
    def compute(geometry: Geometry, inputs: Sequence[Any]) -> np.ndarray:
        kernel, top, *size = inputs
        if kernel.shape[0] != top.shape[1]:
            raise ValueError(f"Filters of shape {kernel.shape} do not match a gradient of shape {top.shape}")
        lengths = _lengths(size) if size else _size_of_images(geometry, kernel.shape[2:], top.shape[2:])
        _assert_output(geometry, (top.shape[0], kernel.shape[1] * geometry.groups, *lengths), kernel, top)
        return image_gradient(geometry, kernel, top, lengths)

    return _computing(node, compute)


def _assert_output(geometry: Geometry, images: Sequence[int], kernel: np.ndarray, top: np.ndarray) -> None:
    shape = abstract_conv.get_conv_output_shape(
        images, kernel.shape, geometry.border_mode, geometry.stride, geometry.dilation
    )
    if tuple(shape) != top.shape:
        raise ValueError(
            f"invalid input_shape for gradInputs: the given input_shape would produce an output of shape "
            f"{tuple(shape)}, but the given topgrad has shape {top.shape}"
        )


def _lengths(inputs: Sequence[Any]) -> tuple[int, ...]:
    return tuple(int(length) for part in inputs for length in np.atleast_1d(part))


def _size_of_filters(geometry: Geometry, images: Sequence[int], top: Sequence[int]) -> tuple[int, ...]:
    """Return the size that the filters have if the stride is 1."""
    if geometry.border_mode == "full":
        reach = [above - length + 1 for length, above in zip(images, top, strict=True)]
    else:
        pads = geometry.pads((1,) * geometry.dimensions)
        reach = [
            length + before + after - above + 1
            for length, (before, after), above in zip(images, pads, top, strict=True)
        ]
    return tuple((length - 1) // dilation + 1 for length, dilation in zip(reach, geometry.dilation, strict=True))


def _size_of_images(geometry: Geometry, kernel: Sequence[int], top: Sequence[int]) -> tuple[int, ...]:
    """Return the size that the images have if the stride is 1."""
    bounds = zip(top, geometry.extent(kernel), geometry.pads(kernel), strict=True)
    return tuple(above + reach - 1 - before - after for above, reach, (before, after) in bounds)
