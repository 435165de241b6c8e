"""Prepares compiled functions for export: their nodes, signatures and shared values."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from optdb.device.export import Exportable, Held, Report, Traceable, write
from optdb.device.export.writing import Examples
from optdb.device.plans.linked import LinkedFunction
from optdb.host import refuse_pytensor
from optdb.host.api.config import config
from optdb.opencl.exporting.nodes import copied_in
from optdb.opencl.linking.nodes import is_user_inplace
from optdb.opencl.linking.planned_vm import PlannedVM, applies, as_variables
from optdb.opencl.registry import get_context
from optdb.runtime.arrays import as_host_value
from optdb.runtime.calling import Argument, Signature
from optdb.runtime.device_profiles import DEVICE_KINDS, DeviceKind
from optdb.runtime.recording import Untraceable


def export(
    f: Any, path: str | Path, examples: Examples | None = None, device_kinds: Sequence[DeviceKind] = DEVICE_KINDS
) -> list[Report]:
    """Write functions compiled for a device, and their shared variables, to a file for `optdb.load`.

    Parameters
    ----------
    f : theano.compile.Function or mapping
        A function, or a mapping from names in the file to functions. Calling the loaded file runs the first function.
    path : str or Path
        Path of the file, which is replaced if it exists.
    examples : sequence or mapping, optional
        Example calls, each a sequence of arguments or a mapping of names to arguments; for several functions, a mapping
        of function names to example calls. Only the shapes of arrays, and integers that determine shapes, matter. By
        default, each function's latest calls are the examples.
    device_kinds : sequence of str
        Kinds of device to export for: 'cpu' for CPU devices, 'gpu' for all others.

    Returns
    -------
    list of Report
        The outcome of each example.

    Raises
    ------
    optdb.opencl.exporting.Untraceable
        If a function contains a step that a file cannot store. If such a step stays on the host, the message names it.
    """
    functions = f if isinstance(f, Mapping) else {None: f}
    return write(path, {name: of_function(function) for name, function in functions.items()}, examples, device_kinds)


def of_function(function: Any) -> Exportable:
    """Return the exportable form of a ``theano.function`` compiled for a device in a mode with plans.

    Raises TypeError for other objects, and Untraceable if the function cannot be exported.
    """
    refuse_pytensor("export", function)
    if not hasattr(function, "fn"):
        raise TypeError(
            f"{function!r} is not a compiled function of Theano.\n"
            "The cure: pass a function that theano.function returned"
        )
    return _exportable(function, function.fn, lambda container: container.storage)


def of_method(function: Any, executable: Any) -> Exportable:
    """Return the exportable form of a simulator's method, with the simulator's values of the shared variables.

    `executable` runs the method, which was created from `function`. Raises the same errors as `of_function`.
    """
    cells = dict(zip(function.input_storage, executable.input_cells, strict=True))
    return _exportable(function, executable.run, cells.__getitem__)


def traceable(linked: LinkedFunction, context_name: Hashable, returned: int) -> Traceable:
    """Return a linked function in the form that a trace needs; callers receive its first `returned` outputs."""
    dtypes = [var.type.dtype for var in as_variables(linked.outputs[:returned])]
    return Traceable(get_context(context_name), functools.partial(copied_in, linked, context_name), dtypes)


def _exportable(function: Any, machine: Any, cell_of: Callable[[Any], list[Any]]) -> Exportable:
    """Return the exportable form of a linked function; `cell_of` returns the storage cell of a shared value."""
    if not isinstance(machine, PlannedVM):
        raise Untraceable(
            "the function does not run on a device, or runs without plans (as with profiling or a linker other than "
            "the default): compile it for a device, with optdb.plans=True"
        )
    linked = machine.linked
    _check_nodes(linked)
    inputs: list[int | Held] = []
    taken: list[Argument] = []
    for spec, container, default in zip(function.maker.inputs, function.input_storage, function.defaults, strict=True):
        if container.implicit:
            inputs.append(_held(spec.variable, spec.name, cell_of(container)))
            continue
        if spec.update is not None:
            raise Untraceable(f"the argument {spec.name or spec.variable} has an update: make it a shared variable")
        inputs.append(len(taken))
        taken.append(_argument(spec, container, default))
    returns = "none" if function.return_none else "single" if function.unpack_single else "list"
    keys = None if function.output_keys is None else tuple(map(str, function.output_keys))
    return Exportable(
        function.name,
        traceable(linked, _context_name(linked), function.n_returned_outputs),
        Signature(tuple(taken), returns, keys),
        inputs,
        functools.partial(_calls, machine, inputs),
    )


def _calls(machine: PlannedVM, inputs: Sequence[int | Held]) -> list[list[tuple[tuple[int, ...], Any]]]:
    """Return the shapes and small host values of the arguments in recorded calls, latest call first."""
    arguments = [var for var, given in zip(machine.linked.inputs, inputs, strict=True) if isinstance(given, int)]
    return [[call[var] for var in arguments] for call in reversed(machine.seen())]


def _context_name(linked: LinkedFunction) -> Hashable:
    names = list(dict.fromkeys(var.type.context_name for var in as_variables(linked.contexts)))
    if not names:
        raise Untraceable("the function does not run on a device: compile it for one")
    if len(names) > 1:
        raise Untraceable(f"the function runs on several devices, {', '.join(map(str, names))}: compile it for one")
    return names[0]


def _check_nodes(linked: LinkedFunction) -> None:
    for node in filter(is_user_inplace, applies(linked)):
        raise Untraceable(
            f"{node.op} overwrites the caller's argument, which a file cannot do: use the op that is not in place, "
            "and return its result"
        )
    if linked.branches.conditions:
        asked = as_variables(linked.branches.conditions)
        conditions = ", ".join(dict.fromkeys(str(var.owner or var) for var in asked))
        raise Untraceable(
            f"the function has branches (ifelse), which a file cannot contain; the conditions are {conditions}: "
            "compile one function for each branch, with constants for the conditions (givens=), and export them all"
        )


def _held(variable: Any, name: str | None, cell: list[Any]) -> Held:
    kind = variable.type
    pattern = tuple(map(bool, kind.broadcastable))
    return Held(id(cell), name or variable.name, kind.dtype, pattern, lambda: cell[0])


def _argument(given: Any, container: Any, default: tuple[bool, bool, Any]) -> Argument:
    required, _, value = default
    kind = given.variable.type
    stored = getattr(value, "storage", [value])[0]
    dtype = str(kind.dtype)
    return Argument(
        given.name or given.variable.name,
        dtype,
        tuple(map(bool, kind.broadcastable)),
        bool(container.strict),
        container.allow_downcast,
        None if required else np.asarray(as_host_value(stored), dtype),
        dtype == config.floatX,
    )
