"""NumPy functions whose types, shapes or errors have changed, with the behavior that Theano expects."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterable
from typing import Any

import numpy

from optdb.host.theano.importing.compat import promotion

NUMPY_2 = numpy.lib.NumpyVersion(numpy.__version__) >= "2.0.0"


sctypes: dict[str, list[type]] = {
    "int": [numpy.int8, numpy.int16, numpy.int32, numpy.int64],
    "uint": [numpy.uint8, numpy.uint16, numpy.uint32, numpy.uint64],
    "float": [numpy.float16, numpy.float32, numpy.float64, numpy.longdouble],
    "complex": [numpy.complex64, numpy.complex128, numpy.clongdouble],
    "others": [bool, object, bytes, str, numpy.void],
}


class _Cast:
    """``np.cast[dtype](value)``."""

    def __getitem__(self, dtype: Any) -> Any:
        return lambda value: asarray(value).astype(to_dtype(dtype))


cast = _Cast()

# Making arrays


def array(value: Any, dtype: Any = None, *, copy: Any = True, **options: Any) -> Any:
    """Create an array; ``copy=False`` copies only if necessary."""
    # Do not pass on ``copy=None``, which means False before NumPy 2.
    copy = bool(copy) or (None if NUMPY_2 else False)
    return _converted(lambda value, dtype: numpy.array(value, dtype, copy=copy, **options), value, to_dtype(dtype))


def asarray(value: Any, dtype: Any = None, order: Any = None) -> Any:
    """Convert a value to an array; a value that is an array is copied only if necessary."""
    return _converted(lambda value, dtype: numpy.asarray(value, dtype, order=order), value, to_dtype(dtype))


def zeros(shape: Any, dtype: Any = float, order: Any = "C") -> Any:
    """Make an array of zeros."""
    return numpy.zeros(shape, to_dtype(dtype), order)


def ones(shape: Any, dtype: Any = None, order: Any = "C") -> Any:
    """Make an array of ones."""
    return numpy.ones(shape, to_dtype(dtype), order)


def empty(shape: Any, dtype: Any = float, order: Any = "C") -> Any:
    """Make an uninitialized array."""
    return numpy.empty(shape, to_dtype(dtype), order)


#: Maps abstract types to the concrete types that NumPy 1 chose for them.
_OF_ABSTRACT: dict[type, type] = {
    **dict.fromkeys((numpy.number, numpy.inexact, numpy.floating), numpy.float64),
    numpy.complexfloating: numpy.complex128,
    **dict.fromkeys((numpy.integer, numpy.signedinteger), numpy.dtype("l").type),
    numpy.unsignedinteger: numpy.dtype("L").type,
    **dict.fromkeys((numpy.generic, numpy.flexible), numpy.void),
}


def to_dtype(dtype: Any) -> Any:
    """Convert a dtype argument for NumPy; an object with a dtype, such as a Theano variable, yields its dtype."""
    if isinstance(dtype, type):
        return _OF_ABSTRACT.get(dtype, dtype)
    if dtype is None or isinstance(dtype, str | numpy.dtype):
        return dtype
    named = getattr(dtype, "dtype", None)
    return dtype if named is None else to_dtype(named)


def _of_iterable(stack: Any) -> Any:
    """Wrap a function of a sequence of arrays, so that it accepts any iterable of arrays."""

    @functools.wraps(stack)
    def stack_all(arrays: Any, *args: Any, **options: Any) -> Any:
        return stack(arrays if isinstance(arrays, numpy.ndarray) else list(arrays), *args, **options)

    return stack_all


vstack, hstack, dstack, column_stack, stack = map(
    _of_iterable, (numpy.vstack, numpy.hstack, numpy.dstack, numpy.column_stack, numpy.stack)
)


def _converted(convert: Any, value: Any, dtype: Any) -> Any:
    try:
        return convert(value, dtype)
    except OverflowError:
        if dtype is None or numpy.dtype(dtype).kind not in "iu":
            raise
        return convert(_wrapped(value, numpy.dtype(dtype)), dtype)
    except ValueError as error:
        if dtype is not None or "inhomogeneous" not in str(error):
            raise
        # Lists of different lengths become object arrays.
        return convert(value, object)


def _wrapped(value: Any, dtype: numpy.dtype) -> numpy.ndarray:
    """Return an integer array in which out-of-range numbers wrap around as in NumPy 1."""
    elements = numpy.asarray(value, object)
    numbers = [int(element) for element in elements.ravel()]
    wide = numpy.dtype("uint64" if dtype in ("uint32", "uint64") else "int64")
    if isinstance(value, numpy.ndarray):
        # These numbers were computed by an op in Python, where integers have more than 64 bits.
        wide, numbers = numpy.dtype("uint64"), [number % 2**64 for number in numbers]
    elif wide.kind == "u":
        numbers = [number + 2**64 if -(2**63) <= number < 0 else number for number in numbers]
    return numpy.array(numbers, wide).astype(dtype).reshape(elements.shape)


# Types


def find_common_type(array_types: Iterable[Any], scalar_types: Iterable[Any]) -> Any:
    """Return the result type of arrays and scalars with the given types."""
    arrays = [numpy.dtype(dtype) for dtype in array_types]
    scalars = [numpy.dtype(dtype) for dtype in scalar_types]
    highest_array = _highest(arrays)
    highest_scalar = _highest(scalars)
    if highest_array is None:
        return highest_scalar
    if highest_scalar is None:
        return highest_array
    kinds = "buifc"
    try:
        above = kinds.index(highest_scalar.kind) > kinds.index(highest_array.kind)
    except ValueError:
        return None
    return _highest([highest_array, highest_scalar]) if above else highest_array


def _highest(dtypes: list[Any]) -> Any:
    """Return the smallest type to which all given types can be cast."""
    if not dtypes:
        return None
    if dtypes.count(dtypes[0]) == len(dtypes):
        return dtypes[0]
    for code in "?bhilBHILefdgFDG":
        candidate = numpy.dtype(code)
        if all(numpy.can_cast(dtype, candidate) for dtype in dtypes):
            return candidate
    return None


def issubsctype(first: Any, second: Any) -> bool:
    """Return whether the first scalar type is a subclass of the second; both can also be given as arrays."""
    return issubclass(_scalar_type(first), _scalar_type(second))


def obj2sctype(value: Any, default: Any = None) -> Any:
    """Return the scalar type of an object."""
    try:
        return _scalar_type(value)
    except TypeError:
        return default


def sctype2char(sctype: Any) -> str:
    """Return the character for a scalar type."""
    return numpy.dtype(_scalar_type(sctype)).char


def maximum_sctype(sctype: Any) -> Any:
    """Return the largest scalar type of a type's kind."""
    kind = {"i": "int", "u": "uint", "f": "float", "c": "complex"}.get(numpy.dtype(sctype).kind)
    return sctypes[kind][-1] if kind else numpy.dtype(sctype).type


def _scalar_type(value: Any) -> Any:
    if isinstance(value, type) and issubclass(value, numpy.generic):
        return value
    return numpy.dtype(getattr(value, "dtype", value)).type


def asscalar(value: Any) -> Any:
    """Return the only element of an array."""
    return value.item()


# Promotion by value, as in NumPy 1


def can_cast(from_: Any, to: Any, casting: promotion.Casting = "safe") -> bool:
    """Return whether a cast is safe; for scalars, this depends on the value."""
    if isinstance(from_, bool | int | float | complex | numpy.generic) or (
        isinstance(from_, numpy.ndarray) and not from_.ndim
    ):
        return promotion.can_cast_value(from_, numpy.dtype(to), casting)
    return numpy.can_cast(from_, to, casting)


def result_type(*operands: Any) -> Any:
    """Return the result type of arrays, scalars and types; scalars promote by value."""
    return promotion.result_type(operands)


def where(condition: Any, *choices: Any) -> Any:
    """Choose elements by a condition."""
    return numpy.where(condition, *(promotion.convert(*choices) if choices else ()))


def clip(value: Any, lowest: Any, highest: Any, out: Any = None, **options: Any) -> Any:
    """Limit values; the limits promote by value."""
    value = value if isinstance(value, numpy.ndarray | numpy.generic) else numpy.asarray(value)
    lowest = promotion.convert(value, lowest)[1]
    highest = promotion.convert(value, highest)[1]
    return numpy.clip(value, lowest, highest, out, **options)


def unique(value: Any, return_index: Any = False, return_inverse: Any = False, *rest: Any, **options: Any) -> Any:
    """Return the distinct elements; the inverse indices are always a vector."""
    result = numpy.unique(value, return_index, return_inverse, *rest, **options)
    if not return_inverse:
        return result
    inverse = 1 + bool(return_index)
    return tuple(part.reshape(-1) if i == inverse else part for i, part in enumerate(result))


class _FloatingUfunc:
    """A NumPy function that converts integer arguments to floating types, as in NumPy 1."""

    def __init__(self, ufunc: Any) -> None:
        self.ufunc = ufunc

    def __call__(self, value: Any, *rest: Any, **options: Any) -> Any:
        return self.ufunc(_floating(value), *rest, **options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "ufunc":
            raise AttributeError(name)
        return getattr(self.ufunc, name)


ceil = _FloatingUfunc(numpy.ceil)
floor = _FloatingUfunc(numpy.floor)
trunc = _FloatingUfunc(numpy.trunc)


def _floating(value: Any) -> Any:
    """Convert integers to the floating type that NumPy's floating-point functions return for them."""
    array = numpy.asarray(value)
    if array.dtype.kind not in "biu":
        return value
    return array.astype({1: "float16", 2: "float32"}.get(array.dtype.itemsize, "float64"))


def angle(value: Any, deg: bool = False) -> Any:
    """Return the angle of complex numbers; for a single integer, the result is float64."""
    if isinstance(value, numpy.integer | numpy.bool_):
        value = numpy.float64(value)
    return numpy.angle(value, deg)


def in1d(first: Any, second: Any, assume_unique: bool = False, invert: bool = False) -> Any:
    """Return whether each element of a flattened array occurs in another array."""
    return numpy.isin(numpy.ravel(first), second, assume_unique=assume_unique, invert=invert)


def trapz(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Any:
    """Integrate by the trapezoidal rule."""
    function = numpy.trapezoid if hasattr(numpy, "trapezoid") else numpy.trapz
    return function(y, x, dx, axis)


def fromstring(string: Any, dtype: Any = float, count: int = -1, *, sep: str = "") -> Any:
    """Make an array from text or bytes."""
    if sep:
        return numpy.fromstring(string, dtype, count, sep=sep)
    return numpy.frombuffer(string, dtype, count).copy()


def show_config() -> None:
    """Print how NumPy was built."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        numpy.show_config()
