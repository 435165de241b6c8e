"""What ops that make arrays from sizes ask of Theano."""

from theano.gradient import grad_undefined
from theano.tensor import as_tensor_variable

__all__ = ["as_tensor_variable", "grad_undefined"]
