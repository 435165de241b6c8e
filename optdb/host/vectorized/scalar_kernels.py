"""A function of arrays for each scalar op, with the values of its C code.

A kernel takes the operands and, as its last argument, the array for the result. Before, the operands are converted to
the dtypes that the kernel asks for, so that NumPy chooses its loop by the dtypes alone, not by values. The dtype is the
result's, unless the entry says otherwise: C would add an int64 to a float32 as floats, and lose digits.

Where C and NumPy differ, C wins: operands of several dtypes are combined in the dtype that C chooses, integers raise
`ZeroDivisionError` where they are divided by zero, ``floor(x / y)`` is the integer division of floats, and sigmoid and
softplus saturate where Theano's C code says so. NumPy's results stay where those of C are wrong: the quotient of a
negative integer and an unsigned one, and the larger of two integers that no double holds.
"""

from __future__ import annotations

import functools
import importlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np

from optdb.host.api import scalars
from optdb.host.api.graph import Apply
from optdb.host.vectorized import series

__all__ = ["ArrayKernel", "kernel_of"]


@dataclass(frozen=True)
class ArrayKernel:
    """How arrays of a scalar op are computed."""

    #: Takes the operands and the array for the result.
    function: Callable[..., Any]
    #: The dtypes of the operands.
    dtypes: tuple[str, ...]
    #: Whether the result may overwrite an operand: the function writes each element after it has read it.
    in_place: bool = True
    #: Whether the function takes arrays in any number, of which the first two are combined first.
    folds: bool = False


@dataclass(frozen=True)
class ScalarDtypes:
    """A scalar op with the dtypes of its inputs and of its output."""

    op: Any
    inputs: tuple[str, ...]
    out: str

    @property
    def widest(self) -> str:
        """The dtype that holds all inputs, as NumPy promotes them."""
        return np.dtype(functools.reduce(np.promote_types, self.inputs)).name

    @property
    def common(self) -> str:
        """The dtype to which C converts all inputs."""
        return functools.reduce(common_in_c, self.inputs)


def common_in_c(dtype: str, other: str) -> str:
    """Return the dtype in which C combines two numbers: by its usual arithmetic conversions."""
    if dtype == other:
        return dtype
    kinds = {np.dtype(dtype).kind, np.dtype(other).kind}
    if kinds <= {*"biu"}:
        promoted = {_promoted_in_c(dtype), _promoted_in_c(other)}
        return next(name for name in ("uint64", "int64", "uint32", "int32") if name in promoted)
    if "c" in kinds or "float16" in (dtype, other):
        return np.promote_types(dtype, other).name  # without C code
    # An integer of any size becomes the float.
    return max((name for name in (dtype, other) if _is_real_float(name)), key=lambda name: np.dtype(name).itemsize)


def _promoted_in_c(dtype: str) -> str:
    """Return the dtype in which C computes with numbers of a dtype."""
    kind_and_size = np.dtype(dtype)
    return "int32" if kind_and_size.kind in "biu" and kind_and_size.itemsize < 4 else dtype


Entry = Callable[[ScalarDtypes], ArrayKernel]

#: Entries of ops whose operands are converted to the dtype of the result.
_converting: dict[type, Entry] = {}
#: Entries of ops that have another rule.
_special: dict[type, Entry] = {}


def kernel_of(node: Apply) -> ArrayKernel:
    """Return the kernel of a node of a scalar op; one that calls ``impl`` element by element for an unknown op."""
    dtypes = tuple(var.type.dtype for var in node.inputs)
    signature = ScalarDtypes(node.op, dtypes, node.outputs[0].type.dtype)
    op_type = type(node.op)
    if "impl" in vars(node.op):
        return _element_by_element(signature)
    if op_type in _special:
        return _special[op_type](signature)
    if op_type in _converting:
        return _in_widest_dtype(signature, _converting[op_type])
    return _element_by_element(signature)


def known_ops() -> Sequence[type]:
    """Return the classes of the scalar ops that have a kernel."""
    return (*_special, *_converting)


def _in_widest_dtype(signature: ScalarDtypes, entry: Entry) -> ArrayKernel:
    """Return the kernel for a result that may be narrower than the operands, as where a float is added to integers."""
    out = signature.out
    wide = np.promote_types(signature.widest, out).name if signature.inputs else out
    kernel = entry(replace(signature, out=wide))
    if wide == out:
        return kernel

    def compute(*args: Any) -> None:
        result = np.empty(args[-1].shape, wide)
        kernel.function(*args[:-1], result)
        copy(result, args[-1])

    return ArrayKernel(compute, kernel.dtypes, in_place=False)


def _is_real_float(dtype: str) -> bool:
    return dtype.startswith("float")


def _is_inexact(dtype: str) -> bool:
    return dtype.startswith(("float", "complex"))


def _element_by_element(signature: ScalarDtypes) -> ArrayKernel:
    impl = np.frompyfunc(signature.op.impl, len(signature.inputs), 1)

    def compute(*args: Any) -> None:
        args[-1][...] = impl(*args[:-1])

    return ArrayKernel(compute, signature.inputs, in_place=False)


def _in_out_dtype(function: Callable[..., Any], in_place: bool = True) -> Entry:
    """Return an entry whose operands are converted to the dtype of the result."""
    return lambda signature: ArrayKernel(function, (signature.out,) * len(signature.inputs), in_place)


def _in_own_dtypes(function: Callable[..., Any], in_place: bool = True) -> Entry:
    return lambda signature: ArrayKernel(function, signature.inputs, in_place)


def _in_c_order(ufunc: Callable[..., Any], entry: Entry) -> Entry:
    """Return an entry that combines operands of several dtypes from the left, as C does.

    Parameters
    ----------
    ufunc : callable
        Combines two arrays of one dtype.
    entry : Entry
        The entry for operands whose dtype does not matter.
    """

    def choose(signature: ScalarDtypes) -> ArrayKernel:
        partial = list(itertools.accumulate(map(_promoted_in_c, signature.inputs), common_in_c))[1:]
        if all(_is_as_good(dtype, signature.out) for dtype in partial):
            return entry(signature)

        def compute(*args: Any) -> None:
            value, *rest, out = args
            for operand, dtype in zip(rest, partial, strict=True):
                value = ufunc(value.astype(dtype), operand.astype(dtype))
            copy(value, out)

        return ArrayKernel(compute, signature.inputs, in_place=False)

    return choose


def _is_as_good(dtype: str, out: str) -> bool:
    """Return whether sums, products and bits of a dtype are, once converted, those that `out` itself gives."""
    if dtype == out or out == "bool" or out.startswith("complex"):
        return True
    dtypes = np.dtype(dtype), np.dtype(out)
    return all(d.kind in "iu" for d in dtypes) and dtypes[0].itemsize >= dtypes[1].itemsize


def _in_common_dtype(function: Callable[..., Any]) -> Entry:
    """Return an entry whose operands are converted to one dtype, as C converts them."""
    return lambda signature: ArrayKernel(function, (signature.common,) * len(signature.inputs), True)


# Copies and casts


def copy(x: Any, out: Any) -> None:
    """Copy `x` into `out`, converted as C converts numbers."""
    np.copyto(out, x, casting="unsafe")


def _copy_second(x: Any, y: Any, out: Any) -> None:
    np.copyto(out, y, casting="unsafe")


_special.update(
    {
        scalars.Cast: _in_own_dtypes(copy),
        scalars.Identity: _in_own_dtypes(copy),
        scalars.Second: _in_own_dtypes(_copy_second),
    }
)

# Arithmetic


def _folding(ufunc: np.ufunc, of_bools: np.ufunc, of_nothing: int) -> Entry:
    def of_none(out: Any) -> None:
        out[...] = of_nothing

    def entry(signature: ScalarDtypes) -> ArrayKernel:
        dtype = signature.out
        operands = (dtype,) * len(signature.inputs)
        if not operands:
            return ArrayKernel(of_none, operands)
        if len(operands) == 1:
            return ArrayKernel(copy, operands)
        return ArrayKernel(of_bools if dtype == "bool" else ufunc, operands, folds=len(operands) > 2)

    return entry


def _true_div(signature: ScalarDtypes) -> ArrayKernel:
    discrete = not any(map(_is_inexact, signature.inputs))
    if discrete:
        return ArrayKernel(np.true_divide, ("float64",) * 2)
    return _in_c_order(np.true_divide, _in_out_dtype(np.true_divide))(signature)


def _int_div(signature: ScalarDtypes) -> ArrayKernel:
    dtype = signature.out
    if dtype in ("float32", "float64"):
        return ArrayKernel(_floor_of_quotient(signature.common), (dtype,) * 2, in_place=False)
    if dtype == "float16":
        return ArrayKernel(np.floor_divide, (dtype,) * 2)
    return ArrayKernel(_checked(np.floor_divide, "division"), (dtype,) * 2)


def _mod(signature: ScalarDtypes) -> ArrayKernel:
    dtype = signature.out
    if _is_real_float(dtype):
        return ArrayKernel(np.remainder, (dtype,) * 2)
    return ArrayKernel(_checked(np.remainder, "modulo"), (dtype,) * 2)


def _checked(divide: np.ufunc, operation: str) -> Callable[..., None]:
    def compute(x: Any, y: Any, out: Any) -> None:
        if not np.all(y):
            raise ZeroDivisionError(f"integer {operation} by zero")
        divide(x, y, out, casting="unsafe")  # NumPy divides truth values as int8

    return compute


def _floor_of_quotient(dtype: str) -> Callable[..., None]:
    """Return the integer division of floats as C does it, which divides in one dtype, and takes the remainder in any.

    Theano's C code divides the magnitudes, and returns one less for a negative quotient with a remainder.
    """
    divided = np.dtype(dtype) if _is_real_float(dtype) else None

    def compute(x: Any, y: Any, out: Any) -> None:
        quotient = np.true_divide(x, y) if divided in (None, x.dtype) else _divided_in(divided, x, y)
        negative = ((x < 0) != (y < 0)) & (y != 0) & (x != 0)
        np.floor(quotient, out)
        if np.any(negative):
            below = -np.floor(-quotient) - (np.fmod(x, y) != 0)
            np.copyto(out, below, where=negative)

    return compute


def _divided_in(dtype: np.dtype, x: Any, y: Any) -> Any:
    return np.true_divide(x.astype(dtype), y.astype(dtype))


def _pow(signature: ScalarDtypes) -> ArrayKernel:
    dtype = signature.out
    operands = (dtype,) * 2
    if _is_inexact(dtype) or dtype.startswith("uint"):
        return ArrayKernel(np.power, operands)
    return ArrayKernel(_integer_power, operands, in_place=False)


def _integer_power(x: Any, y: Any, out: Any) -> None:
    """Raise integers to powers; of a negative power, the part before the point remains."""
    negative = y < 0
    np.power(x, np.where(negative, 0, y).astype(out.dtype), out)
    if np.any(negative):
        inverse = np.where(x == 1, 1, np.where(x == -1, np.where(y % 2 == 0, 1, -1), 0))
        np.copyto(out, inverse, where=negative, casting="unsafe")


def _product_without_zeros(x: Any, y: Any) -> Any:
    return np.where(x == 0, y, np.where(y == 0, x, np.multiply(x, y)))


def _without_zeros(x: Any, y: Any, out: Any) -> None:
    out[...] = _product_without_zeros(x, y)


def _square(x: Any, out: Any) -> None:
    np.multiply(x, x, out)


def _inverse(x: Any, out: Any) -> None:
    np.true_divide(_ONES[out.dtype], x, out)


_ONES = {np.dtype(name): np.ones((), name) for name in ("float16", "float32", "float64", "complex64", "complex128")}


def _round_from_zero(x: Any, out: Any) -> None:
    whole = np.trunc(x)
    half = np.abs(x - whole) >= 0.5
    np.add(whole, np.copysign(half.astype(x.dtype), x), out)


def _is_false(x: Any, out: Any) -> None:
    out[...] = False


def _float_test(test: np.ufunc) -> Entry:
    def entry(signature: ScalarDtypes) -> ArrayKernel:
        (dtype,) = signature.inputs
        return ArrayKernel(test if _is_inexact(dtype) else _is_false, (dtype,))

    return entry


def _sgn(signature: ScalarDtypes) -> ArrayKernel:
    return ArrayKernel(copy if signature.out == "bool" else np.sign, (signature.out,))


def _abs(signature: ScalarDtypes) -> ArrayKernel:
    (dtype,) = signature.inputs
    return ArrayKernel(copy if dtype == "bool" else np.absolute, (dtype,))


_converting.update(
    {
        scalars.Add: _in_c_order(np.add, _folding(np.add, np.logical_or, 0)),
        scalars.Mul: _in_c_order(np.multiply, _folding(np.multiply, np.logical_and, 1)),
        scalars.MulWithoutZeros: _in_c_order(_product_without_zeros, _in_out_dtype(_without_zeros, in_place=False)),
        scalars.Sub: _in_c_order(np.subtract, _in_out_dtype(np.subtract)),
        scalars.TrueDiv: _true_div,
        scalars.IntDiv: _int_div,
        scalars.Mod: _mod,
        scalars.Pow: _pow,
        scalars.Neg: _in_out_dtype(np.negative),
        scalars.Sqr: _in_out_dtype(_square),
        scalars.Inv: _in_out_dtype(_inverse),
        scalars.Sgn: _sgn,
        scalars.RoundHalfAwayFromZero: _in_out_dtype(_round_from_zero),
    }
)
_special.update(
    {
        scalars.Abs: _abs,
        scalars.IsNan: _float_test(np.isnan),
        scalars.IsInf: _float_test(np.isinf),
    }
)

# Comparisons, choices and bits


def _clip(signature: ScalarDtypes) -> ArrayKernel:
    if len({*signature.inputs}) == 1:
        return ArrayKernel(_clip_in_one_dtype, (signature.out,) * 3, in_place=False)
    of_x, of_low, of_high = signature.inputs
    with_low, with_high, common = common_in_c(of_x, of_low), common_in_c(of_x, of_high), signature.common

    def compute(x: Any, low: Any, high: Any, out: Any) -> None:
        below = x.astype(with_low) < low.astype(with_low)
        above = x.astype(with_high) > high.astype(with_high)
        rest = np.where(above, high.astype(common), x.astype(common))
        copy(np.where(below, low.astype(common), rest), out)

    return ArrayKernel(compute, signature.inputs, in_place=False)


def _clip_in_one_dtype(x: Any, low: Any, high: Any, out: Any) -> None:
    if np.all(low <= high):  # false for NaN
        np.minimum(np.maximum(x, low), high, out=out)
        return
    out[...] = np.where(x < low, low, np.where(x > high, high, x))


def _larger(ufunc: np.ufunc, beyond: np.ufunc) -> Entry:
    """Return an entry for the operand that is beyond the other one, NaN where either is NaN."""

    def entry(signature: ScalarDtypes) -> ArrayKernel:
        dtype, common = signature.out, signature.common
        if len({*signature.inputs}) == 1 or np.can_cast(signature.widest, common, "safe"):
            return ArrayKernel(ufunc, (dtype,) * 2)

        def compute(x: Any, y: Any, out: Any) -> None:
            a, b = x.astype(common), y.astype(common)
            copy(np.where(beyond(b, a), y.astype(dtype), x.astype(dtype)), out)
            if _is_real_float(common):
                _put_where((a != a) | (b != b), np.nan, out)

        return ArrayKernel(compute, signature.inputs, in_place=False)

    return entry


def _switch(signature: ScalarDtypes) -> ArrayKernel:
    condition, *branches = signature.inputs
    dtype, common = signature.out, common_in_c(*branches)
    choose = _choose if condition == "bool" else _choose_by_number
    if _is_as_good(common, dtype):
        return ArrayKernel(choose, (condition, dtype, dtype), in_place=False)
    return ArrayKernel(choose, (condition, common, common), in_place=False)


def _choose(condition: Any, x: Any, y: Any, out: Any) -> None:
    out[...] = np.where(condition, x, y)


def _choose_by_number(condition: Any, x: Any, y: Any, out: Any) -> None:
    out[...] = np.where(condition != 0, x, y)


def _in_range(signature: ScalarDtypes) -> ArrayKernel:
    above = np.greater if signature.op.openlow else np.greater_equal
    below = np.less if signature.op.openhi else np.less_equal
    of_x, of_low, of_high = signature.inputs
    with_low, with_high = common_in_c(of_x, of_low), common_in_c(of_x, of_high)
    dtypes = (with_low,) * 3 if with_low == with_high else signature.inputs

    def compute(x: Any, low: Any, high: Any, out: Any) -> None:
        is_above = above(x.astype(with_low, copy=False), low.astype(with_low, copy=False))
        np.logical_and(is_above, below(x.astype(with_high, copy=False), high.astype(with_high, copy=False)), out)

    return ArrayKernel(compute, dtypes, in_place=False)


_special.update(
    {
        scalars.EQ: _in_common_dtype(np.equal),
        scalars.NEQ: _in_common_dtype(np.not_equal),
        scalars.LT: _in_common_dtype(np.less),
        scalars.LE: _in_common_dtype(np.less_equal),
        scalars.GT: _in_common_dtype(np.greater),
        scalars.GE: _in_common_dtype(np.greater_equal),
        scalars.InRange: _in_range,
        scalars.Switch: _switch,
    }
)
_converting.update(
    {
        scalars.AND: _in_c_order(np.bitwise_and, _in_out_dtype(np.bitwise_and)),
        scalars.OR: _in_c_order(np.bitwise_or, _in_out_dtype(np.bitwise_or)),
        scalars.XOR: _in_c_order(np.bitwise_xor, _in_out_dtype(np.bitwise_xor)),
        scalars.Invert: _in_out_dtype(np.invert),
        scalars.Maximum: _larger(np.maximum, np.greater),
        scalars.Minimum: _larger(np.minimum, np.less),
        scalars.Clip: _clip,
    }
)

# Functions of floats

#: NumPy's ufuncs, and the names of SciPy's, which is imported when one is needed.
_UFUNCS: dict[type, Any] = {
    scalars.Ceil: np.ceil,
    scalars.Floor: np.floor,
    scalars.Trunc: np.trunc,
    scalars.RoundHalfToEven: np.rint,
    scalars.Log: np.log,
    scalars.Log2: np.log2,
    scalars.Log10: np.log10,
    scalars.Log1p: np.log1p,
    scalars.Exp: np.exp,
    scalars.Exp2: np.exp2,
    scalars.Expm1: np.expm1,
    scalars.Sqrt: np.sqrt,
    scalars.Deg2Rad: np.deg2rad,
    scalars.Rad2Deg: np.rad2deg,
    scalars.Cos: np.cos,
    scalars.ArcCos: np.arccos,
    scalars.Sin: np.sin,
    scalars.ArcSin: np.arcsin,
    scalars.Tan: np.tan,
    scalars.ArcTan: np.arctan,
    scalars.ArcTan2: np.arctan2,
    scalars.Cosh: np.cosh,
    scalars.ArcCosh: np.arccosh,
    scalars.Sinh: np.sinh,
    scalars.ArcSinh: np.arcsinh,
    scalars.Tanh: np.tanh,
    scalars.ArcTanh: np.arctanh,
    scalars.Erf: "erf",
    scalars.Erfc: "erfc",
    scalars.Erfcx: "erfcx",
    scalars.Erfinv: "erfinv",
    scalars.Erfcinv: "erfcinv",
    scalars.Gamma: "gamma",
    scalars.GammaLn: "gammaln",
    scalars.GammaInc: "gammainc",
    scalars.GammaIncC: "gammaincc",
    scalars.Jv: "jv",
    scalars.J0: "j0",
    scalars.J1: "j1",
    scalars.Iv: "iv",
    scalars.I0: "i0",
    scalars.I1: "i1",
}


def _special_functions() -> ModuleType:
    return importlib.import_module("scipy.special")


def _function(ufunc_or_name: Any) -> Entry:
    def entry(signature: ScalarDtypes) -> ArrayKernel:
        is_name = isinstance(ufunc_or_name, str)
        ufunc = getattr(_special_functions(), ufunc_or_name) if is_name else ufunc_or_name
        dtype, count = signature.out, len(signature.inputs)
        if _has_loop(ufunc, dtype):
            return ArrayKernel(ufunc, (dtype,) * count)
        if dtype.startswith("complex"):
            return _element_by_element(signature)
        return ArrayKernel(_rounded(ufunc), ("float64",) * count)

    return entry


def _has_loop(ufunc: np.ufunc, dtype: str) -> bool:
    char = np.dtype(dtype).char
    return f"{char * ufunc.nin}->{char}" in ufunc.types


def _rounded(ufunc: np.ufunc) -> Callable[..., None]:
    """Return the function that computes in float64 and converts its results."""

    def compute(*args: Any) -> None:
        copy(ufunc(*args[:-1]), args[-1])

    return compute


_converting.update({op: _function(ufunc) for op, ufunc in _UFUNCS.items()})


def _in_float64(function: Callable[..., Any]) -> Entry:
    """Return an entry that computes in float64 with functions of SciPy, its first argument, and converts the result."""

    def compute(*args: Any) -> None:
        copy(function(_special_functions(), *args[:-1]), args[-1])

    return lambda signature: ArrayKernel(compute, ("float64",) * len(signature.inputs), in_place=False)


def _digamma(signature: ScalarDtypes) -> ArrayKernel:
    """Return SciPy's function for complex numbers, which C does not compute, and else C's series."""
    is_complex = signature.out.startswith("complex")
    return (_function("psi") if is_complex else _in_float64(series.digamma))(signature)


_converting.update(
    {
        scalars.Psi: _digamma,
        scalars.TriGamma: _in_float64(series.trigamma),
        scalars.Chi2SF: _in_float64(lambda special, x, k: special.chdtrc(k, x)),
        scalars.GammaU: _in_float64(lambda special, k, x: special.gammaincc(k, x) * special.gamma(k)),
        scalars.GammaL: _in_float64(lambda special, k, x: special.gammainc(k, x) * special.gamma(k)),
    }
)


def _saturating(limits: dict[str, tuple[float, float]], function: Callable[..., None]) -> Entry:
    """Return an entry for a function that C replaces by its limits beyond two bounds."""

    def entry(signature: ScalarDtypes) -> ArrayKernel:
        dtype = signature.out
        low, high = (np.dtype(dtype).type(limit) for limit in limits["float64" if dtype == "float64" else "float32"])

        def compute(x: Any, out: Any) -> None:
            function(x, low, high, out)

        return ArrayKernel(compute, (dtype,), in_place=False)

    return entry


def _sigmoid(x: Any, low: Any, high: Any, out: Any) -> None:
    np.negative(x, out)
    np.exp(out, out)
    np.add(out, _ONES[out.dtype], out)
    np.true_divide(_ONES[out.dtype], out, out)
    _put_where(x > high, 1, out)


def _softplus(x: Any, low: Any, high: Any, out: Any) -> None:
    np.exp(x, out)
    np.log1p(out, out)
    _put_where(x > high, x, out)


def _put_where(mask: Any, value: Any, out: Any) -> None:
    if mask.any():
        np.copyto(out, value, where=mask, casting="unsafe")


def _ultra_fast_sigmoid(x: Any, out: Any) -> None:
    size = np.abs(x) * out.dtype.type(0.5)
    near = 1.5 * size / (1 + size)
    middle = 0.935409070603099 + 0.0458812946797165 * (size - 1.7)
    tanh = np.where(size < 1.7, near, np.where(size < 3, middle, 0.99505475368673))
    out[...] = 0.5 * (np.where(x >= 0, tanh, -tanh) + 1)


def _softsign(x: Any, out: Any) -> None:
    np.true_divide(x, 1 + np.abs(x), out)


def _xlogx(x: Any, out: Any) -> None:
    _xlogy(x, x, out)


def _xlogy(x: Any, y: Any, out: Any) -> None:
    out[...] = np.where(x == 0, 0, x * np.log(y))


_converting.update(
    {
        scalars.ScalarSigmoid: _saturating({"float32": (-88, 15), "float64": (-709, 19)}, _sigmoid),
        scalars.ScalarSoftplus: _saturating({"float32": (-103, 14), "float64": (-745, 16)}, _softplus),
        scalars.UltraFastScalarSigmoid: _in_out_dtype(_ultra_fast_sigmoid, in_place=False),
        scalars.ScalarSoftsign: _in_out_dtype(_softsign),
        scalars.XlogX: _in_out_dtype(_xlogx, in_place=False),
        scalars.XlogY0: _in_out_dtype(_xlogy, in_place=False),
    }
)

# Complex numbers


def _real(x: Any, out: Any) -> None:
    np.copyto(out, x.real)


def _imag(x: Any, out: Any) -> None:
    np.copyto(out, x.imag)


def _angle(x: Any, out: Any) -> None:
    out[...] = np.angle(x)


def _complex(x: Any, y: Any, out: Any) -> None:
    real, imag = x.copy(), y.copy()
    out.real = real
    out.imag = imag


def _from_polar(radius: Any, theta: Any, out: Any) -> None:
    if np.any(radius < 0):
        raise ValueError("polar radius must be non-negative", radius)
    real, imag = radius * np.cos(theta), radius * np.sin(theta)
    out.real = real
    out.imag = imag


_special.update(
    {
        scalars.Real: _in_own_dtypes(_real),
        scalars.Imag: _in_own_dtypes(_imag),
        scalars.Angle: _in_own_dtypes(_angle, in_place=False),
        scalars.Complex: _in_own_dtypes(_complex, in_place=False),
        scalars.ComplexFromPolar: _in_own_dtypes(_from_polar, in_place=False),
    }
)
_converting[scalars.Conj] = _in_out_dtype(np.conjugate)
