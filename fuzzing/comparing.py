"""One program computed in one way, and compared with Theano's unoptimized Python call by call."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzzing.programs import Call, Program
from fuzzing.ways import REFERENCE, WAYS, Compiled, Refused, Way

__all__ = ["Differs", "compare"]

#: What the caller writes into results and arguments that are its own.
_GARBAGE = 77


class Differs(AssertionError):
    """A way computes something else than the reference."""


def compare(program: Program, way: str, device: str = "auto") -> None:
    """Compute a program in one way, and see that results and shared values are those of the reference.

    Behind each call the caller overwrites its arguments and those results that are not borrowed: neither may matter.
    Where the reference raises, as for an index of an empty array, the comparison ends.

    Raises
    ------
    Differs
        If something is not equal.
    """
    reference = Compiled(program, REFERENCE)
    try:
        other = WAYS[way](program, device)
    except Refused:
        return
    kept: list[tuple[str, Any, Any]] = []
    for number, call in enumerate(program.calls):
        where = f"{way}, call {number}"
        try:
            for place, value in program.assignments(number).items():
                reference.set(place, value)
                other.set(place, np.array(value))
        except Refused:
            return
        try:
            expected = reference.call(program.arguments(call), call.times)
        except Exception:
            return
        try:
            seen = _called(other, program, call)
        except Refused:
            return
        except Exception as error:
            raise Differs(f"{where}: {type(error).__name__}: {error}\n{program.script()}") from error
        for place, ((_, borrow), ours, theirs) in enumerate(zip(program.outputs, seen, expected, strict=True)):
            _check(f"{where}, output {place}", ours, theirs, program)
            if not borrow:
                kept.append((f"{where}, output {place}, later", ours, np.array(theirs)))
        for place in range(len(program.shared)):
            _check(f"{where}, shared {place}", other.get(place), reference.get(place), program)
        for what, ours, theirs in kept:
            _check(what, ours, theirs, program)
        kept = _overwritten(kept)


def _called(way: Way, program: Program, call: Call) -> list[Any]:
    arguments = program.arguments(call)
    results = way.call(arguments, call.times)
    borrowed = {id(result) for result, (_, borrow) in zip(results, program.outputs) if borrow}
    for argument in {id(value): value for value in arguments}.values():
        if not any(np.may_share_memory(argument, result) for result in results if id(result) in borrowed):
            argument[...] = _GARBAGE
    return results


def _overwritten(kept: list[tuple[str, Any, Any]]) -> list[tuple[str, Any, Any]]:
    """Write over every other result, as its owner may; return all, with what they hold from now on."""
    found = []
    for number, (what, ours, theirs) in enumerate(kept):
        if number % 2 and isinstance(ours, np.ndarray) and ours.flags.writeable:
            ours[...] = _GARBAGE
            theirs = np.full_like(theirs, _GARBAGE)
        found.append((what, ours, theirs))
    return found


def _check(what: str, ours: Any, theirs: Any, program: Program) -> None:
    if not isinstance(ours, np.ndarray | np.generic):
        raise Differs(f"{what}: expected an array of NumPy, seen {type(ours).__name__}\n{program.script()}")
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape or not np.array_equal(ours, theirs):
        raise Differs(f"{what}: expected\n{theirs!r}\nseen\n{ours!r}\n{program.script()}")
