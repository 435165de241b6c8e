"""Writes ``theano1.txt``, which has a line for each type and value that Theano infers with NumPy 1.23.

If that version is installed, ``python -m tests.host.theano.importing.compat.theano1`` rewrites the file.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

TABLE = Path(__file__).with_name("theano1.txt")
TYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
TYPES += ["float16", "float32", "float64", "complex64", "complex128"]
INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
NUMBERS = [0, 1, -1, 127, 128, 255, 256, -129, 32768, 65536, 2**31, 2**40, 0.0, 0.1, 0.5, 70000.0, 1e30, 1e300, True]
#: The smallest and largest numbers of integer types, and numbers beyond these limits.
BOUNDS = [
    300,
    -1,
    127,
    128,
    -129,
    255,
    256,
    2**15,
    -(2**15) - 1,
    2**16,
    2**31,
    -(2**31) - 1,
    2**32,
    2**63 - 1,
    -(2**63),
]
BOUNDS += [2**63, 2**64 - 1, 2**64, -(2**63) - 1, 300.0, -1.5, 1e30, float("nan"), float("inf"), np.int64(300)]
BOUNDS += [np.float64(300), np.uint64(2**64 - 1), np.array(-1)]


def inferred() -> dict[str, str]:
    """Return the types and the folded values of a thousand expressions, by name."""
    import theano
    import theano.tensor as tt

    def type_of(make: object) -> str:
        try:
            return str(make().dtype)
        except Exception as error:
            return type(error).__name__

    def folded(make: object) -> str:
        try:
            value = theano.function([], make(), mode="FAST_COMPILE")()
        except Exception as error:
            return type(error).__name__
        return f"{value.dtype} {value.astype(complex).tolist()}"

    table = {}
    for policy, float_x in [("custom", "float64"), ("custom", "float32"), ("numpy+floatX", "float32")]:
        theano.config.cast_policy, theano.config.floatX = policy, float_x
        head = f"{policy} {float_x}"
        for number in NUMBERS:
            table[f"{head} constant({number!r})"] = type_of(lambda number=number: tt.constant(number))
            for dtype in TYPES:
                vector = tt.vector(dtype=dtype)
                table[f"{head} {dtype} + {number!r}"] = type_of(lambda v=vector, n=number: v + n)
                table[f"{head} {dtype} / {number!r}"] = type_of(lambda v=vector, n=number: v / n)
        for first in TYPES:
            for second in TYPES:
                table[f"{head} upcast({first}, {second})"] = theano.scalar.upcast(first, second)
    theano.config.cast_policy, theano.config.floatX = "custom", "float64"
    for dtype in TYPES:
        for number in (0.1, 3, -1, 300):
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                scalar = np.array([number]).astype(dtype)[0]
                for name, make in {
                    "x + n": lambda s=scalar, n=number: tt.constant(s) + n,
                    "x * n": lambda s=scalar, n=number: tt.constant(s) * n,
                    "n - x": lambda s=scalar, n=number: n - tt.constant(s),
                    "sqr": lambda s=scalar: tt.sqr(tt.constant(s)),
                    "maximum": lambda s=scalar, n=number: tt.maximum(tt.constant(s), n),
                }.items():
                    table[f"{name}, x {dtype}, n {number}"] = folded(make)
    for dtype in INTEGERS:
        for number in BOUNDS:
            for name, convert in CONVERSIONS.items():
                table[f"{name}, {number!r} ({type(number).__name__}) to {dtype}"] = _converted(convert, dtype, number)
    return table


def _converted(convert: Callable[[str, Any], Any], dtype: str, number: Any) -> str:
    """Return the type and the value of a converted number, or the name of the error that the conversion raises."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            value = np.asarray(convert(dtype, number))
        except Exception as error:
            return type(error).__name__
    return f"{value.dtype} {value.tolist()}"


def _cast_in_python(dtype: str, number: Any) -> Any:
    import theano.tensor as tt

    x = tt.as_tensor_variable(number).type()
    return theano_function([x], tt.cast(x, dtype))(number)


def _maximum_in_python(dtype: str, number: Any) -> Any:
    import theano.tensor as tt

    x, y = tt.scalar(dtype=dtype), tt.as_tensor_variable(number).type()
    maximum = tt.Elemwise(tt.maximum.scalar_op)
    maximum.nfunc = maximum.nfunc_spec = None
    return theano_function([x, y], maximum(x, y))(1, number)


def theano_function(inputs: list[Any], output: Any) -> Callable[..., Any]:
    """Compile a function that runs in Python, without optimization."""
    import theano

    return theano.function(inputs, output, mode=theano.Mode("py", None))


def _constant(dtype: str, number: Any) -> Any:
    import theano.tensor as tt

    return tt.constant(number, dtype=dtype).data


def _filter(dtype: str, number: Any) -> Any:
    import theano.tensor as tt

    return tt.TensorType(dtype, (False,)).filter([number, 1], allow_downcast=True)


def _filter_scalar(dtype: str, number: Any) -> Any:
    import theano

    return theano.scalar.Scalar(dtype).filter(number, allow_downcast=True)


def _filter_without_loss(dtype: str, number: Any) -> Any:
    import theano

    return theano.scalar.Scalar(dtype).filter(number)


def _constant_value(dtype: str, number: Any) -> Any:
    import theano.tensor as tt

    return tt.get_scalar_constant_value(tt.cast(tt.constant(number), dtype))


#: Ways to convert a number of one type to another type.
CONVERSIONS: dict[str, Callable[[str, Any], Any]] = {
    "cast": _cast_in_python,
    "maximum": _maximum_in_python,
    "constant": _constant,
    "filter": _filter,
    "filter scalar": _filter_scalar,
    "filter without loss": _filter_without_loss,
    "constant value": _constant_value,
}


if __name__ == "__main__":
    import optdb  # noqa: F401

    TABLE.write_text("\n".join(inferred().values()) + "\n")
