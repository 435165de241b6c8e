"""Traces functions for examples, and writes them into one file over the shared variables that they have in common.

An example for which a trace of an earlier one holds (`covers`) has no trace of its own.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from optdb.host.api.graph import Variable
from optdb.numpy_types import HostArray
from optdb.opencl.exporting.functions import Exportable, Held
from optdb.opencl.exporting.walking import InputSpec, trace
from optdb.opencl.linking.nodes import on_device
from optdb.opencl.linking.planned_vm import as_variables
from optdb.runtime.arrays import as_host_value
from optdb.runtime.calling import Signature
from optdb.runtime.deferred import FromArray, FromNumbers
from optdb.runtime.device_profiles import DEVICE_KINDS, DeviceKind
from optdb.runtime.exported.buffers import ConstantResult, NumbersResult
from optdb.runtime.exported.manifest import SharedValue
from optdb.runtime.exported.rules import Call, GuardSet, Values
from optdb.runtime.exported.writing import Programs, saved
from optdb.runtime.exported.writing import write as write_file
from optdb.runtime.expressions import ArgumentNumber, Arithmetic, AxisLength, Ref
from optdb.runtime.records import Record, saved_values
from optdb.runtime.sizes import operand
from optdb.runtime.tracing import Trace, Untraceable

__all__ = ["Report", "write"]

#: A call: positional arguments, or those by name.
Example = Sequence[Any] | Mapping[str, Any]


@dataclass(frozen=True)
class Report:
    """The outcome of one example of a function."""

    #: The function's name.
    function: str
    #: What kind of device it was traced for.
    device_kind: DeviceKind
    #: Of the example's arguments.
    shapes: tuple[tuple[int, ...], ...]
    #: How many commands a call enqueues.
    commands: int
    #: How many conditions say for which shapes the trace holds.
    guards: int
    #: Why it holds for the example's shapes alone; None if it does for more.
    fixed: str | None
    #: Whether an earlier trace holds for the example: then there is no other.
    covered: bool = False
    #: The lengths for which the trace holds only as they are in the example, in words: ``'x.shape[1] == 784'``.
    pinned: tuple[str, ...] = ()


def write(
    path: str | Path,
    functions: Mapping[str, Exportable],
    examples: Mapping[str, Sequence[Example]] | None = None,
    device_kinds: Sequence[DeviceKind] = DEVICE_KINDS,
    about: str = "",
) -> list[Report]:
    """Write functions into a file.

    Parameters
    ----------
    path : str or Path
        Where to; an existing file is replaced.
    functions : mapping
        Name to function; the first is what a call of the loaded file calls.
    examples : mapping, optional
        For each function, calls of it: their shapes, and whole numbers that decide over shapes, say what is traced. The
        values of arrays do not matter. Without examples, a function is traced for calls like its latest ones.
    device_kinds : sequence of str
        For which devices: 'cpu' for processors, 'gpu' for all else.
    about : str
        A text that is kept in the file.

    Returns
    -------
    list of Report
        What was traced.

    Raises
    ------
    Untraceable
        If something is done that cannot be written down; by name, where a step would have to stay on the host.
    TypeError
        If an example is no call of its function.
    """
    examples = {name: (examples or {}).get(name) or function.calls() for name, function in functions.items()}
    _check(functions, examples, device_kinds)
    states = _States()
    reports: list[Report] = []
    written = {}
    for name, function in functions.items():
        try:
            parts = [_traces(name, function, examples[name], kind, states, reports) for kind in device_kinds]
        except Untraceable as error:
            raise Untraceable(f"{name} cannot be exported: {error}") from error.__cause__
        written[name] = function.signature, list(itertools.chain(*parts))
    write_file(path, written, states.all, about)
    return reports


def _check(
    functions: Mapping[str, Exportable], examples: Mapping[str, Sequence[Example]], device_kinds: Sequence[DeviceKind]
) -> None:
    if not functions:
        raise ValueError("there is no function to export")
    for name in functions:
        if not name.isidentifier() or not name.isascii():
            raise ValueError(f"{name!r} cannot be the name of a function in a file: it is no identifier")
        if not examples.get(name):
            raise ValueError(
                f"{name} needs an example of a call, so that it is known for which shapes it is exported.\n"
                "The cure: call it once before, or give examples"
            )
    if not device_kinds or not set(device_kinds) <= set(DEVICE_KINDS):
        raise ValueError(f"device_kinds are some of {DEVICE_KINDS}, and {tuple(device_kinds)} were given")


def _traces(
    name: str,
    function: Exportable,
    examples: Sequence[Example],
    device_kind: DeviceKind,
    states: _States,
    reports: list[Report],
) -> list[Trace]:
    linked, context_name = function.linked, function.context_name()
    traces: list[Trace] = []
    for example in examples:
        args, kwargs = ((), example) if isinstance(example, Mapping) else (tuple(example), {})
        values = function.signature.bind(args, kwargs, name)
        entries = _entries(function, values, states)
        traced = functools.partial(trace, linked, context_name, entries, function.returned, device_kind)
        covering = next((earlier for earlier in traces if covers(earlier, values, traced)), None)
        made, why = (covering, None) if covering is not None else _trace(traced)
        if covering is None:
            traces.append(made)
        shapes = tuple(value.shape for value in values)
        sizes = len(made.commands), len(made.rules.guards)
        pinned = pinned_lengths(made, function.signature)
        reports.append(Report(name, device_kind, shapes, *sizes, why, covering is not None, pinned))
    return traces


def _trace(traced: Any) -> tuple[Trace, str | None]:
    """Return a trace for more shapes than those of the example, or for these alone, and why."""
    try:
        return traced(False), None
    except Untraceable as error:
        return traced(True), str(error)


def _entries(function: Exportable, values: Sequence[HostArray], states: _States) -> dict[Variable, InputSpec]:
    entries: dict[Variable, InputSpec] = {}
    for var in as_variables(function.linked.inputs):
        if var in function.shared:
            number, value = states.number(function.shared[var], var)
            entries[var] = InputSpec("state", number, value.shape)
            continue
        position = function.arguments[var]
        value = values[position]
        exact: float | int | None = None
        if not on_device(var) and value.ndim == 0 and value.dtype.kind in "iuf":
            exact = value[()] if value.dtype.kind == "f" else int(value)
        entries[var] = InputSpec("argument", position, value.shape, exact)
    return entries


class _States:
    """The shared values of a file, each once."""

    def __init__(self) -> None:
        self.all: list[SharedValue] = []
        #: By the identity of its cell.
        self._numbers: dict[int, int] = {}

    def number(self, held: Held, var: Variable) -> tuple[int, HostArray]:
        """Return the number of a shared value, and its value."""
        number = self._numbers.setdefault(id(held.cell), len(self.all))
        if number == len(self.all):
            pattern = tuple(map(bool, var.type.broadcastable))
            value = np.asarray(as_host_value(held.cell[0]), var.type.dtype)
            self.all.append(SharedValue(self._free_name(held.name), value, pattern))
        return number, self.all[number].value

    def _free_name(self, name: str | None) -> str:
        """Return a name that no other has."""
        start = name or f"shared{len(self.all)}"
        taken = {state.name for state in self.all}
        names = itertools.chain([start], (f"{start}_{number}" for number in itertools.count(2)))
        return next(candidate for candidate in names if candidate not in taken)


def covers(trace: Trace, arguments: Sequence[HostArray], traced: Callable[[bool], Trace]) -> bool:
    """Tell whether a trace of an earlier example holds for the arguments of another one.

    Trace the other example as well, and compare what both do in its call, number by number: what the earlier trace
    computes from shapes by its rules, with what Python has computed for the other one. A trace for one shape would not
    do: kernels take more for granted of lengths that are plain numbers. Raise `Untraceable` if the earlier trace says
    that it holds, and does something else.
    """
    names = [f"argument {i}" for i in range(len(arguments))]
    call = Call(arguments, trace.compute_units)
    rules = _rules(trace, names)
    values = rules.values(call)
    shapes = [values.numbers(list(map(operand, shape))) for shape in trace.arguments]
    if shapes != [x.shape for x in arguments] or rules.broken(values) is not None:
        return False
    other, _ = _trace(traced)
    if _done_by(trace, values) != _done_by(other, Values(other.rules.examples)):
        given = ", ".join(str(x.shape) for x in arguments)
        raise Untraceable(f"a trace of other shapes claims to be valid for {given}, and is not: this is a bug")
    return True


def pinned_lengths(trace: Trace, signature: Signature) -> tuple[str, ...]:
    """Return which lengths a trace holds to those of its example, in words.

    A length is pinned where an op compares it with a number and finds it equal, as with another array's length, or
    asks for a plain number (``int(length)``). What many lengths fulfil, such as that they are even, pins none.
    """
    names = [signature.called(position) for position in range(len(trace.arguments))]
    rules = _rules(trace, names)
    equal = (guard for guard in trace.rules.guards if guard.op == "==" and isinstance(guard.right, int))
    pinned = (guard for guard in equal if _leaves_one_length(trace, guard.left))
    return tuple(f"{rules.described(guard.left)} == {guard.right}" for guard in pinned)


def _leaves_one_length(trace: Trace, size: Any) -> bool:
    """Tell whether a size is a number for few lengths alone: it is made without rounding, and without a choice."""
    if not isinstance(size, Ref):
        return True
    entry = trace.rules.entries[size.number]
    if isinstance(entry, AxisLength | ArgumentNumber):
        return True
    is_exact = isinstance(entry, Arithmetic) and entry.op in ("+", "-", "*")
    return is_exact and all(_leaves_one_length(trace, operand) for operand in entry.operands)


def _rules(trace: Trace, names: Sequence[str]) -> GuardSet:
    """Return a trace's rules, as a loaded file has them."""
    return GuardSet(trace.rules.entries, list(trace.rules.guards), names)


def _done_by(trace: Trace, values: Values) -> list[Any]:
    """Return what a trace does in a call, with numbers for sizes, to compare it with another trace."""
    record = saved(trace, Programs())
    return [_resolved(part, values) for part in (record.memories, record.commands, record.results)]


def _resolved(value: Any, values: Values) -> Any:
    """Return a part of a saved trace as tuples of numbers, texts and bytes."""
    match value:
        case Ref():
            return values.value(value)
        case FromNumbers() | NumbersResult():
            # Where shapes are known, a value that follows from a shape is an array.
            return _content(np.array(list(map(values.value, value.numbers)), value.dtype))
        case FromArray() | ConstantResult():
            return _content(value.array)
        case np.ndarray():
            return _content(value)
        case Record():
            return type(value).__name__, *(_resolved(part, values) for part in saved_values(value))
        case list() | tuple():
            return tuple(_resolved(part, values) for part in value)
    return value


def _content(value: HostArray) -> tuple[str, bytes]:
    return value.dtype.name, value.tobytes()
