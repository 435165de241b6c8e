"""The scalar ops of the host, by name, for generating elementwise code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from theano.gof import Apply
from theano.scalar import Composite, get_scalar_type, upcast
from theano.scalar.basic import *
from theano.scalar.basic_scipy import *
from theano.tensor.elemwise import MulWithoutZeros
from theano.tensor.nnet.nnet import ScalarSoftsign
from theano.tensor.nnet.sigm import ScalarSigmoid, ScalarSoftplus, UltraFastScalarSigmoid
from theano.tensor.xlogx import XlogX, XlogY0

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


def scalar_node(op: Any, dtypes: Sequence[str]) -> Apply:
    """Return a node of a scalar op for inputs of `dtypes`."""
    return op.make_node(*[get_scalar_type(dtype).make_variable() for dtype in dtypes])


def scalar_type(dtype: str) -> Any:
    """Return the host's type of scalars of a dtype."""
    return get_scalar_type(dtype)


def cast_op(dtype: str) -> Cast:
    """Return the scalar op that casts to a dtype."""
    return Cast(get_scalar_type(dtype), name=f"Cast{{{dtype}}}")
