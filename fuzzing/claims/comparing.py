"""Computes one case in one way, and compares each call with Theano's Python code."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import theano

from fuzzing.claims.arguments import ALIGNED, Argument
from fuzzing.claims.cases import SHARED, Call, Case
from fuzzing.claims.ways import WAYS, OnHost, Refused, Way

__all__ = ["BROKEN_PROMISE", "Differs", "compare"]

#: Part of the error message for a violated promise.
BROKEN_PROMISE = "which declares length 1"
#: Parts of the error messages for values whose shape violates the promise of their type.
_REFUSALS = (BROKEN_PROMISE, "Dimension mismatch", "cannot add the product")


#: Part of the error that Theano's Python code raises for the maximum of an empty array; its C code raises no such
#: error.
_OF_NOTHING = "zero-size array to reduction operation"


class Differs(AssertionError):
    """A result differs from that of Theano's Python code."""


@dataclass(frozen=True)
class _Outcome:
    """The outcome of a call: its error, or its results and the values of the shared variables after it."""

    results: Sequence[Any] = ()
    shared: Sequence[np.ndarray] = ()
    error: Exception | None = None

    def is_like(self, other: _Outcome, trusted: bool = False) -> bool:
        """Return whether another call had the same outcome; all errors count as the same outcome.

        Any outcome is accepted if the other call's error says that a reduction has no elements. With `trusted`, dtypes
        may differ, and any outcome is accepted if the other call raised an error.
        """
        if other.error is not None and (trusted or _OF_NOTHING in str(other.error)):
            return True
        if self.error is not None or other.error is not None:
            return self.error is not None and other.error is not None
        pairs = zip([*self.results, *self.shared], [*other.results, *other.shared], strict=True)
        return all(_is_equal(ours, theirs, trusted) for ours, theirs in pairs)

    def __str__(self) -> str:
        if self.error is not None:
            return f"{type(self.error).__name__}: {str(self.error)[:600]}"
        return f"{[_brief(x) for x in self.results]}, shared {[_brief(x) for x in self.shared]}"


def compare(case: Case, way: str, device: str = "auto") -> None:
    """Compute a case in one way; raise `Differs` if the results do not equal Theano's.

    Theano's Python code computes the reference without optimization. The results of Theano's optimized graph are also
    accepted. The comparison ends with the first call that raises.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # A graph that Theano's optimizer rejects cannot be compared.
        try:
            reference = OnHost(case, theano.Mode("py", None))
            optimized = OnHost(case, theano.Mode("py", "fast_run"))
        except Exception:
            return
        try:
            other = WAYS[way](case, device)
        except Refused:
            return
        except Exception as error:
            raise Differs(f"{way} does not compile: {type(error).__name__}: {error}\n{case.script()}") from error
        _compare_calls(case, way, (reference, optimized), other)


def _compare_calls(case: Case, way: str, references: Sequence[Way], other: Way) -> None:
    held: list[tuple[Any, Any]] = []
    for number, call in enumerate(case.calls):
        where = f"{way}, call {number}"
        arguments = case.arguments(call)
        try:
            if not _assigned(where, call, references, other):
                return
            aligned = replace(call, kinds=tuple(ALIGNED.get(kind, kind) for kind in call.kinds))
            expected = [_outcome(reference, case.arguments(aligned), call.times) for reference in references]
            seen = _outcome(other, arguments, call.times)
        except Refused:
            return
        _check_memory(where, arguments, held, case)
        if not any(seen.is_like(outcome, case.trusted) for outcome in expected) and not _is_refusal(seen, case, call):
            raise Differs(f"{where}: seen\n{seen}\nexpected\n{expected[0]}\nor\n{expected[1]}\n{case.script()}")
        if seen.error is not None or any(outcome.error is not None for outcome in expected):
            return
        if not seen.is_like(expected[0], case.trusted):
            return  # shared variables may differ after this call
        owned = [result for result, (_, borrow) in zip(seen.results, case.outputs, strict=True) if not borrow]
        held += [(result, np.array(result)) for result in owned]


def _is_refusal(seen: _Outcome, case: Case, call: Call) -> bool:
    """Return whether a call failed with an acceptable error, such as one that names a violated promise.

    Any error is accepted if the case is `trusted` or if an argument is None, because Theano raises no error for a wrong
    argument that no node reads. Theano rejects unaligned arrays.
    """
    if seen.error is None:
        return False
    if case.trusted or "nothing" in call.kinds:
        return True
    refusals = _REFUSALS if ALIGNED.keys().isdisjoint(call.kinds) else (*_REFUSALS, "not aligned")
    return any(words in str(seen.error) for words in refusals)


def _assigned(where: str, call: Call, references: Sequence[Way], other: Way) -> bool:
    """Set the shared variable that a call assigns, if any; return False if every function rejects the new value."""
    if call.assigned is None:
        return True
    name, shape = call.assigned
    value = np.arange(1, 1 + int(np.prod(shape))).reshape(shape).astype("float32")
    errors = [_assignment_error(way, name, value.copy()) for way in (*references, other)]
    if len({error is None for error in errors}) > 1:
        raise Differs(f"{where}: {name} of shape {shape} is assigned with {errors}")
    return errors[0] is None


def _assignment_error(way: Way, name: str, value: np.ndarray) -> Exception | None:
    try:
        way.set(name, value)
    except Refused:
        raise
    except Exception as error:
        return error
    return None


def _outcome(way: Way, arguments: Sequence[Argument], times: int) -> _Outcome:
    try:
        results = way.call([argument.value for argument in arguments], times)
    except Refused:
        raise
    except Exception as error:
        return _Outcome(error=error)
    return _Outcome(results, [way.get(name) for name in SHARED])


def _check_memory(where: str, arguments: Sequence[Argument], held: Sequence[tuple[Any, Any]], case: Case) -> None:
    for number, argument in enumerate(arguments):
        if not argument.is_unchanged:
            raise Differs(f"{where}: argument {number} is overwritten\n{case.script()}")
    for result, copy in held:
        if not _is_equal(result, copy):
            raise Differs(f"{where}: an earlier result is overwritten\n{case.script()}")


def _is_equal(ours: Any, theirs: Any, trusted: bool = False) -> bool:
    if ours.shape != theirs.shape or not (trusted or ours.dtype == theirs.dtype):
        return False
    return bool(np.allclose(ours, theirs, rtol=1e-4, atol=1e-4, equal_nan=True))


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 200 else f"{value.dtype} of shape {value.shape}"
