"""Functions of floats."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from optdb.host.api import scalars
from optdb.host.theano.vectorized import series
from optdb.host.theano.vectorized.scalar_kernels import entries

#: Scalar ops whose names, in lower case, are names of NumPy's ufuncs.
_NUMPY = (
    *("Ceil", "Floor", "Trunc", "Log", "Log2", "Log10", "Log1p", "Exp", "Exp2", "Expm1", "Sqrt", "Deg2Rad", "Rad2Deg"),
    *("Cos", "ArcCos", "Sin", "ArcSin", "Tan", "ArcTan", "ArcTan2", "Cosh", "ArcCosh", "Sinh", "ArcSinh"),
    *("Tanh", "ArcTanh"),
)
#: Scalar ops whose names, in lower case, are names of SciPy's ufuncs. SciPy is imported when one of these ops is used.
_SCIPY = (
    *("Erf", "Erfc", "Erfcx", "Erfinv", "Erfcinv", "Gamma", "GammaLn", "GammaInc", "GammaIncC"),
    *("Jv", "J0", "J1", "Iv", "I0", "I1"),
)
_UFUNCS: dict[type, Any] = {
    scalars.RoundHalfToEven: np.rint,
    **{getattr(scalars, name): getattr(np, name.lower()) for name in _NUMPY},
    **{getattr(scalars, name): name.lower() for name in _SCIPY},
}


def _special_functions() -> ModuleType:
    return importlib.import_module("scipy.special")


def _function(ufunc_or_name: Any) -> entries.Entry:
    def entry(signature: entries.ScalarDtypes) -> entries.ArrayKernel:
        is_name = isinstance(ufunc_or_name, str)
        ufunc = getattr(_special_functions(), ufunc_or_name) if is_name else ufunc_or_name
        dtype, count = signature.out, len(signature.inputs)
        if _has_loop(ufunc, dtype):
            return entries.ArrayKernel(ufunc, (dtype,) * count)
        if dtype.startswith("complex"):
            return entries.element_by_element(signature)
        return entries.ArrayKernel(_rounded(ufunc), ("float64",) * count)

    return entry


def _has_loop(ufunc: np.ufunc, dtype: str) -> bool:
    char = np.dtype(dtype).char
    return f"{char * ufunc.nin}->{char}" in ufunc.types


def _rounded(ufunc: np.ufunc) -> Callable[..., None]:
    """Return a function that computes in float64 and converts the result."""

    def compute(*args: Any) -> None:
        entries.copy(ufunc(*args[:-1]), args[-1])

    return compute


def _in_float64(function: Callable[..., Any]) -> entries.Entry:
    """Return an entry that computes in float64; the first argument of `function` is `scipy.special`."""

    def compute(*args: Any) -> None:
        entries.copy(function(_special_functions(), *args[:-1]), args[-1])

    return lambda signature: entries.ArrayKernel(compute, ("float64",) * len(signature.inputs), in_place=False)


def _digamma(signature: entries.ScalarDtypes) -> entries.ArrayKernel:
    """Return SciPy's function for complex numbers, which C code does not support; otherwise, the C code's series."""
    is_complex = signature.out.startswith("complex")
    return (_function("psi") if is_complex else _in_float64(series.digamma))(signature)


def _saturating(bounds: dict[str, float], function: Callable[..., None]) -> entries.Entry:
    """Return an entry for a function whose C code returns an asymptote of the function for arguments beyond a bound."""

    def entry(signature: entries.ScalarDtypes) -> entries.ArrayKernel:
        dtype = signature.out
        bound = np.dtype(dtype).type(bounds["float64" if dtype == "float64" else "float32"])

        def compute(x: Any, out: Any) -> None:
            function(x, bound, out)

        return entries.ArrayKernel(compute, (dtype,), in_place=False)

    return entry


def _sigmoid(x: Any, bound: Any, out: Any) -> None:
    np.negative(x, out)
    np.exp(out, out)
    np.add(out, entries.ONES[out.dtype], out)
    np.true_divide(entries.ONES[out.dtype], out, out)
    entries.put_where(x > bound, 1, out)


def _softplus(x: Any, bound: Any, out: Any) -> None:
    np.exp(x, out)
    np.log1p(out, out)
    entries.put_where(x > bound, x, out)


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


CONVERTING: dict[type, entries.Entry] = {
    **{op: _function(ufunc) for op, ufunc in _UFUNCS.items()},
    scalars.Psi: _digamma,
    scalars.TriGamma: _in_float64(series.trigamma),
    scalars.Chi2SF: _in_float64(lambda special, x, k: special.chdtrc(k, x)),
    scalars.GammaU: _in_float64(lambda special, k, x: special.gammaincc(k, x) * special.gamma(k)),
    scalars.GammaL: _in_float64(lambda special, k, x: special.gammainc(k, x) * special.gamma(k)),
    scalars.ScalarSigmoid: _saturating({"float32": 15, "float64": 19}, _sigmoid),
    scalars.ScalarSoftplus: _saturating({"float32": 14, "float64": 16}, _softplus),
    scalars.UltraFastScalarSigmoid: entries.in_out_dtype(_ultra_fast_sigmoid, in_place=False),
    scalars.ScalarSoftsign: entries.in_out_dtype(_softsign),
    scalars.XlogX: entries.in_out_dtype(_xlogx, in_place=False),
    scalars.XlogY0: entries.in_out_dtype(_xlogy, in_place=False),
}
