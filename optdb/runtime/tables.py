"""Values that the host computes in a call before it uploads them: lookup tables of kernels, and numbers.

A table is an array of rows or classes, computed from the values of arguments by a function with a name. While a
function is traced, what it gives is a `DeferredArray`, and a file says the name: when the trace runs, the function is
called with the arguments of that call, and makes the same checks. Functions for tables take NumPy arrays and whole
numbers, and return arrays of int64 whose shapes follow from those of the arguments.

A number, such as one by the size of a batch, is worked out from sizes. What does so has a name, too, so that a file can
say it, and a dtype, in which it computes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from optdb.runtime.commands import HostCall, enqueue, tracing
from optdb.runtime.sizes import DeferredArray, SymInt

_DTYPE = np.dtype("int64")

Shape = Callable[..., Sequence[Any]]
#: By name, a function and what tells the shape of what it returns.
TABLES: dict[str, tuple[Callable[..., np.ndarray], Shape]] = {}


def _table(shape: Shape) -> Callable[[Callable[..., np.ndarray]], Callable[..., np.ndarray]]:
    def register(function: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
        TABLES[function.__name__] = function, shape
        return function

    return register


def computed(name: str, *args: Any) -> np.ndarray | DeferredArray:
    """Return what the function of a name makes of arguments; while a function is traced, perhaps later."""
    function, shape = TABLES[name]
    if tracing() is None or not any(isinstance(x, DeferredArray | SymInt) for x in args):
        return function(*args)
    if any(isinstance(x, DeferredArray) and x.is_on_device for x in args):
        reason = (
            "indices, rows or classes are computed by the call itself, and the host would have to read them from the "
            "device. Compute them in a function of their own, ahead of the call, and pass them as an argument"
        )
        enqueue(HostCall(reason))
    return DeferredArray(tuple(shape(*args)), _DTYPE, ("table", name, args))


@_table(shape=lambda values, columns: values.shape)
def classes(values: np.ndarray, columns: int) -> np.ndarray:
    """Return classes; raise ValueError if there is no column for one."""
    _check(values)
    wrong = (values < 0) | (values >= columns)
    if wrong.any():
        raise ValueError(f"y_i value out of bounds: class {values[wrong][0]} of {columns}")
    return values.astype(_DTYPE)


@_table(shape=lambda values, length, axis: values.shape)
def indexes(values: np.ndarray, length: int, axis: int) -> np.ndarray:
    """Return indexes from the front; raise IndexError if one is out of an axis of that length."""
    _check(values)
    wrong = (values >= length) | (values < -length if values.dtype.kind == "i" else False)
    if wrong.any():
        raise IndexError(f"index {values[wrong][0]} is out of bounds for axis {axis} with size {length}")
    signed = values.astype(_DTYPE)
    return np.where(signed < 0, signed + length, signed)


@_table(shape=lambda named: named.shape)
def mentions(named: np.ndarray) -> np.ndarray:
    """Return where each number stands, those of the smallest number first."""
    _check(named, ndim=1)
    return np.argsort(named, kind="stable").astype(_DTYPE)


@_table(shape=lambda named: named.shape)
def distinct(named: np.ndarray) -> np.ndarray:
    """Return the numbers that there are, sorted, each once; filled up with zeros."""
    _check(named, ndim=1)
    return _filled_up(np.unique(named), len(named), 0)


@_table(shape=lambda named: (named.shape[0] + 1,))
def begins(named: np.ndarray) -> np.ndarray:
    """Return where in `mentions` those of each number of `distinct` begin, and the end, with which it is filled up."""
    _check(named, ndim=1)
    _, starts = np.unique(np.sort(named), return_index=True)
    return _filled_up(starts, len(named) + 1, len(named))


def _check(values: np.ndarray, ndim: int | None = None) -> None:
    """Check that a table can be made of values."""
    if values.dtype.kind not in "iub" or (ndim is not None and values.ndim != ndim):
        raise TypeError(f"it takes whole numbers, not {values.dtype} in {values.ndim} dimensions")


def _filled_up(values: np.ndarray, length: int, value: int) -> np.ndarray:
    result = np.full(length, value, _DTYPE)
    result[: len(values)] = values
    return result


#: By name, the functions that compute a number from one or two others.
HOST_SCALAR_OPS: dict[str, Callable[..., Any]] = {
    "cast": np.positive,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "true_div": np.true_divide,
    "int_div": np.floor_divide,
    "mod": np.remainder,
    "pow": np.power,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "neg": np.negative,
    "abs": np.absolute,
    "inv": np.reciprocal,
    "sqr": np.square,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "log": np.log,
    "floor": np.floor,
    "ceil": np.ceil,
}


def host_scalar(name: str, dtype: str, *values: Any) -> Any:
    """Compute a number by one of `HOST_SCALAR_OPS`, in a dtype to which all values are brought first."""
    with np.errstate(all="ignore"):
        operands = [np.asarray(value).astype(dtype) for value in values]
        return np.asarray(HOST_SCALAR_OPS[name](*operands)).astype(dtype)[()]
