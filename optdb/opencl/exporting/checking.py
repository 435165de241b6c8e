"""Whether a trace that is there holds for another example, and, if so, does for it what the function does.

Rules of shapes are worked out for the other example, and compared, number by number, with a trace of it that was
made for its shapes alone.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from optdb.runtime.calling import Signature
from optdb.runtime.exported.archive import array_bytes
from optdb.runtime.exported.rules import Call, GuardSet, Values
from optdb.runtime.exported.writing import describe
from optdb.runtime.tracing import Trace, Untraceable

__all__ = ["covers", "pinned_lengths"]


def covers(trace: Trace, arguments: Sequence[np.ndarray], traced: Callable[[bool], Trace]) -> bool:
    """Tell whether a trace of an earlier example holds for the arguments of another one.

    `traced` traces the function for these, for their shapes alone if it is told True.

    Raises
    ------
    Untraceable
        If the trace says that it holds, and does something else.
    """
    names = [f"argument {i}" for i in range(len(arguments))]
    call = Call(arguments, trace.compute_units)
    rules = _rules(trace, names)
    values = rules.values(call)
    shapes = [values.numbers(_references(shape)) for shape in trace.arguments]
    if shapes != [x.shape for x in arguments] or rules.broken(values) is not None:
        return False
    alone = traced(True)
    # Of numbers that the call gives, a trace for one shape has entries of its own.
    values_alone = _rules(alone, names).values(call)
    if _resolved(*describe(trace), values) != _resolved(*describe(alone), values_alone):
        shapes = ", ".join(str(x.shape) for x in arguments)
        raise Untraceable(f"what was traced for other shapes is said to hold for {shapes}, and does not: this is a bug")
    return True


def pinned_lengths(trace: Trace, signature: Signature) -> tuple[str, ...]:
    """Return which lengths a trace holds to those of its example, in words.

    A length is pinned where an op compares it with a number and finds it equal, as with another array's length, or
    asks for a plain number (``int(length)``). What many lengths fulfil, such as that they are even, pins none.
    """
    names = [signature.called(place) for place in range(len(trace.arguments))]
    rules = _rules(trace, names)
    equal = (guard[1:] for guard in trace.rules.guards if guard[0] == "==")
    pinned = ((one, other) for one, other in equal if isinstance(other, int) and _leaves_one_length(trace, one))
    return tuple(f"{rules.described(one)} == {other}" for one, other in pinned)


def _leaves_one_length(trace: Trace, reference: Any) -> bool:
    """Tell whether a size is a number for few lengths alone: it is made without rounding, and without a choice."""
    if not isinstance(reference, str):
        return True
    word, *operands = trace.rules.entries[int(reference[1:])]
    if word in ("axis", "value"):
        return True
    return word in ("+", "-", "*") and all(_leaves_one_length(trace, operand) for operand in operands)


def _rules(trace: Trace, names: Sequence[str]) -> GuardSet:
    """Return a trace's rules, as a loaded file has them."""
    return GuardSet(trace.rules.entries, list(trace.rules.guards), names)


def _references(shape: Sequence[Any]) -> list[Any]:
    return [f"${x.number}" if hasattr(x, "number") else x for x in shape]


def _resolved(described: Any, members: Mapping[str, bytes], values: Values) -> Any:
    """Return a description with numbers for the names of entries, and contents for those of members."""
    if isinstance(described, dict):
        return {name: _resolved(value, members, values) for name, value in described.items()}
    if isinstance(described, list):
        if len(described) == 3 and described[0] == "value":
            # What follows from a shape is an array, where shapes are known.
            return array_bytes(np.array([values.value(x) for x in described[2]], described[1]))
        if len(described) == 2 and described[0] == "array":
            return _flat(members[described[1]])
        return [_resolved(value, members, values) for value in described]
    if isinstance(described, str):
        return values.value(described) if described.startswith("$") else members.get(described, described)
    return described


def _flat(content: bytes) -> bytes:
    """Return an array's member with all axes made one."""
    return array_bytes(np.lib.format.read_array(io.BytesIO(content), allow_pickle=False).reshape(-1))
