"""Which expression of OpenCL C stands for which scalar op.

An entry takes a :class:`ScalarStep`, one application of an op, and returns an expression of
the step's output dtype. Unless an entry says otherwise the inputs are converted to that
dtype first, as NumPy does it: C would add an int to a float as floats, and lose digits.
"""

from __future__ import annotations

from optdb.codegen.scalars.step import ENTRIES, Entry, ScalarStep, entry
from optdb.codegen.scalars.types import c_type, convert, is_float, unsigned
from optdb.host import scalars as host


def _functions(names: dict[type, str]) -> None:
    def calling(name: str) -> Entry:
        return lambda step: f"{name}({', '.join(step.inputs())})"

    for op, name in names.items():
        ENTRIES[op] = calling(name)


_functions(
    {
        host.ArcCos: "acos",
        host.ArcCosh: "acosh",
        host.ArcSin: "asin",
        host.ArcSinh: "asinh",
        host.ArcTan: "atan",
        host.ArcTan2: "atan2",
        host.ArcTanh: "atanh",
        host.Ceil: "ceil",
        host.Cos: "cos",
        host.Cosh: "cosh",
        host.Erf: "erf",
        host.Erfc: "erfc",
        host.Exp: "exp",
        host.Exp2: "exp2",
        host.Expm1: "expm1",
        host.Floor: "floor",
        host.Log: "log",
        host.Log10: "log10",
        host.Log1p: "log1p",
        host.Log2: "log2",
        host.RoundHalfAwayFromZero: "round",
        host.RoundHalfToEven: "rint",
        host.Sin: "sin",
        host.Sinh: "sinh",
        host.Sqrt: "sqrt",
        host.Tan: "tan",
        host.Tanh: "tanh",
        host.Trunc: "trunc",
    }
)


@entry(host.Gamma)
def _gamma(step: ScalarStep) -> str:
    return step.call("gamma")


@entry(host.GammaLn)
def _gammaln(step: ScalarStep) -> str:
    return step.call("gammaln")


def _arithmetic(step: ScalarStep, operator: str, logical: str, empty: str) -> str:
    if not step.args:
        return empty
    if step.out == "bool":
        return f" {logical} ".join(step.inputs("bool"))
    if is_float(step.out):
        return f" {operator} ".join(step.inputs())
    wide = unsigned(step.out)
    return f"({c_type(step.out)})({f' {operator} '.join(f'({wide}){arg}' for arg in step.inputs())})"


@entry(host.Add)
def _add(step: ScalarStep) -> str:
    return _arithmetic(step, "+", "||", "0")


@entry(host.Mul)
def _mul(step: ScalarStep) -> str:
    return _arithmetic(step, "*", "&&", "1")


@entry(host.MulWithoutZeros)
def _mul_without_zeros(step: ScalarStep) -> str:
    x, y = step.inputs()
    return f"{x} == 0 ? {y} : {y} == 0 ? {x} : {_mul(step)}"


@entry(host.Sub)
def _sub(step: ScalarStep) -> str:
    return _arithmetic(step, "-", "!=", "0")


@entry(host.Neg)
def _neg(step: ScalarStep) -> str:
    (x,) = step.inputs()
    return f"-{x}" if is_float(step.out) else f"({c_type(step.out)})(0 - ({unsigned(step.out)}){x})"


@entry(host.Sqr)
def _sqr(step: ScalarStep) -> str:
    (x,) = step.inputs()
    if is_float(step.out):
        return f"{x} * {x}"
    wide = unsigned(step.out)
    return f"({c_type(step.out)})(({wide}){x} * ({wide}){x})"


@entry(host.TrueDiv)
def _true_div(step: ScalarStep) -> str:
    whole = not any(is_float(dtype) for dtype in step.dtypes)
    x, y = step.inputs("float64" if whole else step.out)
    return convert(f"{x} / {y}", "float64", step.out) if whole else f"{x} / {y}"


@entry(host.IntDiv)
def _int_div(step: ScalarStep) -> str:
    return step.call(f"{step.number}_div")


@entry(host.Mod)
def _mod(step: ScalarStep) -> str:
    return step.call(f"{step.number}_mod")


@entry(host.Pow)
def _pow(step: ScalarStep) -> str:
    return f"pow({', '.join(step.inputs())})" if is_float(step.out) else step.call(f"{step.number}_pow")


@entry(host.Inv)
def _inv(step: ScalarStep) -> str:
    return f"1 / {step.inputs()[0]}"


@entry(host.Abs)
def _abs(step: ScalarStep) -> str:
    if step.number == "uint":
        return step.inputs()[0]
    return f"fabs({step.inputs()[0]})" if is_float(step.out) else step.call("int_abs")


@entry(host.Sgn)
def _sgn(step: ScalarStep) -> str:
    if is_float(step.out):
        return step.call("float_sgn")
    (x,) = step.inputs()
    return f"({x} > 0) - ({x} < 0)" if step.number == "int" else f"({x} > 0)"


@entry(host.Deg2Rad)
def _deg2rad(step: ScalarStep) -> str:
    return f"{step.inputs()[0]} * ({c_type(step.out)})0.017453292519943295"


@entry(host.Rad2Deg)
def _rad2deg(step: ScalarStep) -> str:
    return f"{step.inputs()[0]} * ({c_type(step.out)})57.29577951308232"


def _comparing(operator: str) -> Entry:
    def compare(step: ScalarStep) -> str:
        x, y = step.inputs(host.upcast(*step.dtypes))
        return f"{x} {operator} {y}"

    return compare


ENTRIES.update(
    {
        host.EQ: _comparing("=="),
        host.NEQ: _comparing("!="),
        host.LT: _comparing("<"),
        host.LE: _comparing("<="),
        host.GT: _comparing(">"),
        host.GE: _comparing(">="),
    }
)


@entry(host.InRange)
def _in_range(step: ScalarStep) -> str:
    x, low, high = step.inputs(host.upcast(*step.dtypes))
    above = ">" if step.op.openlow else ">="
    below = "<" if step.op.openhi else "<="
    return f"({x} {above} {low}) && ({x} {below} {high})"


@entry(host.IsNan)
def _isnan(step: ScalarStep) -> str:
    return f"isnan({step.args[0]}) != 0" if is_float(step.dtypes[0]) else "0"


@entry(host.IsInf)
def _isinf(step: ScalarStep) -> str:
    return f"isinf({step.args[0]}) != 0" if is_float(step.dtypes[0]) else "0"


def _bitwise(operator: str) -> Entry:
    return lambda step: f"({c_type(step.out)})({f' {operator} '.join(step.inputs())})"


ENTRIES.update({host.AND: _bitwise("&"), host.OR: _bitwise("|"), host.XOR: _bitwise("^")})


@entry(host.Invert)
def _invert(step: ScalarStep) -> str:
    (x,) = step.inputs()
    return f"!{x}" if step.out == "bool" else f"({c_type(step.out)})(~{x})"


def _extreme(operator: str) -> Entry:
    def choose(step: ScalarStep) -> str:
        x, y = step.inputs()
        first = f"{x} {operator} {y}"
        if is_float(step.out):  # what is not a number wins
            first += f" || isnan({x})"
        return f"({first}) ? {x} : {y}"

    return choose


ENTRIES.update({host.Maximum: _extreme(">="), host.Minimum: _extreme("<=")})


@entry(host.Clip)
def _clip(step: ScalarStep) -> str:
    x, low, high = step.inputs()
    return f"{x} < {low} ? {low} : {x} > {high} ? {high} : {x}"


@entry(host.Switch)
def _switch(step: ScalarStep) -> str:
    choices = [f"({convert(arg, own, step.out)})" for arg, own in zip(step.args[1:], step.dtypes[1:], strict=True)]
    return f"({step.args[0]}) != 0 ? {choices[0]} : {choices[1]}"


@entry(host.Second)
def _second(step: ScalarStep) -> str:
    return convert(step.args[1], step.dtypes[1], step.out)


@entry(host.Identity, host.Conj, host.Real)
def _identity(step: ScalarStep) -> str:
    return step.inputs()[0]


@entry(host.Imag)
def _imag(step: ScalarStep) -> str:
    return "0"


@entry(host.Angle)
def _angle(step: ScalarStep) -> str:
    return f"atan2(0.0, {step.inputs()[0]})"


@entry(host.Cast)
def _cast(step: ScalarStep) -> str:
    (x,), (source,) = step.args, step.dtypes
    if step.out != "float16" or source in ("bool", "int8", "uint8", "float16"):
        return convert(x, source, step.out)
    working = "float64" if source == "float64" else "float32"
    function = step.helpers.get("round_half", c_type(working))
    return f"{function}({convert(x, source, working)})"


@entry(host.ScalarSigmoid)
def _sigmoid(step: ScalarStep) -> str:
    return f"1 / (1 + exp(-{step.inputs()[0]}))"


@entry(host.UltraFastScalarSigmoid)
def _fast_sigmoid(step: ScalarStep) -> str:
    return step.call("fast_sigmoid")


@entry(host.ScalarSoftplus)
def _softplus(step: ScalarStep) -> str:
    return step.call("softplus")


@entry(host.ScalarSoftsign)
def _softsign(step: ScalarStep) -> str:
    (x,) = step.inputs()
    return f"{x} / (1 + fabs({x}))"


@entry(host.XlogX)
def _xlogx(step: ScalarStep) -> str:
    (x,) = step.inputs()
    return f"{x} == 0 ? 0 : {x} * log({x})"


@entry(host.XlogY0)
def _xlogy0(step: ScalarStep) -> str:
    x, y = step.inputs()
    return f"{x} == 0 ? 0 : {x} * log({y})"
