"""Operations on functions in mode OPENCL: reports, repeated and asynchronous calls, and evaluation at many points."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.type import TensorType

from optdb.device.futures import Future
from optdb.device.progress import calls_in_chunks, checked_times, in_chunks, shows_progress
from optdb.numpy_types import HostArray
from optdb.pytensor.choosing import ChoosingFunction
from optdb.pytensor.host_groups import op_name
from optdb.pytensor.linker import DeviceThunk, OpenCLFunction
from optdb.pytensor.shared_variables import let_hosts_fetch
from optdb.runtime.timing import CommandRange


def device_function(function: Any) -> OpenCLFunction:
    """Return the object that runs a function on its device; raise TypeError if it was compiled in another mode."""
    compiled = getattr(getattr(function, "vm", None), "jit_fn", None)
    if not isinstance(compiled, OpenCLFunction):
        raise TypeError(f"{function!r} is not of mode OPENCL: compile it with pytensor.function(..., mode='OPENCL')")
    return compiled


def explicit_inputs(function: Any) -> list[Any]:
    """Return a function's inputs, without shared variables."""
    return [given for given in function.maker.inputs if not given.implicit]


def arrays_of(inputs: Sequence[Any], values: Sequence[Any], batch_axes: int) -> list[HostArray]:
    """Return the arguments of a call as arrays, with `batch_axes` additional leading axes.

    Raises
    ------
    TypeError
        If the number of values differs from the number of inputs, or a value is not valid for its input.
    """
    if len(values) != len(inputs):
        names = ", ".join(str(given.variable) for given in inputs)
        raise TypeError(f"the function takes {len(inputs)} arguments ({names}), but got {len(values)}")
    return [_array(given.variable, value, batch_axes) for given, value in zip(inputs, values, strict=True)]


def _array(variable: Any, value: Any, batch_axes: int) -> HostArray:
    dtype = np.dtype(variable.type.dtype)
    array = np.asarray(value)
    if array.dtype.kind not in "biufc" or (array.size and not np.can_cast(array.dtype, dtype, "same_kind")):
        raise TypeError(
            f"{variable} is of {dtype}, but got values of {array.dtype}: cast them first, if the loss is intended"
        )
    ndim = variable.type.ndim + batch_axes
    if array.ndim != ndim:
        axes = f"{ndim} axes, including {batch_axes} batch axes" if batch_axes else f"{ndim} axes"
        raise TypeError(f"{variable} needs an array of {axes}, but got one of shape {array.shape}")
    lengths = array.shape[batch_axes:]
    if any(static not in (None, length) for static, length in zip(variable.type.shape, lengths)):
        raise TypeError(f"{variable} has shape {variable.type.shape}, but got {lengths}")
    return array.astype(dtype)


_NOT_CALLED = "not called yet"


def explain(function: Any) -> str:
    """Return a report on a compiled function: its work on the device for each plan, and its work on the host.

    Parameters
    ----------
    function : Function
        A PyTensor function in mode OPENCL or OPENCL_AUTO that has been called. In mode OPENCL_AUTO, the report begins
        with the choices between host and device for the shapes of the function's calls.

    Raises
    ------
    TypeError
        If the function was compiled in another mode.
    """
    compiled = getattr(getattr(function, "vm", None), "jit_fn", None)
    if not isinstance(compiled, ChoosingFunction):
        return "\n".join(_device_lines(device_function(function)) or [_NOT_CALLED])
    lines = [
        f"{'shapes ' + ', '.join(map(str, shapes)) if shapes else 'all calls'}: {choice}"
        for shapes, choice in compiled.choices.items()
    ]
    if compiled.device is not None:
        lines += _device_lines(compiled.device)
    return "\n".join(lines or [_NOT_CALLED])


def _device_lines(compiled: OpenCLFunction) -> list[str]:
    lines: list[str] = []
    for shapes, plan in compiled.function.traced_calls:
        where = ", in the calling thread" if plan.context.profile.runs_in_caller else ""
        lines.append(f"arguments of shapes {', '.join(map(str, shapes))}{where}:")
        lines += [f"  device: {work}" for work in plan.device_work]
        lines += [f"  host: {step.work} moves {step.moved_nbytes:,} bytes in each call" for step in plan.host_steps]
    if compiled.host.reasons:
        lines.append("nodes on the host:")
        lines += [f"  {op_name(node)}: {reason}" for node, reason in compiled.host.reasons.items()]
    return lines


def call_n_times(f: Any, times: int, /, *args: Any, **kwargs: Any) -> Any:
    """Call a function several times with the same arguments, and return the results of the last call.

    The arguments are copied to the device once, and only the outputs of the last call are copied back. Ctrl-C stops the
    run after the current call. A long run shows a progress bar if standard error is a terminal.

    Parameters
    ----------
    f : pytensor.compile.executor.Function
        A function compiled in mode OPENCL.
    times : int
        The number of calls, 1 or more.
    *args, **kwargs : array_like
        The arguments of each call.

    Returns
    -------
    ndarray, list or None
        The results of the last call.

    Raises
    ------
    ValueError
        If `times` is not positive.
    TypeError
        If `f` was compiled in another mode, or if the arguments are not valid for a call of `f` in PyTensor.
    """
    compiled = device_function(f)
    times = checked_times(times)
    with_bar = shows_progress(None)
    if any(given.update is not None and not given.implicit for given in f.maker.inputs):
        # Each call must read the value that was passed, not the next value that the previous call stored in the input.
        return calls_in_chunks(functools.partial(f, *args, **kwargs), times, with_bar)

    def repeat(cells: Any) -> Any:
        return in_chunks(functools.partial(compiled.call_n_times, cells), times, with_bar)

    return _called_by(f.vm, repeat, f, args, kwargs)


def run_async(f: Any, /, *args: Any, **kwargs: Any) -> Future:
    """Begin a call, and return before the device has finished it, unless nodes need the host.

    Later calls run after this call and see its updates. The caller may change the arguments immediately.

    Parameters
    ----------
    f : pytensor.compile.executor.Function
        A function compiled in mode OPENCL.
    *args, **kwargs : array_like
        The arguments, as for a call.

    Returns
    -------
    Future
        ``wait()`` returns the results. Host arrays in the results have undefined values until ``wait()`` returns.

    Raises
    ------
    TypeError
        If `f` was compiled in another mode, or if the arguments are not valid for a call of `f` in PyTensor.
    """
    compiled = device_function(f)
    let_hosts_fetch()
    events: list[Any] = []

    def begin(cells: Any) -> Any:
        outputs, pending = compiled.begin(cells)
        events.extend(pending)
        return outputs

    with compiled.function.context.turn():
        span = CommandRange(compiled.function.context)
        returned = _called_by(f.vm, begin, f, args, kwargs)
        span.stop()
    return Future(returned, span, events)


def _called_by(thunk: DeviceThunk, run: Any, f: Any, args: Any, kwargs: Any) -> Any:
    """Call a function; for this call, `run` replaces the `run` of the function's thunk."""
    usual, thunk.run = thunk.run, run
    try:
        return f(*args, **kwargs)
    finally:
        thunk.run = usual


@dataclass(frozen=True)
class _Batched:
    """A compiled function with a batch axis, and whether each of its results has that axis."""

    function: Any
    has_axis: tuple[bool, ...]


_BATCHED: weakref.WeakKeyDictionary[Any, _Batched] = weakref.WeakKeyDictionary()


def evaluate_many(f: Any, *xs: Any) -> Any:
    """Evaluate a function at many points in one call.

    The results equal ``f(x)`` for each x, up to rounding. The first call compiles a function with a batch axis, and
    keeps the compiled function as long as `f` exists. A call needs memory for all points.

    Parameters
    ----------
    f : pytensor.compile.executor.Function
        A function compiled in mode OPENCL, without updates of shared variables.
    *xs : array_like
        The values of each argument of `f`, with the points along the first axis.

    Returns
    -------
    list of ndarray or ndarray
        For each output of `f`, its values at all points; an array instead of a list if `f` returns an array.

    Raises
    ------
    TypeError
        If `f` was compiled in another mode or has updates, or if arguments have wrong types.
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
        _BATCHED[compiled] = _batched(f, inputs)
    batched = _BATCHED[compiled]
    count = counts[0]
    if not count:
        # Some ops do not support empty batches: compute one point, and drop it.
        arrays = [np.zeros((1, *array.shape[1:]), array.dtype) for array in arrays]
    values = zip(batched.function(*arrays), batched.has_axis, strict=True)
    results = [value[:count] if has_axis else np.repeat(value[None], count, axis=0) for value, has_axis in values]
    return results[0] if f.unpack_single else results


def _batched(f: Any, inputs: list[Any]) -> _Batched:
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
    variables = [given.variable for given in inputs]
    kinds = [TensorType(var.type.dtype, shape=(None, *var.type.shape)) for var in variables]
    points = {var: kind(f"{var.name or 'x'}_points") for var, kind in zip(variables, kinds, strict=True)}
    vectorized = vectorize_graph(outputs, points)
    function = pytensor.function(list(points.values()), vectorized, mode=f.maker.mode, on_unused_input="ignore")
    has_axis = tuple(more.type.ndim > less.type.ndim for more, less in zip(vectorized, outputs, strict=True))
    return _Batched(function, has_axis)
