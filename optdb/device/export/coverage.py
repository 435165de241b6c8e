"""Finds the calls that a trace holds for: other examples, and the lengths that have to be those of its own."""

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
    """Tell whether a trace of an earlier example holds for the arguments of another one.

    `make` traces the other example as well, to compare what both do in its call, number by number: what the earlier
    trace computes from shapes by its rules, with what Python has computed for the other one. A trace for one shape
    would not do: kernels take more for granted of lengths that are plain numbers. Raise `Untraceable` if the earlier
    trace says that it holds, and does something else.
    """
    names = [f"argument {i}" for i in range(len(arguments))]
    call = Call(arguments, trace.compute_units)
    rules = _rules(trace, names)
    values = rules.values(call)
    shapes = [values.numbers(list(map(operand, shape))) for shape in trace.arguments]
    if shapes != [x.shape for x in arguments] or rules.broken(values) is not None:
        return False
    other, _ = make()
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
