"""Ops of the layers of neural networks: pooling, batch normalization, neighbourhoods."""

from theano.tensor.nnet.bn import (
    AbstractBatchNormInference,
    AbstractBatchNormTrain,
    AbstractBatchNormTrainGrad,
)
from theano.tensor.nnet.neighbours import Images2Neibs
from theano.tensor.signal.pool import (
    AveragePoolGrad,
    DownsampleFactorMaxGradGrad,
    MaxPoolGrad,
    MaxPoolRop,
    Pool,
)

__all__ = [
    "AbstractBatchNormInference",
    "AbstractBatchNormTrain",
    "AbstractBatchNormTrainGrad",
    "AveragePoolGrad",
    "DownsampleFactorMaxGradGrad",
    "Images2Neibs",
    "MaxPoolGrad",
    "MaxPoolRop",
    "Pool",
]
