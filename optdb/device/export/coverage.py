"""Finds the calls for which a trace is valid: other examples, and the lengths that have to equal the example's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from optdb.numpy_types import HostArray
from optdb.runtime.calling import Signature
from optdb.runtime.deferred import FromArray, FromNumbers
from optdb.runtime.exported.buffers import ConstantResult, NumbersResult
from optdb.runtime.exported.rules import Call, GuardSet, Values
from optdb.runtime.exported.writing import Programs, saved
from optdb.runtime.expressions import ArgumentNumber, Arithmetic, AxisLength, Ref
from optdb.runtime.records import Record, saved_values
from optdb.runtime.sizes import operand
from optdb.runtime.tracing import Trace, Untraceable

__all__ = ["covers", "pinned_lengths"]


def covers(trace: Trace, arguments: Sequence[HostArray], make: Callable[[], tuple[Trace, Any]]) -> bool:
    """Tell whether a trace of an earlier example is valid for the arguments of another example.

    `make` traces the other example too. Both traces are compared number by number: the sizes that the earlier trace's
    rules compute, and those that Python has computed for the other example. `make` must not return a trace for fixed
    shapes, since kernels assume more about plain lengths. Raise `Untraceable` if the guards of the earlier trace hold,
    but the traces differ.
    """
    names = [f"argument {i}" for i in range(len(arguments))]
    call = Call(arguments, trace.compute_units)
    rules = _rules(trace, names)
    values = rules.values(call)
    shapes = [values.numbers(list(map(operand, shape))) for shape in trace.arguments]
    if shapes != [x.shape for x in arguments] or rules.broken(values) is not None:
        return False
    other, _ = make()
    if _specialized(trace, values) != _specialized(other, Values(other.rules.examples)):
        given = ", ".join(str(x.shape) for x in arguments)
        raise Untraceable(f"a trace of other shapes is wrongly marked valid for {given}; please report this bug")
    return True


def pinned_lengths(trace: Trace, signature: Signature) -> tuple[str, ...]:
    """Return, in words, the lengths that a trace's guards fix to those of its example.

    A length is pinned if an op compares it with a number and finds it equal, as with another array's length, or asks
    for a plain number (``int(length)``). A condition that many lengths fulfil, for example that they are even, pins
    none.
    """
    names = [signature.called(position) for position in range(len(trace.arguments))]
    rules = _rules(trace, names)
    equal = (guard for guard in trace.rules.guards if guard.op == "==" and isinstance(guard.right, int))
    pinned = (guard for guard in equal if _determines_lengths(trace, guard.left))
    return tuple(f"{rules.described(guard.left)} == {guard.right}" for guard in pinned)


def _determines_lengths(trace: Trace, size: Any) -> bool:
    """Tell whether a size determines its lengths: it is computed without rounding, and without a choice."""
    if not isinstance(size, Ref):
        return True
    entry = trace.rules.entries[size.number]
    if isinstance(entry, AxisLength | ArgumentNumber):
        return True
    is_exact = isinstance(entry, Arithmetic) and entry.op in ("+", "-", "*")
    return is_exact and all(_determines_lengths(trace, operand) for operand in entry.operands)


def _rules(trace: Trace, names: Sequence[str]) -> GuardSet:
    """Return a trace's rules in the form of a loaded file."""
    return GuardSet(trace.rules.entries, list(trace.rules.guards), names)


def _specialized(trace: Trace, values: Values) -> list[Any]:
    """Return a trace's memories, commands and results in a call, with numbers for sizes, to compare two traces."""
    record = saved(trace, Programs())
    return [_resolved(part, values) for part in (record.memories, record.commands, record.results)]


def _resolved(value: Any, values: Values) -> Any:
    """Return a part of a saved trace as tuples of numbers, texts and bytes."""
    match value:
        case Ref():
            return values.value(value)
        case FromNumbers() | NumbersResult():
            # For known shapes, a value that follows from a shape is an array.
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
