"""Cases for the layers of neural networks, such as convolutions, pooling, batch normalization and image patches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from memcheck.case import Case, Given, Number, array, floats
from optdb.opencl.ops.batch_norm import (
    OpenCLBatchNormInference,
    OpenCLBatchNormTrain,
    OpenCLBatchNormTrainGrad,
    OpenCLChannelGradientSums,
    OpenCLChannelMoments,
)
from optdb.opencl.ops.conv import (
    OpenCLAveragePoolGrad,
    OpenCLConv,
    OpenCLConvGradInputs,
    OpenCLConvGradWeights,
    OpenCLDownsampleFactorMaxGradGrad,
    OpenCLImages2Neibs,
    OpenCLMaxPoolGrad,
    OpenCLMaxPoolRop,
    OpenCLPool,
)


def _three(x: Given, w: Given, t: Given, **parameters: Any) -> Iterator[Case]:
    """Yield the cases of a convolution and its two gradients, for images `x`, filters `w` and a result `t`."""
    dims = len(x.shape) - 2
    yield Case(OpenCLConv(dims, **parameters), x, w)
    yield Case(OpenCLConvGradWeights(dims, **parameters), x, t, np.array(w.shape[-dims:]))
    yield Case(OpenCLConvGradInputs(dims, **parameters), w, t, np.array(x.shape[2:]))


def _plain(*shape: int) -> Given:
    return array("float32", *shape)


#: Convolutions whose rows consist of whole vectors or not, with few or many filters, or with unshared filters.
_CONVOLUTIONS = [
    *_three(floats(3, 2, 5, 7), floats(9, 2, 3, 2), floats(3, 9, 3, 3), subsample=(2, 3), border_mode=(1, 1)),
    *_three(_plain(1, 2, 3, 35), _plain(5, 2, 3, 3), _plain(1, 5, 3, 35), border_mode="half"),
    *_three(_plain(1, 1, 3, 67), _plain(5, 1, 1, 3), _plain(1, 5, 3, 34), border_mode="half", subsample=(1, 2)),
    *_three(_plain(3, 4, 5, 19), _plain(4, 1, 1, 2), _plain(3, 4, 5, 18), num_groups=4),
    *_three(_plain(2, 3, 1, 1), _plain(5, 3, 1, 1), _plain(2, 5, 1, 1)),
    *_three(_plain(2, 5, 3, 7), _plain(17, 5, 1, 1), _plain(2, 17, 3, 7)),
    # With so many filters or channels, a GPU uses tiles; the sums are so long that they are split into partial sums.
    *(
        case
        for rows in (20, 64, 128)
        for case in _three(floats(1, 4, 1, 2), floats(rows, 4, 1, 1), floats(1, rows, 1, 2))
    ),
    *(
        case
        for rows in (20, 64, 128)
        for case in _three(floats(1, rows, 1, 2), floats(4, rows, 1, 1), floats(1, 4, 1, 2))
    ),
    *(
        Case(OpenCLConvGradWeights(2), _plain(1, 128, 1, 1), _plain(1, features, 1, 1), np.array((1, 1)))
        for features in (20, 128)
    ),
    *_three(_plain(1, 1024, 1, 1), _plain(4, 1024, 1, 1), _plain(1, 4, 1, 1)),
    *_three(_plain(1, 4, 1, 1), _plain(1024, 4, 1, 1), _plain(1, 1024, 1, 1)),
    *_three(_plain(2, 3, 4, 3, 5), _plain(5, 3, 2, 2, 3), _plain(2, 5, 5, 4, 7), border_mode="full"),
    *_three(
        _plain(2, 4, 3, 5), _plain(6, 3, 2, 2, 1, 3), _plain(2, 6, 3, 2), unshared=True, num_groups=2, subsample=(1, 2)
    ),
]


def _numbers(*sizes: tuple[int, ...]) -> list[np.ndarray]:
    return [np.array(values) for values in sizes]


# Each line has windows, strides and pads. Windows overlap in a padded image, are adjacent, or do not fill the image.
_PADDED = _numbers((3, 2), (1, 2), (2, 1))
_PAIRS = _numbers((2, 2), (2, 2), (0, 0))
_CUT = _numbers((3, 2), (2, 3), (0, 0))

_POOLING = [
    *[Case(OpenCLPool(True, mode), floats(3, 4, 5), *_PADDED) for mode in ("max", "average_exc_pad")],
    Case(OpenCLPool(False, "sum"), floats(3, 5, 7), *_CUT),
    Case(OpenCLPool(True, "average_inc_pad", 3), array("int8", 3, 4, 5), *_numbers((2, 2, 3), (1, 2, 1), (1, 0, 2))),
    Case(OpenCLMaxPoolRop(True), floats(3, 4, 5), floats(3, 4, 5), *_PADDED),
    Case(OpenCLDownsampleFactorMaxGradGrad(True), floats(3, 4, 5), floats(3, 6, 3), floats(3, 4, 5), *_PADDED),
    Case(OpenCLMaxPoolGrad(True), floats(3, 4, 5), floats(3, 6, 3), floats(3, 6, 3), *_PADDED),
    Case(OpenCLMaxPoolGrad(True), floats(3, 4, 5), floats(3, 2, 2), floats(3, 2, 2), *_PAIRS),
    Case(OpenCLAveragePoolGrad(False), floats(3, 5, 7), floats(3, 2, 3), *_CUT),
    Case(OpenCLAveragePoolGrad(True, "sum", 1), floats(3, 7), floats(3, 4), *_numbers((3,), (3,), (2,))),
]

_SMALL, _FACTOR = Number(1e-3), Number(0.25)


def _one_each(*shape: int) -> list[Given]:
    return [floats(*shape)] * 4


_NORMALIZATION = [
    case
    for axes, shape, of_channel in [
        ((0, 2), (3, 5, 19), (1, 5, 1)),
        ((0,), (5, 37), (1, 37)),
        ((0, 2), (2, 3, 5, 7), (1, 3, 1, 7)),
        ((0, 2, 4), (3, 2, 5, 2, 3), (1, 2, 1, 2, 1)),
        ((0, 2), (3, 5, 8), (1, 5, 1)),
        ((0,), (3, 12), (1, 12)),
        ((0,), (1, 12), (1, 12)),
    ]
    for x, numbers in [(floats(*shape), _one_each(*of_channel))]
    for case in [
        Case(OpenCLBatchNormTrain(axes), x, *numbers[:2], _SMALL, _FACTOR, *numbers[:2]),
        Case(OpenCLBatchNormTrainGrad(axes), x, x, *numbers[:3], _SMALL),
        Case(OpenCLBatchNormInference(axes), x, *numbers, _SMALL),
        Case(OpenCLChannelMoments(axes), x),
        Case(OpenCLChannelGradientSums(axes), x, x, *numbers[:2]),
    ]
]
# The channels of these arrays are so long that they are reduced in several parts.
_NORMALIZATION += [
    Case(OpenCLChannelMoments((1,)), array("float32", 2, 2 * 4096 + 5)),
    Case(OpenCLChannelMoments((0,)), array("float32", 1031, 17)),
    Case(OpenCLBatchNormTrain((1,)), array("float32", 2, 2 * 4096 + 5), *[array("float32", 2, 1)] * 2, _SMALL, _FACTOR),
    Case(OpenCLBatchNormTrain((0,)), array("float32", 1031, 17), *[array("float32", 1, 17)] * 2, _SMALL, _FACTOR),
    Case(OpenCLBatchNormInference((0,)), floats(5, 7), *[floats(1, 1)] * 4, _SMALL),
]

_PATCHES = [
    Case(OpenCLImages2Neibs("valid"), floats(2, 3, 4, 6), *_numbers((2, 3), (2, 3))),
    *[
        Case(OpenCLImages2Neibs(mode), array("float32", 1, 2, 5, 7), *_numbers((3, 5), (2, 2)))
        for mode in ("half", "full", "ignore_borders", "wrap_centered")
    ],
]

LAYER_CASES = [*_CONVOLUTIONS, *_POOLING, *_NORMALIZATION, *_PATCHES]
#: Ops that only copy an array if it has gaps between its elements.
COPYING_GAPS = (
    *("Pool", "MaxPoolRop", "DownsampleFactorMaxGradGrad", "MaxPoolGrad", "AveragePoolGrad"),
    *("BatchNormTrain", "BatchNormTrainGrad", "BatchNormInference", "ChannelMoments", "ChannelGradientSums"),
)
