"""Finds the other examples for which a trace is valid, and the lengths that must equal the example's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from optdb.numpy_types import HostArray
from optdb.runtime.calling import Signature
from optdb.runtime.deferred import FromArray, FromNumbers
from optdb.runtime.exported.manifest import ConstantResult, NumbersResult
from optdb.runtime.exported.rules import Call, GuardSet, Values
from optdb.runtime.exported.writing import Programs, saved
from optdb.runtime.expressions import ArgumentNumber, Arithmetic, AxisLength, Ref
from optdb.runtime.recording import Trace, Untraceable
from optdb.runtime.records import Record, saved_values
from optdb.runtime.sizes import operand


def covers(trace: Trace, arguments: Sequence[HostArray], make: Callable[[], tuple[Trace, Any]]) -> bool:
    """Return whether an earlier trace is also valid for the arguments of another example, which `make` traces.

    `make` must not return a trace for fixed shapes, since kernels assume more about plain lengths. If the earlier
    trace's guards hold but the traces differ, raise `Untraceable`.
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
    """Return descriptions of the lengths that must equal the example's.

    A condition that many lengths satisfy, such as evenness, pins no length.
    """
    names = [signature.called(position) for position in range(len(trace.arguments))]
    rules = _rules(trace, names)
    equal = (guard for guard in trace.rules.guards if guard.op == "==" and isinstance(guard.right, int))
    pinned = (guard for guard in equal if _determines_lengths(trace, guard.left))
    return tuple(f"{rules.described(guard.left)} == {guard.right}" for guard in pinned)


def _determines_lengths(trace: Trace, size: Any) -> bool:
    """Return whether a size determines the lengths in its expression, as sums and products do."""
    if not isinstance(size, Ref):
        return True
    entry = trace.rules.entries[size.number]
    if isinstance(entry, AxisLength | ArgumentNumber):
        return True
    is_exact = isinstance(entry, Arithmetic) and entry.op in ("+", "-", "*")
    return is_exact and all(_determines_lengths(trace, operand) for operand in entry.operands)


def _rules(trace: Trace, names: Sequence[str]) -> GuardSet:
    return GuardSet(trace.rules.entries, list(trace.rules.guards), names)


def _specialized(trace: Trace, values: Values) -> list[Any]:
    """Return a trace's buffers, commands and results with plain numbers as sizes, for comparison with another trace."""
    record = saved(trace, Programs())
    return [_resolved(part, values) for part in (record.memories, record.commands, record.results)]


def _resolved(value: Any, values: Values) -> Any:
    """Convert a part of a saved trace to tuples of numbers, strings and bytes."""
    match value:
        case Ref():
            return values.value(value)
        case FromNumbers() | NumbersResult():
            # A value computed from a known shape is an array.
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
