"""The tensor ops and helpers that optdb's own rewriters speak of, by name."""

from theano.gof.opt import copy_stack_trace
from theano.tensor import NotScalarConstantError, constant, pow, sqr
from theano.tensor.basic import get_scalar_constant_value
from theano.tensor.elemwise import Elemwise
from theano.tensor.opt import local_elemwise_fusion as fuse_elemwise

__all__ = [
    "Elemwise",
    "NotScalarConstantError",
    "constant",
    "copy_stack_trace",
    "fuse_elemwise",
    "get_scalar_constant_value",
    "pow",
    "sqr",
]
