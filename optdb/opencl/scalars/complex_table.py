"""Which expression of OpenCL C stands for which scalar op, where complex numbers go in or come out.

An entry takes a :class:`ScalarStep` as those of :mod:`optdb.opencl.scalars.table` do. A complex number is a vector of
two, so sums, differences and signs are the operators of vectors; the rest is in ``optdb/codegen/scalars/complexes.cl``.
"""

from __future__ import annotations

import math

from optdb.codegen.scalars.step import COMPLEX_ENTRIES, Entry, ScalarStep, entry
from optdb.codegen.scalars.types import c_type, convert, literal, part_dtype
from optdb.host import scalars as host


def _put(entries: dict[type, Entry]) -> None:
    COMPLEX_ENTRIES.update(entries)


def _calling(kind: str) -> Entry:
    return lambda step: step.call(kind)


_put(
    {
        host.ArcCos: _calling("complex_acos"),
        host.ArcCosh: _calling("complex_acosh"),
        host.ArcSin: _calling("complex_asin"),
        host.ArcSinh: _calling("complex_asinh"),
        host.ArcTan: _calling("complex_atan"),
        host.ArcTanh: _calling("complex_atanh"),
        host.Cos: _calling("complex_cos"),
        host.Cosh: _calling("complex_cosh"),
        host.Exp: _calling("complex_exp"),
        host.Expm1: _calling("complex_expm1"),
        host.Log: _calling("complex_log"),
        host.MulWithoutZeros: _calling("complex_mul_without_zeros"),
        host.Pow: _calling("complex_pow"),
        host.Sin: _calling("complex_sin"),
        host.Sinh: _calling("complex_sinh"),
        host.Sqrt: _calling("complex_sqrt"),
        host.Tan: _calling("complex_tan"),
        host.Tanh: _calling("complex_tanh"),
        host.TrueDiv: _calling("complex_div"),
    }
)


def _adding(operator: str) -> Entry:
    return lambda step: f" {operator} ".join(step.inputs()) or literal(0, step.out)


_put({host.Add: _adding("+"), host.Sub: _adding("-")})


@entry(host.Mul, table=COMPLEX_ENTRIES)
def _mul(step: ScalarStep) -> str:
    if not step.args:
        return literal(1, step.out)
    function = step.helpers.get("complex_mul", c_type(step.out))
    product, *others = step.inputs()
    for other in others:
        product = f"{function}({product}, {other})"
    return product


@entry(host.Neg, table=COMPLEX_ENTRIES)
def _neg(step: ScalarStep) -> str:
    return f"-{step.inputs()[0]}"


@entry(host.Sqr, table=COMPLEX_ENTRIES)
def _sqr(step: ScalarStep) -> str:
    (x,) = step.inputs()
    return f"{step.helpers.get('complex_mul', c_type(step.out))}({x}, {x})"


@entry(host.Inv, table=COMPLEX_ENTRIES)
def _inv(step: ScalarStep) -> str:
    function = step.helpers.get("complex_div", c_type(step.out))
    return f"{function}({literal(1, step.out)}, {step.inputs()[0]})"


def _logarithm(base: float) -> Entry:
    def logarithm(step: ScalarStep) -> str:
        return f"{step.call('complex_log')} * {literal(1 / math.log(base), part_dtype(step.out))}"

    return logarithm


_put({host.Log2: _logarithm(2), host.Log10: _logarithm(10)})


@entry(host.Log1p, table=COMPLEX_ENTRIES)
def _log1p(step: ScalarStep) -> str:
    function = step.helpers.get("complex_log", c_type(step.out))
    return f"{function}({step.inputs()[0]} + {literal(1, step.out)})"


@entry(host.Exp2, table=COMPLEX_ENTRIES)
def _exp2(step: ScalarStep) -> str:
    function = step.helpers.get("complex_exp", c_type(step.out))
    return f"{function}({step.inputs()[0]} * {literal(math.log(2), part_dtype(step.out))})"


@entry(host.Identity, host.Cast, table=COMPLEX_ENTRIES)
def _identity(step: ScalarStep) -> str:
    return step.inputs()[0]


@entry(host.Second, table=COMPLEX_ENTRIES)
def _second(step: ScalarStep) -> str:
    return convert(step.args[1], step.dtypes[1], step.out)


@entry(host.Switch, table=COMPLEX_ENTRIES)
def _switch(step: ScalarStep) -> str:
    condition = convert(step.args[0], step.dtypes[0], "bool")
    choices = [convert(arg, own, step.out) for arg, own in zip(step.args[1:], step.dtypes[1:], strict=True)]
    return f"{step.helpers.get('complex_choose', c_type(step.out))}({condition}, {', '.join(choices)})"


def _same(step: ScalarStep) -> str:
    dtype = host.upcast(*step.dtypes)
    return f"{step.helpers.get('complex_eq', c_type(dtype))}({', '.join(step.inputs(dtype))})"


_put({host.EQ: _same, host.NEQ: lambda step: f"!{_same(step)}"})


@entry(host.Conj, table=COMPLEX_ENTRIES)
def _conj(step: ScalarStep) -> str:
    (x,) = step.inputs()
    return f"({c_type(step.out)})({x}.x, -{x}.y)"


def _part(name: str) -> Entry:
    return lambda step: f"({step.args[0]}).{name}"


_put({host.Real: _part("x"), host.Imag: _part("y")})


@entry(host.Abs, table=COMPLEX_ENTRIES)
def _abs(step: ScalarStep) -> str:
    return f"{step.helpers.get('complex_abs', c_type(step.dtypes[0]))}({step.args[0]})"


@entry(host.Angle, table=COMPLEX_ENTRIES)
def _angle(step: ScalarStep) -> str:
    (x,) = step.inputs("complex128")  # the host's result is always float64
    return f"atan2({x}.y, {x}.x)"


@entry(host.IsNan, table=COMPLEX_ENTRIES)
def _isnan(step: ScalarStep) -> str:
    (x,) = step.args
    return f"isnan(({x}).x) || isnan(({x}).y)"


@entry(host.IsInf, table=COMPLEX_ENTRIES)
def _isinf(step: ScalarStep) -> str:
    (x,) = step.args
    return f"isinf(({x}).x) || isinf(({x}).y)"


@entry(host.Complex, table=COMPLEX_ENTRIES)
def _complex(step: ScalarStep) -> str:
    real, imag = step.inputs(part_dtype(step.out))
    return f"({c_type(step.out)})({real}, {imag})"


@entry(host.ComplexFromPolar, table=COMPLEX_ENTRIES)
def _polar(step: ScalarStep) -> str:
    function = step.helpers.get("complex_polar", c_type(step.out))
    return f"{function}({', '.join(step.inputs(part_dtype(step.out)))})"
