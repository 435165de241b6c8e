"""Evaluates a function at many points: it is compiled again with a leading batch axis."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.type import TensorType

from optdb.pytensor.compiled import arrays_of, device_function, explicit_inputs

__all__ = ["evaluate_many"]


@dataclass(frozen=True)
class _Batched:
    """A compiled function with a batch axis, and which of its results have that axis."""

    function: Any
    has_axis: tuple[bool, ...]


#: The batched function of each device function.
_BATCHED: weakref.WeakKeyDictionary[Any, _Batched] = weakref.WeakKeyDictionary()


def evaluate_many(f: Any, *xs: Any) -> Any:
    """Evaluate a function at many points in one call.

    The results equal ``f(x)`` for each x, up to rounding. The first call compiles a function with a batch axis in front
    of every argument and result; this function is kept as long as `f`. A call needs memory for all points.

    Parameters
    ----------
    f : pytensor.compile.executor.Function
        A function compiled in mode OPENCL, without updates of shared variables.
    *xs : array_like
        The values of each argument of `f`, with a first axis for the points.

    Returns
    -------
    list of ndarray or ndarray
        For each output of `f`, its values at all points; a single array if `f` returns one.

    Raises
    ------
    TypeError
        If `f` is of another mode or has updates, or if arguments have wrong types.
    ValueError
        If arguments have different numbers of points.
    """
    compiled = device_function(f)
    inputs = explicit_inputs(f)
    if not inputs:
        raise TypeError("the function has no arguments, so all its calls return the same")
    arrays = arrays_of(inputs, xs, batch_axes=1)
    counts = [len(array) for array in arrays]
    if len(set(counts)) > 1:
        raise ValueError(f"the arguments have different numbers of points: {', '.join(map(str, counts))}")
    if compiled not in _BATCHED:
        _BATCHED[compiled] = _compiled(f, inputs)
    batched = _BATCHED[compiled]
    count = counts[0]
    if not count:
        # Without points, results of some ops would not have the batched shape: compute one point, and drop it.
        arrays = [np.zeros((1, *array.shape[1:]), array.dtype) for array in arrays]
    values = zip(batched.function(*arrays), batched.has_axis, strict=True)
    results = [value[:count] if has_axis else np.repeat(value[None], count, axis=0) for value, has_axis in values]
    return results[0] if f.unpack_single else results


def _compiled(f: Any, inputs: list[Any]) -> _Batched:
    """Compile a function with a leading batch axis on all arguments and results."""
    updated = [given.variable for given in f.maker.inputs if given.update is not None]
    if updated:
        raise TypeError(f"each call updates {', '.join(map(str, updated))}, so calls cannot be batched")
    outputs = [given.variable for given in f.maker.outputs]
    known = {given.variable for given in f.maker.inputs}
    foreign = [var for var in graph_inputs(outputs) if isinstance(var, SharedVariable) and var not in known]
    if foreign:
        names = ", ".join(map(str, foreign))
        raise TypeError(f"the function is a copy whose graph still reads {names}: compile it again")
    points = {given.variable: _with_axis(given.variable) for given in inputs}
    vectorized = vectorize_graph(outputs, points)
    function = pytensor.function(list(points.values()), vectorized, mode=f.maker.mode, on_unused_input="ignore")
    has_axis = tuple(more.type.ndim > less.type.ndim for more, less in zip(vectorized, outputs, strict=True))
    return _Batched(function, has_axis)


def _with_axis(variable: Any) -> Any:
    kind = variable.type
    return TensorType(kind.dtype, shape=(None, *kind.shape))(f"{variable.name or 'x'}_points")
