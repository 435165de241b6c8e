"""Convolutions as the user wrote them, before a way of computing them is chosen."""

from theano.gradient import DisconnectedType
from theano.tensor.nnet.abstract_conv import (
    AbstractConv,
    AbstractConv2d,
    AbstractConv2d_gradInputs,
    AbstractConv2d_gradWeights,
    AbstractConv3d,
    AbstractConv3d_gradInputs,
    AbstractConv3d_gradWeights,
    BaseAbstractConv,
)
from theano.tensor.nnet.abstract_conv import AbstractConv_gradInputs as AbstractConvGradInputs
from theano.tensor.nnet.abstract_conv import AbstractConv_gradWeights as AbstractConvGradWeights

# The classes for two and three dimensions are children of those that take all parameters; rewriters of the host look
# for the children.

__all__ = [
    "AbstractConv",
    "AbstractConv2d",
    "AbstractConv2d_gradInputs",
    "AbstractConv2d_gradWeights",
    "AbstractConv3d",
    "AbstractConv3d_gradInputs",
    "AbstractConv3d_gradWeights",
    "AbstractConvGradInputs",
    "AbstractConvGradWeights",
    "BaseAbstractConv",
    "disconnected",
]


def disconnected() -> object:
    """Return the gradient for an input that no number of the result depends on."""
    return DisconnectedType()()
