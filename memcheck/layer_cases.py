"""Cases for the layers of neural networks: pooling, batch normalization, patches of images."""

from __future__ import annotations

import numpy as np

from memcheck.case import Case, Given, Number, array, floats
from optdb.opencl.ops.batch_norm import (
    OpenCLBatchNormInference,
    OpenCLBatchNormTrain,
    OpenCLBatchNormTrainGrad,
    OpenCLChannelGradientSums,
    OpenCLChannelMoments,
)
from optdb.opencl.ops.pool import (
    OpenCLAveragePoolGrad,
    OpenCLDownsampleFactorMaxGradGrad,
    OpenCLImages2Neibs,
    OpenCLMaxPoolGrad,
    OpenCLMaxPoolRop,
    OpenCLPool,
)


def _numbers(*sizes: tuple[int, ...]) -> list[np.ndarray]:
    return [np.array(values) for values in sizes]


# Windows that overlap and include padding; separate windows of two by two; truncated last windows.
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
# Channels with this many elements are folded in parts.
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

LAYER_CASES = [*_POOLING, *_NORMALIZATION, *_PATCHES]
#: Ops that only copy arrays with gaps.
COPYING_GAPS = (
    *("Pool", "MaxPoolRop", "DownsampleFactorMaxGradGrad", "MaxPoolGrad", "AveragePoolGrad"),
    *("BatchNormTrain", "BatchNormTrainGrad", "BatchNormInference", "ChannelMoments", "ChannelGradientSums"),
)
