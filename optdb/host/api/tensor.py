"""The tensor ops and helpers that optdb's own rewriters use."""

from theano.gof.opt import copy_stack_trace
from theano.tensor import NotScalarConstantError, add, constant, discrete_dtypes, mul, pow, sqr, sub, true_div
from theano.tensor.basic import Join, Reshape, get_scalar_constant_value
from theano.tensor.elemwise import DimShuffle, Elemwise
from theano.tensor.opt import MakeVector
