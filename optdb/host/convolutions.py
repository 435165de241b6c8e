"""Convolutions as the user wrote them, before a way of computing them is chosen."""

from theano.tensor.nnet.abstract_conv import BaseAbstractConv

__all__ = ["BaseAbstractConv"]
