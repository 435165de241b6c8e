"""Traces functions for examples, and writes the functions and their shared variables to a file."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from optdb.device.export.walking import Held, InputSpec, Traceable, trace
from optdb.numpy_types import HostArray
from optdb.runtime.arrays import as_host_value
from optdb.runtime.calling import Signature
from optdb.runtime.device_profiles import DEVICE_KINDS, DeviceKind
from optdb.runtime.exported.manifest import SharedValue
from optdb.runtime.exported.rules import Call as BoundCall
from optdb.runtime.exported.rules import GuardSet
from optdb.runtime.exported.writing import write as write_file
from optdb.runtime.expressions import ArgumentNumber, Arithmetic, AxisLength, Ref
from optdb.runtime.recording import Trace, Untraceable
from optdb.runtime.sizes import operand

#: The arguments of a call, by position or by name.
Call = Sequence[Any] | Mapping[str, Any]
#: Example calls to the only function, or to each function by name; None stands for a function's own name.
Examples = Mapping[str | None, Sequence[Call]] | Sequence[Call]
#: The name in the file of a function that has no valid name of its own.
_OWN = "call"


@dataclass(frozen=True, eq=False)
class Exportable:
    """A function that can be written to a file."""

    #: The function's own name, if it has one.
    name: str | None
    computes: Traceable
    signature: Signature
    #: For each input, the argument's number or the shared variable.
    inputs: Sequence[int | Held]
    #: Returns the arguments of earlier calls, the most recent first: each argument's shape, and its value if known.
    calls: Callable[[], Sequence[Sequence[tuple[tuple[int, ...], Any]]]] = tuple

    def examples(self) -> list[list[HostArray]]:
        dtypes = [argument.dtype for argument in self.signature.arguments]
        return [
            [
                np.zeros(shape, dtype) if value is None else np.asarray(value, dtype)
                for (shape, value), dtype in zip(call, dtypes, strict=True)
            ]
            for call in self.calls()
        ]


@dataclass(frozen=True)
class Report:
    """The result of exporting one example of a function."""

    function: str
    #: The device kind that the function was traced for.
    device_kind: DeviceKind
    shapes: tuple[tuple[int, ...], ...]
    commands: int
    #: The number of guards on shapes.
    guards: int
    #: The reason why the trace is valid only for the example's shapes; None if it is valid for other shapes.
    fixed: str | None
    #: Whether the example uses an earlier trace.
    covered: bool = False
    #: The lengths that must equal the example's, as text: ``'x.shape[1] == 784'``.
    pinned: tuple[str, ...] = ()


def write(
    path: str | Path,
    functions: Mapping[str | None, Exportable],
    examples: Examples | None = None,
    device_kinds: Sequence[DeviceKind] = DEVICE_KINDS,
    about: str = "",
) -> list[Report]:
    """Write functions to a file; return a report for each example.

    Parameters
    ----------
    path : str or Path
        The file's path; an existing file is replaced.
    functions : mapping
        The functions by name; calling the loaded file calls the first one. None stands for the function's own name.
    examples : sequence or mapping, optional
        Example calls to the only function, or to each function by name; by default, calls with the shapes of recent
        calls.
    device_kinds : sequence of str
        The device kinds: 'cpu' for CPUs, 'gpu' for all other devices.
    about : str
        A text that is stored in the file.

    Raises
    ------
    Untraceable
        If a file cannot hold a step of a function.
    TypeError, ValueError
        If an example is not a valid call to its function, or if a function has no example.
    """
    names = _names(functions)
    calls = _calls(examples, functions, names)
    if not device_kinds or not set(device_kinds) <= set(DEVICE_KINDS):
        raise ValueError(
            f"device_kinds must be a non-empty subset of {DEVICE_KINDS}, not {device_kinds!r}.\n"
            "The cure, for processors only: device_kinds=('cpu',)"
        )
    states = _States()
    reports: list[Report] = []
    written = {}
    for given, function in functions.items():
        name = names[given]
        try:
            parts = [_traces(name, function, calls[given], kind, states, reports) for kind in device_kinds]
        except Untraceable as error:
            raise Untraceable(f"{name} cannot be exported: {error}") from error.__cause__
        written[name] = function.signature, list(itertools.chain(*parts))
    write_file(path, written, states.all, about)
    return reports


def _names(functions: Mapping[str | None, Exportable]) -> dict[str | None, str]:
    """Return distinct names for the functions in a file."""
    if not functions:
        raise ValueError("there are no functions to export")
    given = [name for name in functions if name is not None]
    for name in given:
        if not (name.isidentifier() and name.isascii()):
            raise ValueError(f"{name!r} cannot be the name of a function in a file: it is not an ASCII identifier")
    names: dict[str | None, str] = dict(zip(given, given, strict=True))
    if None in functions:
        own = functions[None].name or ""
        names[None] = _free(own if own.isidentifier() and own.isascii() else _OWN, given)
    return names


def _free(start: str, taken: Container[str]) -> str:
    candidates = itertools.chain([start], (f"{start}_{number}" for number in itertools.count(2)))
    return next(name for name in candidates if name not in taken)


def _calls(
    examples: Examples | None, functions: Mapping[str | None, Exportable], names: Mapping[str | None, str]
) -> dict[str | None, Sequence[Call]]:
    """Return the examples for each function; raise TypeError or ValueError if they are invalid."""
    by_name: Mapping[str | None, Sequence[Call]] = {}
    if examples is not None:
        by_name = examples if isinstance(examples, Mapping) else {next(iter(functions)): examples}
    unknown = [name for name in by_name if name not in functions]
    if unknown:
        there = ", ".join(repr(name) for name in functions if name is not None) or "only the simulator's own"
        raise ValueError(f"there are examples for {unknown[0]!r}, but no such function; the functions are: {there}")
    calls: dict[str | None, Sequence[Call]] = {}
    for name, function in functions.items():
        calls[name] = _checked(by_name.get(name, ())) or function.examples()
        if not calls[name]:
            raise ValueError(
                f"{names[name]} needs an example call, whose shapes it is exported for.\n"
                "The cure: call it once before, or pass examples="
            )
    return calls


def _checked(examples: Sequence[Call]) -> list[Call]:
    # An array is iterable, but its elements are not calls.
    calls = list(examples) if isinstance(examples, Iterable) else [examples]
    wrong = [call for call in calls if not isinstance(call, Mapping | tuple | list)]
    if not wrong:
        return calls
    raise TypeError(
        "examples must be a sequence of calls, each of which is a sequence of arguments or a mapping of names to "
        f"arguments; a {type(wrong[0]).__name__} is not a call.\n"
        "The cure, for one call with x and y: examples=[(x, y)]"
    )


def _traces(
    name: str,
    function: Exportable,
    examples: Sequence[Call],
    device_kind: DeviceKind,
    states: _States,
    reports: list[Report],
) -> list[Trace]:
    traces: list[Trace] = []
    for example in examples:
        args, kwargs = ((), example) if isinstance(example, Mapping) else (tuple(example), {})
        values = function.signature.bind(args, kwargs, name)
        traced = functools.partial(trace, function.computes, _specs(function, values, states), device_kind)
        covering = next((earlier for earlier in traces if _covers(earlier, values)), None)
        made, why = (covering, None) if covering is not None else _trace(traced)
        if covering is None:
            traces.append(made)
        shapes = tuple(value.shape for value in values)
        sizes = len(made.commands), len(made.rules.guards)
        pinned = pinned_lengths(made, function.signature)
        reports.append(Report(name, device_kind, shapes, *sizes, why, covering is not None, pinned))
    return traces


def _trace(traced: Callable[[bool], Trace]) -> tuple[Trace, str | None]:
    """Return a trace, and why it is valid only for the example's shapes (None if it is valid for other shapes)."""
    try:
        return traced(False), None
    except Untraceable as error:
        return traced(True), str(error)


def _covers(trace: Trace, arguments: Sequence[HostArray]) -> bool:
    """Return whether an earlier trace is also valid for an example's arguments."""
    rules = _rules(trace, [f"argument {i}" for i in range(len(arguments))])
    values = rules.values(BoundCall(arguments, trace.compute_units))
    shapes = [values.numbers(list(map(operand, shape))) for shape in trace.arguments]
    return shapes == [x.shape for x in arguments] and rules.broken(values) is None


def pinned_lengths(trace: Trace, signature: Signature) -> tuple[str, ...]:
    """Return descriptions of the lengths that must equal the example's.

    A condition that many lengths satisfy, such as evenness, does not count.
    """
    rules = _rules(trace, [signature.called(position) for position in range(len(trace.arguments))])
    equal = (guard for guard in trace.rules.guards if guard.op == "==" and isinstance(guard.right, int))
    pinned = (guard for guard in equal if _determines_lengths(trace, guard.left))
    return tuple(f"{rules.described(guard.left)} == {guard.right}" for guard in pinned)


def _determines_lengths(trace: Trace, size: Any) -> bool:
    """Return whether the value of a size determines all lengths in the size's expression, as for sums and products."""
    if not isinstance(size, Ref):
        return True
    entry = trace.rules.entries[size.number]
    if isinstance(entry, AxisLength | ArgumentNumber):
        return True
    is_exact = isinstance(entry, Arithmetic) and entry.op in ("+", "-", "*")
    return is_exact and all(_determines_lengths(trace, operand) for operand in entry.operands)


def _rules(trace: Trace, names: Sequence[str]) -> GuardSet:
    return GuardSet(trace.rules.entries, list(trace.rules.guards), names)


def _specs(function: Exportable, values: Sequence[HostArray], states: _States) -> list[InputSpec]:
    arguments = function.signature.arguments
    return [
        InputSpec(given, *states.number(given))
        if isinstance(given, Held)
        else InputSpec(arguments[given], given, values[given])
        for given in function.inputs
    ]


class _States:
    """The shared values of a file, without duplicates."""

    def __init__(self) -> None:
        self.all: list[SharedValue] = []
        self._numbers: dict[Hashable, int] = {}

    def number(self, held: Held) -> tuple[int, HostArray]:
        """Return the index of a shared value in the file, and the value."""
        number = self._numbers.setdefault(held.identity, len(self.all))
        if number == len(self.all):
            name = _free(held.name or f"shared{number}", {state.name for state in self.all})
            value = np.asarray(as_host_value(held.value()), held.dtype)
            self.all.append(SharedValue(name, value, held.broadcastable))
        return number, self.all[number].value
