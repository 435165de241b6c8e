"""Writes a function into a file that runs where PyTensor is not installed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pytensor.configdefaults import config

from optdb.device.functions.exporting import traced
from optdb.device.functions.function import TracedCall
from optdb.numpy_types import HostArray
from optdb.pytensor.compiled import arrays_of, device_function, explicit_inputs
from optdb.pytensor.linker import OpenCLFunction
from optdb.runtime.calling import Argument, Signature
from optdb.runtime.exported.manifest import SharedValue
from optdb.runtime.exported.writing import write
from optdb.runtime.tracing import Untraceable

__all__ = ["export"]

_ABOUT = "a function of PyTensor, written by optdb.pytensor.export"


def export(f: Any, path: str | Path, example: Any) -> None:
    """Write a function into a file, which `optdb.load` runs without PyTensor.

    The file is for arguments of the example's shapes, and for devices of the kind that `f` runs on: processors, or
    GPUs. Its shared values begin with those of `f`, and can be set.

    Parameters
    ----------
    f : pytensor.compile.executor.Function
        Compiled in mode OPENCL, without updates of shared variables.
    path : str or Path
        The file; an existing one is replaced.
    example : array_like or tuple of array_like
        The arguments of a call; the one argument alone, if there is one. The function is called with it.

    Raises
    ------
    TypeError
        If `f` is of another mode, or the example is no call of it.
    optdb.runtime.tracing.Untraceable
        If a file cannot hold the function: it has steps on the host, updates, or checks of values that raise errors.
    """
    compiled = device_function(f)
    updated = [given.variable for given in f.maker.inputs if given.update is not None]
    if updated:
        raise Untraceable(f"each call updates {', '.join(map(str, updated))}, which a file of PyTensor's cannot do")
    inputs = explicit_inputs(f)
    arrays = arrays_of(inputs, example if isinstance(example, tuple) else (example,))
    f(*arrays)
    values, states, arguments = _values(f, arrays)
    plan = _plan(compiled, values)
    trace = traced(plan, [value.shape for value in values], states, arguments)
    shared = [given.variable for given in f.maker.inputs if given.implicit]
    saved = [_state(var, values[position], number) for var, (position, number) in zip(shared, states.items())]
    write(path, {_name(f): (_signature(f, inputs), [trace])}, _with_distinct_names(saved), _ABOUT)


def _values(f: Any, arrays: Sequence[HostArray]) -> tuple[list[HostArray], dict[int, int], dict[int, int]]:
    """Return the values of all inputs, and by their positions, the numbers of shared values and of arguments."""
    values: list[HostArray] = []
    states: dict[int, int] = {}
    arguments: dict[int, int] = {}
    for position, given in enumerate(f.maker.inputs):
        if given.implicit:
            value = given.variable.get_value(borrow=True)
            if not isinstance(value, np.ndarray | np.generic):
                raise Untraceable(f"the shared variable {given.variable} is no array, but {type(value).__name__}")
            states[position] = len(states)
            values.append(np.asarray(value))
        else:
            arguments[position] = len(arguments)
            values.append(arrays[arguments[position]])
    return values, states, arguments


def _plan(compiled: OpenCLFunction, values: Sequence[HostArray]) -> TracedCall:
    """Return the plan of a call."""
    wanted = tuple(value.shape for value in values)
    plans = [plan for shapes, plan in compiled.function.traced_calls if shapes == wanted]
    return next(plan for plan in reversed(plans) if plan.fits(values))


def _signature(f: Any, inputs: Sequence[Any]) -> Signature:
    taken = []
    for given in inputs:
        kind = given.variable.type
        pattern = tuple(length == 1 for length in kind.shape)
        name = given.name or given.variable.name
        taken.append(Argument(name, kind.dtype, pattern, floats=kind.dtype == config.floatX))
    return Signature(tuple(taken), "single" if f.unpack_single else "list")


def _name(f: Any) -> str:
    name = f.name or ""
    return name if name.isidentifier() and name.isascii() else "function"


def _state(variable: Any, value: HostArray, number: int) -> SharedValue:
    pattern = tuple(length == 1 for length in variable.type.shape)
    return SharedValue(variable.name or f"shared{number}", value.astype(variable.type.dtype), pattern)


def _with_distinct_names(states: Sequence[SharedValue]) -> list[SharedValue]:
    """Number the names that come again."""
    named: list[SharedValue] = []
    for state in states:
        name, count = state.name, 1
        while any(name == other.name for other in named):
            count += 1
            name = f"{state.name}_{count}"
        named.append(SharedValue(name, state.value, state.broadcastable))
    return named
