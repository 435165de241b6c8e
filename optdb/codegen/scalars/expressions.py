"""The OpenCL C expression of each scalar op.

An entry takes a :class:`ScalarStep`, one application of an op, and returns an expression of the step's output dtype, or
of a dtype that C converts to it. A short entry is a string, in which ``{0}`` is the first input and ``{T}`` the output
type. Unless an entry says otherwise, inputs are first converted to the output's dtype, as in NumPy: C would add an int
to a float as floats, and lose digits.

Real and complex numbers have separate entries; most of those for real numbers also work for vectors. A complex number
is a vector of two, so sums, differences and signs use vector operators; the rest is in
``optdb/codegen/scalars/complexes.cl``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from optdb.codegen.scalars.step import ScalarStep
from optdb.codegen.scalars.types import NoCode, c_type, convert, is_float, literal, part_dtype

Entry = str | Callable[[ScalarStep], str]


def expression(step: ScalarStep) -> str:
    """Return the OpenCL C expression of one step.

    Raises
    ------
    NoCode
        If the op has no OpenCL C.
    NotInVectors
        If a step on vectors must be computed lane by lane.
    """
    name = step.scalar.name
    entry = (_COMPLEX if step.is_complex else _REAL).get(name)
    if entry is None:
        raise NoCode(f"no OpenCL C for {name}{' of complex numbers' if step.is_complex else ''}")
    if name in _IN_FLOATS and not is_float(step.out) and not step.is_complex:
        in_float64 = replace(step, scalar=replace(step.scalar, dtype="float64"))
        return convert(expression(in_float64), "float64", step.out, step.width)
    if step.is_wrong:
        entry = _INSTEAD_OF_WRONG[name]
    return entry.format(*step.inputs(), T=c_type(step.out)) if isinstance(entry, str) else entry(step)


def _c_name(name: str) -> str:
    """Return the C name of the function that a scalar op is named after."""
    return name.lower().replace("arc", "a")


def _functions(names: str) -> dict[str, Entry]:
    return {name: f"{_c_name(name)}({{0}})" for name in names.split()}


def _helpers(names: str, make: Callable[[str], Entry], prefix: str = "") -> dict[str, Entry]:
    return {name: make(prefix + _c_name(name)) for name in names.split()}


def _helper(kind: str) -> Entry:
    return lambda step: step.call(kind)


def _in_double(kind: str) -> Entry:
    return lambda step: convert(step.call(kind, dtype="float64"), "float64", step.out)


def _arithmetic(operator: str, logical: str, of_nothing: str = "0") -> Entry:
    def calculate(step: ScalarStep) -> str:
        return step.joined(logical if step.out == "bool" else operator, *step.inputs()) or of_nothing

    return calculate


def _mul_without_zeros(step: ScalarStep) -> str:
    (x, y), zero = step.inputs(), step.number(0)
    return step.choose(f"{x} == {zero}", y, step.choose(f"{y} == {zero}", x, step.joined("*", x, y)))


def _neg(step: ScalarStep) -> str:
    x = step.input(0)
    return f"-{x}" if is_float(step.out) else step.joined("-", step.number(0), x)


def _true_div(step: ScalarStep) -> str:
    dtype = step.out if any(map(is_float, step.dtypes)) else "float64"
    x, y = step.inputs(dtype)
    return convert(f"{x} / {y}", dtype, step.out, step.width)


def _pow(step: ScalarStep) -> str:
    return f"pow({', '.join(step.inputs())})" if is_float(step.out) else step.call(f"{step.kind}_pow")


def _abs(step: ScalarStep) -> str:
    x = step.input(0)
    if is_float(step.out):
        return f"fabs({x})"
    return step.choose(f"{x} < {step.number(0)}", _neg(step), x) if step.kind == "int" else x


def _sgn(step: ScalarStep) -> str:
    x, zero = step.input(0), step.number(0)
    not_positive = step.choose(f"{x} < {zero}", step.number(-1), step.choose(f"{x} == {zero}", zero, x))
    return step.choose(f"{x} > {zero}", step.number(1), not_positive)


def _comparing(operator: str) -> Entry:
    return lambda step: step.truth(f" {operator} ".join(step.inputs(_common_dtype(step))))


def _common_dtype(step: ScalarStep) -> str:
    """Return the dtype in which numbers are compared: the promoted dtype of all inputs."""
    return functools.reduce(np.promote_types, map(np.dtype, step.dtypes)).name


def _in_range(step: ScalarStep) -> str:
    x, low, high = step.inputs(_common_dtype(step))
    above = ">" if step.scalar["openlow"] else ">="
    below = "<" if step.scalar["openhi"] else "<="
    return step.truth(f"({x} {above} {low}) & ({x} {below} {high})")


def _float_test(test: str) -> Entry:
    def tell(step: ScalarStep) -> str:
        x = step.input(0, step.dtypes[0])
        return step.truth(test.format(x)) if is_float(step.dtypes[0]) else step.number(0)

    return tell


def _invert(step: ScalarStep) -> str:
    x = step.input(0)
    return step.truth(f"{x} == {step.number(0)}") if step.out == "bool" else f"~{x}"


def _extreme(operator: str) -> Entry:
    def choose(step: ScalarStep) -> str:
        x, y = step.inputs()
        first = f"({x} {operator} {y})"
        if is_float(step.out):  # NaN wins
            first += f" | ({x} != {x})"
        return step.choose(first, x, y)

    return choose


def _clip(step: ScalarStep) -> str:
    x, low, high = step.inputs()
    return step.choose(f"{x} < {low}", low, step.choose(f"{x} > {high}", high, x))


def _switch(step: ScalarStep) -> str:
    dtype = step.dtypes[0]
    condition = f"{step.input(0, dtype)} != {step.number(0, dtype)}"
    return step.choose(condition, step.input(1), step.input(2), compared=dtype)


def _cast(step: ScalarStep) -> str:
    (source,) = step.dtypes
    if step.out != "float16" or source in ("bool", "int8", "uint8", "float16"):
        return step.input(0)
    return step.call("round_half", dtype="float64" if source == "float64" else "float32")


def _softplus(step: ScalarStep) -> str:
    x = step.input(0)
    return step.choose(f"{x} > 40", x, f"log1p(exp({x}))")


def _xlog(step: ScalarStep) -> str:
    x, *_ = inputs = step.inputs()
    return step.choose(f"{x} == 0", step.number(0), f"{x} * log({inputs[-1]})")


_REAL: dict[str, Entry] = {
    **_functions("ArcCos ArcCosh ArcSin ArcSinh ArcTan ArcTanh Ceil Cos Cosh Erf Erfc Exp Exp2 Expm1 Floor"),
    **_functions("Log Log10 Log1p Log2 Sin Sinh Sqrt Tan Tanh Trunc"),
    "ArcTan2": "atan2({0}, {1})",
    "RoundHalfAwayFromZero": "round({0})",
    "RoundHalfToEven": "rint({0})",
    "Add": _arithmetic("+", "|"),
    "Mul": _arithmetic("*", "&", of_nothing="1"),
    "MulWithoutZeros": _mul_without_zeros,
    "Sub": _arithmetic("-", "^"),
    "Neg": _neg,
    "Sqr": lambda step: step.joined("*", *step.inputs() * 2),
    "TrueDiv": _true_div,
    "IntDiv": lambda step: step.call(f"{step.kind}_div"),
    "Mod": lambda step: step.call(f"{step.kind}_mod"),
    "Pow": _pow,
    "Inv": "1 / {0}",
    "Abs": _abs,
    "Sgn": _sgn,
    "Deg2Rad": "{0} * ({T})0.017453292519943295",
    "Rad2Deg": "{0} * ({T})57.29577951308232",
    "EQ": _comparing("=="),
    "NEQ": _comparing("!="),
    "LT": _comparing("<"),
    "LE": _comparing("<="),
    "GT": _comparing(">"),
    "GE": _comparing(">="),
    "InRange": _in_range,
    "IsNan": _float_test("{0} != {0}"),
    "IsInf": _float_test("fabs({0}) == INFINITY"),
    "AND": "{0} & {1}",
    "OR": "{0} | {1}",
    "XOR": "{0} ^ {1}",
    "Invert": _invert,
    "Maximum": _extreme(">="),
    "Minimum": _extreme("<="),
    "Clip": _clip,
    "Switch": _switch,
    "Second": lambda step: step.input(1),
    "Identity": "{0}",
    "Conj": "{0}",
    "Real": "{0}",
    "Imag": lambda step: step.number(0),
    "Angle": lambda step: f"atan2({step.number(0)}, {step.input(0)})",
    "Cast": _cast,
    "ScalarSigmoid": "1 / (1 + exp(-{0}))",
    "UltraFastScalarSigmoid": _helper("fast_sigmoid"),
    "ScalarSoftplus": _softplus,
    "ScalarSoftsign": "{0} / (1 + fabs({0}))",
    "XlogX": _xlog,
    "XlogY0": _xlog,
    **_helpers("Erfcinv Erfcx Erfinv Gamma GammaLn I0 I1 J0 J1 Psi TriGamma", _helper),
    "Element": lambda step: step.element(),
    # In double precision for any output dtype, as in SciPy and the host's C code, because of cancellation.
    **_helpers("Chi2SF GammaInc GammaIncC GammaL GammaU Iv Jv", _in_double),
}


#: Ops that are computed in floating point, and in double precision if the output dtype is an integer. That happens if
#: an op overwrites its input; the host's C code then also computes in double precision.
_IN_FLOATS = frozenset(
    {
        *("ArcCos", "ArcCosh", "ArcSin", "ArcSinh", "ArcTan", "ArcTan2", "ArcTanh", "Ceil", "Cos", "Cosh", "Erf"),
        *("Erfc", "Exp", "Exp2", "Expm1", "Floor", "Log", "Log10", "Log1p", "Log2", "Sin", "Sinh", "Sqrt", "Tan"),
        *("Tanh", "Trunc", "RoundHalfAwayFromZero", "RoundHalfToEven", "Inv", "Deg2Rad", "Rad2Deg", "Angle"),
        *("ScalarSigmoid", "UltraFastScalarSigmoid", "ScalarSoftplus", "ScalarSoftsign", "XlogX", "XlogY0"),
        *("Erfcinv", "Erfcx", "Erfinv", "Gamma", "GammaLn", "I0", "I1", "J0", "J1", "Psi", "TriGamma"),
    }
)


def _circular(step: ScalarStep) -> str:
    x, name = step.input(0), _c_name(step.scalar.name)
    if c_type(step.out) != "float":
        return f"{name}({x})"
    # Wrong for denormal numbers in vectors with huge numbers.
    of_nothing = step.number(1) if name == "cos" else x
    return step.choose(f"fabs({x}) < FLT_MIN", of_nothing, f"{name}({x})")


def _pow_of_vectors(step: ScalarStep) -> str:
    if c_type(step.out) != "double":
        return _pow(step)
    # Wrong for vectors of eight doubles that differ much in magnitude.
    x, y = step.inputs()
    quarters = ["0123", "4567", "89ab", "cdef"][: step.width // 4]
    return f"(double{step.width})({', '.join(f'pow({x}.s{q}, {y}.s{q})' for q in quarters)})"


#: The entries for vectors where a driver's function is wrong (`wrong_vector_functions` of its profile).
_INSTEAD_OF_WRONG: dict[str, Entry] = {
    **dict.fromkeys(("Sin", "Cos", "Tan"), _circular),
    "Pow": _pow_of_vectors,
}


def _complex_mul(step: ScalarStep) -> str:
    if not step.args:
        return step.number(1)
    return functools.reduce(functools.partial(step.call, "complex_mul"), step.inputs())


def _scaled(step: ScalarStep, code: str, by: float) -> str:
    return f"{code} * {literal(by, part_dtype(step.out))}"


def _complex_eq(step: ScalarStep) -> str:
    return step.call("complex_eq", dtype=_common_dtype(step))


def _complex_angle(step: ScalarStep) -> str:
    x = step.input(0, "complex128")  # the host's result is always float64
    return f"atan2({x}.y, {x}.x)"


def _of_parts(text: str) -> Entry:
    return lambda step: text.format(f"({step.args[0]})")


_COMPLEX: dict[str, Entry] = {
    **_helpers("ArcCos ArcCosh ArcSin ArcSinh ArcTan ArcTanh Cos Cosh Exp Expm1 Log Pow", _helper, "complex_"),
    **_helpers("Sin Sinh Sqrt Tan Tanh", _helper, "complex_"),
    "MulWithoutZeros": _helper("complex_mul_without_zeros"),
    "TrueDiv": _helper("complex_div"),
    "Add": lambda step: " + ".join(step.inputs()) or step.number(0),
    "Mul": _complex_mul,
    "Sub": "{0} - {1}",
    "Neg": "-{0}",
    "Sqr": lambda step: step.call("complex_mul", *step.inputs() * 2),
    "Inv": lambda step: step.call("complex_div", step.number(1), step.input(0)),
    "Log2": lambda step: _scaled(step, step.call("complex_log"), 1 / math.log(2)),
    "Log10": lambda step: _scaled(step, step.call("complex_log"), 1 / math.log(10)),
    "Log1p": lambda step: step.call("complex_log", f"{step.input(0)} + {step.number(1)}"),
    "Exp2": lambda step: step.call("complex_exp", _scaled(step, step.input(0), math.log(2))),
    "Identity": "{0}",
    "Cast": "{0}",
    "Second": lambda step: step.input(1),
    "Switch": lambda step: step.call("complex_choose", step.input(0, "bool"), step.input(1), step.input(2)),
    "EQ": _complex_eq,
    "NEQ": lambda step: f"!{_complex_eq(step)}",
    "Conj": "({T})({0}.x, -{0}.y)",
    "Real": _of_parts("{0}.x"),
    "Imag": _of_parts("{0}.y"),
    "Abs": lambda step: step.call("complex_abs", *step.args, dtype=step.dtypes[0]),
    "Angle": _complex_angle,
    "IsNan": _of_parts("isnan({0}.x) || isnan({0}.y)"),
    "IsInf": _of_parts("isinf({0}.x) || isinf({0}.y)"),
    "Complex": lambda step: f"({c_type(step.out)})({', '.join(step.inputs(part_dtype(step.out)))})",
    "ComplexFromPolar": lambda step: step.call("complex_polar", *step.inputs(part_dtype(step.out))),
}
