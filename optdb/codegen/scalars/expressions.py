"""The OpenCL C expression of each scalar op, for numbers and for vectors.

The entry for an op is a function that takes a :class:`ScalarEmitter` for one application of the op, or a string, in
which ``{0}`` is the first input and ``{T}`` is the output type. Inputs are first converted to the output's dtype, as in
NumPy. A complex number is a vector of two; see ``optdb/codegen/scalars/complexes.cl``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from optdb.codegen.scalars.helpers import Helpers
from optdb.codegen.scalars.program import Scalar
from optdb.codegen.scalars.types import NoCode, c_type, convert, is_complex, is_float, literal, part_dtype, unsigned


class NotInVectors(Exception):
    """Raised if an expression has no form for vectors, so that it must be computed lane by lane."""


@dataclass
class ScalarEmitter:
    """Emits the OpenCL C expression for one application of a scalar op to numbers."""

    scalar: Scalar
    dtypes: list[str]
    args: list[str]
    helpers: Helpers
    #: Collects the dtypes of intermediate values.
    used: set[str]

    # `width` and `is_wrong` have no annotations, so that they are class attributes and not dataclass fields.
    width = 1
    is_wrong = False

    @property
    def out(self) -> str:
        """The dtype of the output."""
        return self.scalar.dtype

    def input(self, i: int, dtype: str | None = None) -> str:
        """Return an input, converted to `dtype` (by default the output's dtype)."""
        dtype = dtype or self.out
        self.used.add(dtype)
        return f"({convert(self._arg(i), self.dtypes[i], dtype, self.width)})"

    def inputs(self, dtype: str | None = None) -> list[str]:
        """Return all inputs, converted to `dtype` (by default the output's dtype)."""
        return [self.input(i, dtype) for i in range(len(self.args))]

    def number(self, value: Any, dtype: str | None = None) -> str:
        """Return a constant of `dtype` (by default the output's dtype)."""
        return literal(value, dtype or self.out)

    def call(self, kind: str, *args: str, dtype: str | None = None) -> str:
        """Return a call to a helper with `args` (by default all inputs) in `dtype` (by default the output's dtype)."""
        dtype = dtype or self.out
        function = self.helpers.get(kind, c_type(dtype), unsigned(dtype))
        return f"{function}({', '.join(args or self.inputs(dtype))})"

    def element(self) -> str:
        """Return the element of the scalar op's array whose index is the op's input plus the op's offset."""
        return self._element(self.input(0, "int64"))

    def _element(self, index: str) -> str:
        load = "ga_half2float" if self.out == "float16" else ""
        return f"{load}({self.scalar['array']}_at[{index} + {self.scalar['offset']}])"

    def joined(self, operator: str, *args: str) -> str:
        """Return expressions of the output's dtype joined by an operator; integers wrap on overflow."""
        if is_float(self.out):
            return f" {operator} ".join(args)
        return f" {operator} ".join(f"({unsigned(self.out)}){arg}" for arg in args)

    def truth(self, comparison: str) -> str:
        """Return the result of a comparison as a number of the output's dtype."""
        return comparison

    def choose(self, comparison: str, x: str, y: str, compared: str | None = None) -> str:
        """Return code whose value is `x` if `comparison` is true, else `y`.

        `compared` is the dtype of the compared values, by default the output's dtype.
        """
        return f"(({comparison}) ? {x} : {y})"

    def type(self, dtype: str | None = None) -> str:
        """Return the type of values of `dtype` (by default the output's dtype)."""
        return c_type(dtype or self.out)

    def _arg(self, i: int) -> str:
        return self.args[i]

    @property
    def is_complex(self) -> bool:
        """Whether an input or the output is complex."""
        return any(map(is_complex, (*self.dtypes, self.out)))

    @property
    def kind(self) -> str:
        """The kind of the output: 'float', 'int' or 'uint'."""
        return "float" if is_float(self.out) else "int" if self.out.startswith("int") else "uint"


@dataclass(kw_only=True)
class VectorEmitter(ScalarEmitter):
    """Emits the OpenCL C expression for one application of a scalar op to vectors."""

    width: int
    is_uniform: Callable[[str], bool]
    is_wrong: bool = False

    def number(self, value: Any, dtype: str | None = None) -> str:
        return f"(({self.type(dtype)})({super().number(value, dtype)}))"

    def call(self, kind: str, *args: str, dtype: str | None = None) -> str:
        if not self.helpers.has_vectors(kind):
            raise NotInVectors(f"{kind} is a function of numbers")
        dtype = dtype or self.out
        function = self.helpers.get(kind, c_type(dtype), unsigned(dtype), self.width)
        return f"{function}({', '.join(args or self.inputs(dtype))})"

    def element(self) -> str:
        # Use a vector literal of the lanes' elements. With a union, a wide load would follow narrow stores, which
        # defeats store-to-load forwarding.
        index = self.input(0, "int64")
        return f"({self.type()})({', '.join(self._element(f'{index}.s{lane:x}') for lane in range(self.width))})"

    def joined(self, operator: str, *args: str) -> str:
        kind = c_type(self.out)
        if kind not in _UNSIGNED:
            return f" {operator} ".join(args)
        wide = f"as_{_UNSIGNED[kind]}{self.width}"
        return f"as_{self.type()}({f' {operator} '.join(f'{wide}{arg}' for arg in args)})"

    def truth(self, comparison: str) -> str:
        return f"convert_{self.type()}(-({comparison}))"

    def choose(self, comparison: str, x: str, y: str, compared: str | None = None) -> str:
        mask = self._mask(self.out)
        if compared is not None and self._mask(compared) != mask:
            comparison = f"convert_{mask}({comparison})"
        return f"select({y}, {x}, {comparison})"

    def _arg(self, i: int) -> str:
        arg = self.args[i]
        return f"({self.type(self.dtypes[i])})({arg})" if self.is_uniform(arg) else arg

    def type(self, dtype: str | None = None) -> str:
        return f"{c_type(dtype or self.out)}{self.width}"

    def _mask(self, dtype: str) -> str:
        return f"{_SIGNED[c_type(dtype)]}{self.width}"


_UNSIGNED = {"char": "uchar", "short": "ushort", "int": "uint", "long": "ulong"}
_SIGNED = {wide: kind for kind, wide in _UNSIGNED.items()} | {kind: kind for kind in _UNSIGNED}
_SIGNED |= {"float": "int", "double": "long"}


Entry = str | Callable[[ScalarEmitter], str]


def expression(emit: ScalarEmitter) -> str:
    """Return the OpenCL C expression for one application of a scalar op.

    Raise NoCode if there is no expression, or NotInVectors if an application to vectors must be computed lane by lane.
    """
    name = emit.scalar.name
    entry = (_COMPLEX if emit.is_complex else _REAL).get(name)
    if entry is None:
        raise NoCode(f"no OpenCL C for {name}{' of complex numbers' if emit.is_complex else ''}")
    if name in _IN_FLOATS and not is_float(emit.out) and not emit.is_complex:
        in_float64 = replace(emit, scalar=replace(emit.scalar, dtype="float64"))
        return convert(expression(in_float64), "float64", emit.out, emit.width)
    if emit.is_wrong:
        entry = _INSTEAD_OF_WRONG[name]
    return entry.format(*emit.inputs(), T=c_type(emit.out)) if isinstance(entry, str) else entry(emit)


def _c_name(name: str) -> str:
    return name.lower().replace("arc", "a")


def _helpers(names: str, make: Callable[[str], Entry], prefix: str = "") -> dict[str, Entry]:
    return {name: make(prefix + _c_name(name)) for name in names.split()}


def _helper(kind: str) -> Entry:
    return lambda emit: emit.call(kind)


def _call_builtin(emit: ScalarEmitter, kind: str) -> str:
    """Return a call to a function of OpenCL C or, in vectors, to the helper that replaces it."""
    return emit.call(kind) if emit.width > 1 else f"{kind}({', '.join(emit.inputs())})"


def _in_double(kind: str) -> Entry:
    return lambda emit: convert(emit.call(kind, dtype="float64"), "float64", emit.out)


def _arithmetic(operator: str, logical: str, identity: str = "0") -> Entry:
    def calculate(emit: ScalarEmitter) -> str:
        return emit.joined(logical if emit.out == "bool" else operator, *emit.inputs()) or identity

    return calculate


def _mul_without_zeros(emit: ScalarEmitter) -> str:
    (x, y), zero = emit.inputs(), emit.number(0)
    return emit.choose(f"{x} == {zero}", y, emit.choose(f"{y} == {zero}", x, emit.joined("*", x, y)))


def _neg(emit: ScalarEmitter) -> str:
    x = emit.input(0)
    return f"-{x}" if is_float(emit.out) else emit.joined("-", emit.number(0), x)


def _true_div(emit: ScalarEmitter) -> str:
    dtype = emit.out if any(map(is_float, emit.dtypes)) else "float64"
    x, y = emit.inputs(dtype)
    return convert(f"{x} / {y}", dtype, emit.out, emit.width)


def _pow(emit: ScalarEmitter) -> str:
    return _call_builtin(emit, "pow") if is_float(emit.out) else emit.call(f"{emit.kind}_pow")


def _abs(emit: ScalarEmitter) -> str:
    x = emit.input(0)
    if is_float(emit.out):
        return f"fabs({x})"
    return emit.choose(f"{x} < {emit.number(0)}", _neg(emit), x) if emit.kind == "int" else x


def _sgn(emit: ScalarEmitter) -> str:
    x, zero = emit.input(0), emit.number(0)
    not_positive = emit.choose(f"{x} < {zero}", emit.number(-1), emit.choose(f"{x} == {zero}", zero, x))
    return emit.choose(f"{x} > {zero}", emit.number(1), not_positive)


def _comparing(operator: str) -> Entry:
    return lambda emit: emit.truth(f" {operator} ".join(emit.inputs(_common_dtype(emit))))


def _common_dtype(emit: ScalarEmitter) -> str:
    """Return the dtype in which numbers are compared."""
    return functools.reduce(np.promote_types, map(np.dtype, emit.dtypes)).name


def _in_range(emit: ScalarEmitter) -> str:
    x, low, high = emit.inputs(_common_dtype(emit))
    above = ">" if emit.scalar["openlow"] else ">="
    below = "<" if emit.scalar["openhi"] else "<="
    return emit.truth(f"({x} {above} {low}) & ({x} {below} {high})")


def _float_test(test: str) -> Entry:
    def classify(emit: ScalarEmitter) -> str:
        x = emit.input(0, emit.dtypes[0])
        return emit.truth(test.format(x)) if is_float(emit.dtypes[0]) else emit.number(0)

    return classify


def _invert(emit: ScalarEmitter) -> str:
    x = emit.input(0)
    return emit.truth(f"{x} == {emit.number(0)}") if emit.out == "bool" else f"~{x}"


def _extreme(operator: str) -> Entry:
    def choose(emit: ScalarEmitter) -> str:
        x, y = emit.inputs()
        first = f"({x} {operator} {y})"
        if is_float(emit.out):  # NaN wins
            first += f" | ({x} != {x})"
        return emit.choose(first, x, y)

    return choose


def _clip(emit: ScalarEmitter) -> str:
    x, low, high = emit.inputs()
    return emit.choose(f"{x} < {low}", low, emit.choose(f"{x} > {high}", high, x))


def _switch(emit: ScalarEmitter) -> str:
    dtype = emit.dtypes[0]
    condition = f"{emit.input(0, dtype)} != {emit.number(0, dtype)}"
    return emit.choose(condition, emit.input(1), emit.input(2), compared=dtype)


def _cast(emit: ScalarEmitter) -> str:
    (source,) = emit.dtypes
    if emit.out != "float16" or source in ("bool", "int8", "uint8", "float16"):
        return emit.input(0)
    return emit.call("round_half", dtype="float64" if source == "float64" else "float32")


def _softplus(emit: ScalarEmitter) -> str:
    x = emit.input(0)
    return emit.choose(f"{x} > 40", x, f"log1p(exp({x}))")


def _xlog(emit: ScalarEmitter) -> str:
    x, *_ = inputs = emit.inputs()
    return emit.choose(f"{x} == 0", emit.number(0), f"{x} * log({inputs[-1]})")


#: Ops that are computed in floating point, and in double precision if the output is an integer, as on the host.
_IN_FLOATS: dict[str, Entry] = {
    **_helpers("ArcCos ArcCosh ArcSin ArcSinh ArcTan ArcTanh Ceil Cos Cosh Exp Exp2 Expm1 Floor", "{}({{0}})".format),
    **_helpers("Log Log10 Log1p Log2 Sin Sinh Sqrt Tan Tanh Trunc", "{}({{0}})".format),
    "Erf": functools.partial(_call_builtin, kind="erf"),
    "Erfc": functools.partial(_call_builtin, kind="erfc"),
    "ArcTan2": "atan2({0}, {1})",
    "RoundHalfAwayFromZero": "round({0})",
    "RoundHalfToEven": "rint({0})",
    "Inv": "1 / {0}",
    "Deg2Rad": "{0} * ({T})0.017453292519943295",
    "Rad2Deg": "{0} * ({T})57.29577951308232",
    "Angle": lambda emit: f"atan2({emit.number(0)}, {emit.input(0)})",
    "ScalarSigmoid": "1 / (1 + exp(-{0}))",
    "UltraFastScalarSigmoid": _helper("fast_sigmoid"),
    "ScalarSoftplus": _softplus,
    "ScalarSoftsign": "{0} / (1 + fabs({0}))",
    "XlogX": _xlog,
    "XlogY0": _xlog,
    **_helpers("Erfcinv Erfcx Erfinv Gamma GammaLn I0 I0e I1 I1e J0 J1 Psi TriGamma", _helper),
}
_REAL: dict[str, Entry] = {
    **_IN_FLOATS,
    "Add": _arithmetic("+", "|"),
    "Mul": _arithmetic("*", "&", identity="1"),
    "MulWithoutZeros": _mul_without_zeros,
    "Sub": _arithmetic("-", "^"),
    "Neg": _neg,
    "Sqr": lambda emit: emit.joined("*", *emit.inputs() * 2),
    "TrueDiv": _true_div,
    "IntDiv": lambda emit: emit.call(f"{emit.kind}_div"),
    "Mod": lambda emit: emit.call(f"{emit.kind}_mod"),
    "Pow": _pow,
    "Abs": _abs,
    "Sgn": _sgn,
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
    "Second": lambda emit: emit.input(1),
    "Identity": "{0}",
    "Conj": "{0}",
    "Real": "{0}",
    "Imag": lambda emit: emit.number(0),
    "Cast": _cast,
    "Element": lambda emit: emit.element(),
    # Because of cancellation, these functions are computed in double precision for any output dtype, as in SciPy and
    # the host's C code.
    **_helpers("Chi2SF GammaInc GammaIncC GammaL GammaU Iv Ive Jv", _in_double),
}


def _circular(emit: ScalarEmitter) -> str:
    x, name = emit.input(0), _c_name(emit.scalar.name)
    if c_type(emit.out) != "float":
        return f"{name}({x})"
    # The vector function returns wrong results for denormal numbers in vectors that also contain huge numbers.
    at_zero = emit.number(1) if name == "cos" else x
    return emit.choose(f"fabs({x}) < FLT_MIN", at_zero, f"{name}({x})")


#: Entries for vectors, used if a driver's own function is wrong (`wrong_vector_functions` in the device profile).
_INSTEAD_OF_WRONG: dict[str, Entry] = dict.fromkeys(("Sin", "Cos", "Tan"), _circular)


def _complex_mul(emit: ScalarEmitter) -> str:
    if not emit.args:
        return emit.number(1)
    return functools.reduce(functools.partial(emit.call, "complex_mul"), emit.inputs())


def _scaled(emit: ScalarEmitter, code: str, by: float) -> str:
    return f"{code} * {literal(by, part_dtype(emit.out))}"


def _complex_eq(emit: ScalarEmitter) -> str:
    return emit.call("complex_eq", dtype=_common_dtype(emit))


def _complex_angle(emit: ScalarEmitter) -> str:
    x = emit.input(0, "complex128")  # on the host, the result is always float64
    return f"atan2({x}.y, {x}.x)"


def _from_parts(text: str) -> Entry:
    return lambda emit: text.format(f"({emit.args[0]})")


_COMPLEX: dict[str, Entry] = {
    **_helpers("ArcCos ArcCosh ArcSin ArcSinh ArcTan ArcTanh Cos Cosh Exp Expm1 Log Pow", _helper, "complex_"),
    **_helpers("Sin Sinh Sqrt Tan Tanh", _helper, "complex_"),
    "MulWithoutZeros": _helper("complex_mul_without_zeros"),
    "TrueDiv": _helper("complex_div"),
    "Add": lambda emit: " + ".join(emit.inputs()) or emit.number(0),
    "Mul": _complex_mul,
    "Sub": "{0} - {1}",
    "Neg": "-{0}",
    "Sqr": lambda emit: emit.call("complex_mul", *emit.inputs() * 2),
    "Inv": lambda emit: emit.call("complex_div", emit.number(1), emit.input(0)),
    "Log2": lambda emit: _scaled(emit, emit.call("complex_log"), 1 / math.log(2)),
    "Log10": lambda emit: _scaled(emit, emit.call("complex_log"), 1 / math.log(10)),
    "Log1p": lambda emit: emit.call("complex_log", f"{emit.input(0)} + {emit.number(1)}"),
    "Exp2": lambda emit: emit.call("complex_exp", _scaled(emit, emit.input(0), math.log(2))),
    "Identity": "{0}",
    "Cast": "{0}",
    "Second": lambda emit: emit.input(1),
    "Switch": lambda emit: emit.call("complex_choose", emit.input(0, "bool"), emit.input(1), emit.input(2)),
    "EQ": _complex_eq,
    "NEQ": lambda emit: f"!{_complex_eq(emit)}",
    "Conj": "({T})({0}.x, -{0}.y)",
    "Real": _from_parts("{0}.x"),
    "Imag": _from_parts("{0}.y"),
    "Abs": lambda emit: emit.call("complex_abs", *emit.args, dtype=emit.dtypes[0]),
    "Angle": _complex_angle,
    "Element": lambda emit: emit.element(),
    "IsNan": _from_parts("isnan({0}.x) || isnan({0}.y)"),
    "IsInf": _from_parts("isinf({0}.x) || isinf({0}.y)"),
    "Complex": lambda emit: f"({c_type(emit.out)})({', '.join(emit.inputs(part_dtype(emit.out)))})",
    "ComplexFromPolar": lambda emit: emit.call("complex_polar", *emit.inputs(part_dtype(emit.out))),
}
