"""Compiled functions of mode OPENCL: access to their parts, and reports on their work on device and host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optdb.numpy_types import HostArray
from optdb.pytensor.choosing import ChoosingFunction
from optdb.pytensor.host_groups import op_name
from optdb.pytensor.linker import OpenCLFunction


def device_function(function: Any) -> OpenCLFunction:
    """Return the object that runs a function on its device; raise TypeError if the function is not of mode OPENCL."""
    compiled = getattr(getattr(function, "vm", None), "jit_fn", None)
    if not isinstance(compiled, OpenCLFunction):
        raise TypeError(f"{function!r} is not of mode OPENCL: compile it with pytensor.function(..., mode='OPENCL')")
    return compiled


def explicit_inputs(function: Any) -> list[Any]:
    """Return the inputs that a caller passes as `SymbolicInput` objects, without shared variables."""
    return [given for given in function.maker.inputs if not given.implicit]


def arrays_of(inputs: Sequence[Any], values: Sequence[Any], batch_axes: int = 0) -> list[HostArray]:
    """Return the arguments of a call as arrays with the dtypes of the inputs.

    Parameters
    ----------
    inputs : sequence of SymbolicInput
        The function's inputs.
    values : sequence of object
        A value for each input.
    batch_axes : int
        The number of leading batch axes that the values have in addition to the inputs' own axes.

    Raises
    ------
    TypeError
        If the number of values differs, or a value cannot be an argument.
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
    """Return a report on a compiled function: its work on the device, by plan and shapes, and its work on the host.

    Parameters
    ----------
    function : Function
        A function of PyTensor in mode OPENCL or OPENCL_AUTO that has been called. In mode OPENCL_AUTO, the report
        begins with the choice for the shapes of its calls.

    Raises
    ------
    TypeError
        If the function is of another mode.
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
        lines.append(f"arguments of shapes {', '.join(map(str, shapes))}:")
        lines += [f"  device: {work}" for work in plan.device_work]
        lines += [f"  host: {step.work} moves {step.moved_nbytes:,} bytes in each call" for step in plan.host_steps]
    if compiled.host.reasons:
        lines.append("nodes on the host:")
        lines += [f"  {op_name(node)}: {reason}" for node, reason in compiled.host.reasons.items()]
    return lines
