"""Replacements for operations whose meaning has changed, used in the translated source of Theano and its libraries.

In the translated source, they replace built-in functions, NumPy's types and methods, ``%``, and list indexes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from optdb.host.theano.importing.compat.modules.numpy._functions import asarray, to_dtype


def _single(value: Any) -> Any:
    return value.item() if isinstance(value, np.ndarray) and value.ndim and value.size == 1 else value


def to_float(value: Any) -> float:
    """Convert to float."""
    return float(_single(value))


def to_int(value: Any) -> int:
    """Convert to int."""
    return int(_single(value))


def to_complex(value: Any) -> complex:
    """Convert to complex."""
    return complex(_single(value))


def to_bool(value: Any) -> bool:
    """Convert to bool; an empty array is False."""
    if isinstance(value, np.ndarray) and not value.size:
        return False
    return bool(value)


#: The mode in which NumPy 2 prints as version 1; NumPy 2 accepts it, although NumPy's type annotations do not.
_NUMPY_1: Any = "1.25"


def to_repr(value: Any) -> str:
    """Return repr() of a value, with NumPy scalars printed as in NumPy 1."""
    if np.lib.NumpyVersion(np.__version__) < "2.0.0":
        return repr(value)
    with np.printoptions(legacy=_NUMPY_1):
        return repr(value)


def make_dtype(dtype: Any, *rest: Any, **options: Any) -> np.dtype:
    """Return the dtype for an argument that NumPy accepts as a dtype, or for an object with the attribute ``dtype``."""
    return np.dtype(to_dtype(dtype), *rest, **options)


def to_scalar(make: Any, value: Any) -> Any:
    """Call `make`; if it is a NumPy integer type, out-of-range numbers wrap around."""
    try:
        return make(value)
    except OverflowError:
        if not (isinstance(make, type) and issubclass(make, np.integer)):
            raise
    return asarray(value, make)[()]


def fill(array: Any, value: Any) -> Any:
    """Call an object's ``fill`` method; for an integer array, out-of-range numbers wrap around."""
    if isinstance(array, np.ndarray) and array.dtype.kind in "iu" and isinstance(value, int | float | np.number):
        with np.errstate(invalid="ignore"):
            value = np.asarray(value).astype(array.dtype)
    return array.fill(value)


def itemset(array: Any, *place_and_value: Any) -> None:
    """Set an array's element at the given index or indices, or its only element if no index is given."""
    *place, value = place_and_value
    if len(place) == 1 and not isinstance(place[0], tuple):
        array.flat[place[0]] = value
    else:
        array[place[0] if len(place) == 1 else tuple(place)] = value


def decode(text: Any, *args: Any, **options: Any) -> Any:
    """Call an object's ``decode`` method; return a string unchanged."""
    return text if isinstance(text, str) else text.decode(*args, **options)


def format_text(template: str, values: Any) -> str:
    """Return ``template % values``, with one-element arrays converted to numbers."""
    values = tuple(map(_single, values)) if type(values) is tuple else _single(values)
    if "r" not in template or np.lib.NumpyVersion(np.__version__) < "2.0.0":
        return template % values
    with np.printoptions(legacy=_NUMPY_1):
        return template % values


def to_index(indexed: Any, index: Any) -> Any:
    """Return an index; convert a list to a tuple if it indexes an array and contains slices or sequences."""
    if isinstance(indexed, np.ndarray) and type(index) is list and any(map(_needs_tuple, index)):
        return tuple(index)
    return index


def _needs_tuple(part: Any) -> bool:
    return part is None or part is Ellipsis or isinstance(part, slice | list | tuple | np.ndarray)
