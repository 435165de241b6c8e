"""Writes functions into a file that runs where PyTensor is not installed."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pytensor.configdefaults import config

from optdb.device.export import Examples, Exportable, Held, Report, Traceable, write
from optdb.device.functions.uncomputed import uncomputed
from optdb.device.plans import LinkedFunction, Node
from optdb.pytensor.compiled import device_function
from optdb.pytensor.dispatch import is_array
from optdb.pytensor.linker import OpenCLFunction
from optdb.pytensor.tracing import GraphTrace
from optdb.runtime.calling import Argument, Signature
from optdb.runtime.context import Context
from optdb.runtime.device_profiles import DEVICE_KINDS, DeviceKind
from optdb.runtime.tracing import Untraceable

__all__ = ["export"]

_ABOUT = "functions of PyTensor, written by optdb.pytensor.export"
_FIXED = "a function of PyTensor is compiled for the shapes of a call"


def export(
    f: Any, path: str | Path, examples: Examples | None = None, device_kinds: Sequence[DeviceKind] = DEVICE_KINDS
) -> list[Report]:
    """Write functions, and their shared variables, into a file, which `optdb.load` runs without PyTensor.

    The file is for arguments of the examples' shapes. Its shared values begin with those of the functions, and can be
    set.

    Parameters
    ----------
    f : pytensor.compile.executor.Function or mapping
        A function that was compiled in mode OPENCL, or several by their names in the file: the first is what a call of
        the loaded file calls.
    path : str or Path
        Where to; an existing file is replaced.
    examples : sequence or mapping, optional
        Calls, each a sequence of arguments or a mapping of them by name; for several functions, a mapping of their
        names to calls. Their shapes matter. Without examples, functions are written for calls like their latest ones.
    device_kinds : sequence of str
        For which devices: 'cpu' for processors, 'gpu' for all else.

    Returns
    -------
    list of Report
        The outcome of each example.

    Raises
    ------
    TypeError
        If a function is of another mode, or an example is no call of it.
    optdb.runtime.tracing.Untraceable
        If a file cannot hold a function: it has steps on the host, or checks of values that raise errors.
    """
    functions = f if isinstance(f, Mapping) else {None: f}
    handed = {name: _exportable(function) for name, function in functions.items()}
    return write(path, handed, examples, device_kinds, _ABOUT)


def _exportable(f: Any) -> Exportable:
    """Return a function as it goes into a file."""
    compiled = device_function(f)
    inputs: list[int | Held] = []
    taken: list[Argument] = []
    for given in f.maker.inputs:
        var = given.variable
        if not is_array(var):
            raise Untraceable(f"{given.name or var} is no array, but {var.type}: a file takes arrays alone")
        name, pattern = given.name or var.name, tuple(length == 1 for length in var.type.shape)
        if given.implicit:
            inputs.append(Held(var, name, var.type.dtype, pattern, functools.partial(var.get_value, borrow=True)))
        elif given.update is not None:
            raise Untraceable(f"the argument {name or var} has an update: make it a shared variable")
        else:
            inputs.append(len(taken))
            taken.append(Argument(name, var.type.dtype, pattern, floats=var.type.dtype == config.floatX))
    updates = {source: output for output, source in (compiled.fgraph.update_mapping or {}).items()}
    results = compiled.fgraph.outputs[: len(compiled.fgraph.outputs) - len(updates)]
    held = frozenset(position for position, given in enumerate(inputs) if isinstance(given, Held))
    linked_in = functools.partial(_linked_in, compiled, updates, held)
    return Exportable(
        f.name,
        Traceable(compiled.function.context, linked_in, [var.type.dtype for var in results], _FIXED),
        Signature(tuple(taken), "single" if f.unpack_single else "list"),
        inputs,
        functools.partial(_calls, compiled, inputs),
    )


def _calls(compiled: OpenCLFunction, inputs: Sequence[int | Held]) -> list[list[tuple[Any, None]]]:
    """Return the shapes of the arguments of traced calls, the last one first."""
    calls = [
        tuple(shape for shape, given in zip(shapes, inputs, strict=True) if isinstance(given, int))
        for shapes, _ in compiled.function.traced_calls
    ]
    return [[(shape, None) for shape in shapes] for shapes in dict.fromkeys(reversed(calls))]


@contextmanager
def _linked_in(
    compiled: OpenCLFunction, updates: Mapping[int, int], held: frozenset[int], context: Context
) -> Iterator[LinkedFunction]:
    """Return a function as one node, which describes and enqueues all of it; inputs and outputs are by position."""
    fgraph = compiled.fgraph
    inputs = [("input", position) for position in range(len(fgraph.inputs))]
    outputs = [("output", position) for position in range(len(fgraph.outputs))]
    cells: dict[Any, list[Any]] = {value: [None] for value in (*inputs, *outputs)}

    def compute() -> None:
        arrays = [cells[value][0] for value in inputs]
        for var, array in zip(fgraph.inputs, arrays, strict=True):
            if any(static not in (None, length) for static, length in zip(var.type.shape, array.shape)):
                raise TypeError(f"{var} is of shape {var.type.shape}, and got {array.shape}")

        def trace(tracer: Any) -> list[Any]:
            return GraphTrace(tracer, fgraph, compiled.host).outputs(fgraph)

        for value, result in zip(outputs, uncomputed(trace, context, arrays, held), strict=True):
            cells[value][0] = result

    yield LinkedFunction(
        nodes=[Node(fgraph, inputs, outputs, compute)],
        cells=cells,
        inputs=list(inputs),
        outputs=list(outputs),
        contexts=dict.fromkeys([*inputs, *outputs], context),
        updates={inputs[source]: outputs[output] for source, output in updates.items()},
    )
