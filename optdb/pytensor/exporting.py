"""Exports functions to a file that runs without PyTensor."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pytensor.configdefaults import config

from optdb.device.export import Examples, Exportable, Held, Report, Traceable, write
from optdb.device.functions.host_parts import Value
from optdb.device.functions.tracer import uncomputed
from optdb.pytensor.compiled import device_function
from optdb.pytensor.dispatch import is_array
from optdb.pytensor.linker import OpenCLFunction
from optdb.pytensor.tracing import GraphTrace
from optdb.runtime.calling import Argument, Signature
from optdb.runtime.device_profiles import DEVICE_KINDS, DeviceKind
from optdb.runtime.recording import Untraceable
from optdb.runtime.sizes import example_value

_ABOUT = "functions of PyTensor, written by optdb.pytensor.export"


def export(
    f: Any, path: str | Path, examples: Examples | None = None, device_kinds: Sequence[DeviceKind] = DEVICE_KINDS
) -> list[Report]:
    """Write functions and their shared variables to a file; with `optdb.load`, they run without PyTensor.

    The file supports arguments with the shapes of the examples and, where possible, with other lengths. Shared
    variables in the file keep their shapes, and start with their current values.

    Parameters
    ----------
    f : pytensor.compile.executor.Function or mapping
        A function compiled in mode OPENCL, or a mapping of names to functions. Calling the loaded file calls
        the first function.
    path : str or Path
        The file to write; an existing file is replaced.
    examples : sequence or mapping, optional
        Calls, each a sequence of arguments or a mapping of names to arguments; for several functions, a mapping of
        their names to calls. Only shapes matter, and the values of integers without axes. By default, the latest calls
        are used.
    device_kinds : sequence of str
        Kinds of devices to export for: 'cpu' for CPUs, 'gpu' for all other devices.

    Returns
    -------
    list of Report
        The outcome of each example.

    Raises
    ------
    TypeError
        If a function was compiled in another mode, or if an example is not valid for its inputs.
    optdb.runtime.recording.Untraceable
        If a file cannot hold a function, because it has host nodes or checks that raise errors.
    """
    functions = f if isinstance(f, Mapping) else {None: f}
    handed = {name: _exportable(function) for name, function in functions.items()}
    return write(path, handed, examples, device_kinds, _ABOUT)


def _exportable(f: Any) -> Exportable:
    compiled = device_function(f)
    inputs: list[int | Held] = []
    taken: list[Argument] = []
    for given, container in zip(f.maker.inputs, f.input_storage, strict=True):
        var = given.variable
        if not is_array(var):
            raise Untraceable(f"{given.name or var} is not an array, but {var.type}: a file takes only arrays")
        name, pattern = given.name or var.name, tuple(length == 1 for length in var.type.shape)
        if given.implicit:
            inputs.append(Held(var, name, var.type.dtype, pattern, functools.partial(var.get_value, borrow=True)))
        elif given.update is not None:
            raise Untraceable(f"the argument {name or var} has an update: make it a shared variable")
        else:
            inputs.append(len(taken))
            casts = bool(container.strict), container.allow_downcast
            taken.append(Argument(name, var.type.dtype, pattern, *casts, floats=var.type.dtype == config.floatX))
    fgraph = compiled.fgraph
    updates = {source: output for output, source in (fgraph.update_mapping or {}).items()}
    held = frozenset(position for position, given in enumerate(inputs) if isinstance(given, Held))
    integers = {
        position
        for position, var in enumerate(fgraph.inputs)
        if position not in held and not var.type.ndim and var.type.dtype == "int64"
    }
    trace, counts = functools.partial(_outputs, compiled), (len(fgraph.inputs), len(fgraph.outputs))
    results = fgraph.outputs[: len(fgraph.outputs) - len(updates)]
    return Exportable(
        f.name,
        Traceable(
            compiled.function.context,
            functools.partial(uncomputed, trace, *counts, held, integers, updates),
            [var.type.dtype for var in results],
        ),
        Signature(tuple(taken), "single" if f.unpack_single else "list"),
        inputs,
        functools.partial(_calls, compiled, inputs),
    )


def _calls(compiled: OpenCLFunction, inputs: Sequence[int | Held]) -> list[list[tuple[Any, Any]]]:
    """Return the arguments of traced calls, the latest first: each argument's shape, and its value if it was read."""
    calls = [
        tuple(
            (shape, traced.values.get(position))
            for position, (shape, given) in enumerate(zip(shapes, inputs, strict=True))
            if isinstance(given, int)
        )
        for shapes, traced in compiled.function.traced_calls
    ]
    dtypes = [
        var.type.dtype for var, given in zip(compiled.fgraph.inputs, inputs, strict=True) if isinstance(given, int)
    ]
    return [
        [
            (shape, None if raw is None else np.frombuffer(raw, dtype).reshape(shape or ()))
            for (shape, raw), dtype in zip(call, dtypes, strict=True)
        ]
        for call in dict.fromkeys(reversed(calls))
    ]


def _outputs(compiled: OpenCLFunction, tracer: Any) -> list[Value]:
    """Return a function's outputs for a tracer's arguments, which must have the declared shapes."""
    for var, shape in zip(compiled.fgraph.inputs, tracer.shapes, strict=True):
        if any(static not in (None, length) for static, length in zip(var.type.shape, shape)):
            raise TypeError(f"{var} has shape {var.type.shape}, but got {tuple(map(example_value, shape))}")
    return GraphTrace(tracer, compiled.fgraph, compiled.host.apart()).outputs(compiled.fgraph)
