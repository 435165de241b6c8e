"""The tensor ops and helpers that optdb's own rewriters speak of, by name."""

from theano.gof.opt import copy_stack_trace
from theano.tensor import NotScalarConstantError, constant, pow, sqr
from theano.tensor.basic import get_scalar_constant_value

__all__ = [
    "NotScalarConstantError",
    "constant",
    "copy_stack_trace",
    "get_scalar_constant_value",
    "pow",
    "sqr",
]
