"""Numbers in OpenCL C: the type in which each dtype is computed, conversions and literals.

Booleans are bytes with the values 0 and 1. Float16 numbers are computed as floats; only an explicit cast to float16
rounds them. Complex numbers are vectors of two; programs with complex numbers have no other vectors.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

#: The type in which values of each dtype are computed.
C_TYPES = {
    "bool": "uchar",
    "int8": "char",
    "uint8": "uchar",
    "int16": "short",
    "uint16": "ushort",
    "int32": "int",
    "uint32": "uint",
    "int64": "long",
    "uint64": "ulong",
    "float16": "float",
    "float32": "float",
    "float64": "double",
    "complex64": "float2",
    "complex128": "double2",
}

#: The dtype of the parts of complex numbers.
_PARTS = {"complex64": "float32", "complex128": "float64"}


class NoCode(NotImplementedError):
    """Raised if there is no OpenCL C code for a computation; the error's message gives the reason."""


def c_type(dtype: str) -> str:
    """Return the type in which values of `dtype` are computed; raise NoCode if there is none."""
    try:
        return C_TYPES[dtype]
    except KeyError:
        raise NoCode(f"no {dtype} on the device") from None


def unsigned(dtype: str) -> str:
    """Return the C type in which integers of `dtype` are added and multiplied.

    The type is unsigned, because signed overflow is undefined in C, and at least as wide as an int.
    """
    return "ulong" if dtype.endswith("64") else "uint"


def is_float(dtype: str) -> bool:
    """Return whether `dtype` holds floating point numbers."""
    return dtype.startswith("float")


def is_complex(dtype: str) -> bool:
    """Return whether `dtype` holds complex numbers."""
    return dtype in _PARTS


def part_dtype(dtype: str) -> str:
    """Return the dtype of the real and imaginary parts of a complex `dtype`."""
    return _PARTS[dtype]


def convert(code: str, source: str, target: str, width: int = 1) -> str:
    """Convert `code`, an expression of dtype `source`, to `target`; `code` is a vector if the width is above 1.

    Raise NoCode if only `source` is complex.
    """
    if source == target or c_type(source) == c_type(target) != "uchar":
        return code
    if is_complex(source) and is_complex(target):
        return f"convert_{c_type(target)}({code})"
    if is_complex(source):
        raise NoCode(f"a complex number cannot be converted to {target}; use its real part, for example")
    if is_complex(target):
        return f"({c_type(target)})({convert(code, source, part_dtype(target))}, 0)"
    if target == "bool":
        return f"convert_uchar{width}(-(({code}) != ({c_type(source)})0))" if width > 1 else f"(uchar)(({code}) != 0)"
    if not is_float(source) or is_float(target) or target in ("int32", "int64"):
        return _cast(code, c_type(target), width)
    # Convert through a signed integer type, as CPUs do.
    if target != "uint64":
        return _cast(_cast(code, "long" if target == "uint32" else "int", width), c_type(target), width)
    direct, by_way = _cast(code, "ulong", width), _cast(_cast(code, "long", width), "ulong", width)
    if width > 1:
        return f"select({direct}, {by_way}, {_cast(f'({code}) < 0', 'long', width)})"
    return f"(({code}) < 0 ? {by_way} : {direct})"


def _cast(code: str, name: str, width: int) -> str:
    return f"convert_{name}{width}({code})" if width > 1 else f"({name})({code})"


def literal(value: Any, dtype: str) -> str:
    """Return `value` as a constant expression of dtype `dtype`, without rounding."""
    if is_float(dtype):
        return _float_literal(float(value), c_type(dtype))
    if is_complex(dtype):
        parts = [literal(part, part_dtype(dtype)) for part in (complex(value).real, complex(value).imag)]
        return f"({c_type(dtype)})({', '.join(parts)})"
    number = int(value)
    if dtype == "uint64":
        return f"{number}UL"
    if dtype == "int64":
        lowest = number == np.iinfo(np.int64).min
        return f"({number + 1}L - 1L)" if lowest else f"{number}L" if number >= 0 else f"({number}L)"
    if number == np.iinfo(np.int32).min:
        return f"({number + 1} - 1)"
    text = f"{number}u" if dtype == "uint32" else f"{number}"
    return f"(({c_type(dtype)}){text})" if number >= 0 else f"(({c_type(dtype)})({text}))"


def _float_literal(value: float, name: str) -> str:
    if math.isnan(value):
        return "NAN" if name == "float" else "(double)NAN"
    if math.isinf(value):
        sign = "-" if value < 0 else ""
        return f"({sign}INFINITY)" if name == "float" else f"({sign}(double)INFINITY)"
    text = value.hex() + ("f" if name == "float" else "")
    return f"({text})" if text.startswith("-") else text
