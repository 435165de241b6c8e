"""The scalar ops of the host, by name, for generating elementwise code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from theano.gof import Apply
from theano.scalar import Composite, get_scalar_type, upcast
from theano.scalar.basic import (
    AND,
    EQ,
    GE,
    GT,
    LE,
    LT,
    NEQ,
    OR,
    XOR,
    Abs,
    Add,
    Angle,
    ArcCos,
    ArcCosh,
    ArcSin,
    ArcSinh,
    ArcTan,
    ArcTan2,
    ArcTanh,
    Cast,
    Ceil,
    Clip,
    Complex,
    ComplexFromPolar,
    Conj,
    Cos,
    Cosh,
    Deg2Rad,
    Exp,
    Exp2,
    Expm1,
    Floor,
    Identity,
    Imag,
    InRange,
    IntDiv,
    Inv,
    Invert,
    IsInf,
    IsNan,
    Log,
    Log1p,
    Log2,
    Log10,
    Maximum,
    Minimum,
    Mod,
    Mul,
    Neg,
    Pow,
    Rad2Deg,
    Real,
    RoundHalfAwayFromZero,
    RoundHalfToEven,
    ScalarOp,
    Second,
    Sgn,
    Sin,
    Sinh,
    Sqr,
    Sqrt,
    Sub,
    Switch,
    Tan,
    Tanh,
    TrueDiv,
    Trunc,
    add,
    sub,
)
from theano.scalar.basic_scipy import (
    I0,
    I1,
    J0,
    J1,
    Chi2SF,
    Erf,
    Erfc,
    Erfcinv,
    Erfcx,
    Erfinv,
    Gamma,
    GammaInc,
    GammaIncC,
    GammaL,
    GammaLn,
    GammaU,
    Iv,
    Jv,
    Psi,
    TriGamma,
)
from theano.tensor.elemwise import MulWithoutZeros
from theano.tensor.nnet.nnet import ScalarSoftsign
from theano.tensor.nnet.sigm import ScalarSigmoid, ScalarSoftplus, UltraFastScalarSigmoid
from theano.tensor.xlogx import XlogX, XlogY0


def scalar_node(op: Any, dtypes: Sequence[str]) -> Apply:
    """Return a node of a scalar op for inputs of `dtypes`."""
    return op.make_node(*[get_scalar_type(dtype).make_variable() for dtype in dtypes])


def scalar_type(dtype: str) -> Any:
    """Return the host's type of scalars of a dtype."""
    return get_scalar_type(dtype)


def cast_op(dtype: str) -> Cast:
    """Return the scalar op that casts to a dtype."""
    return Cast(get_scalar_type(dtype), name=f"Cast{{{dtype}}}")
