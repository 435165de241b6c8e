"""The tensor ops and helpers that optdb's own rewriters speak of, by name."""

from theano.gof.opt import copy_stack_trace
from theano.tensor import NotScalarConstantError, constant, pow, sqr
from theano.tensor.basic import get_scalar_constant_value
from theano.tensor.elemwise import Elemwise

__all__ = [
    "Elemwise",
    "NotScalarConstantError",
    "constant",
    "copy_stack_trace",
    "get_scalar_constant_value",
    "pow",
    "sqr",
]
