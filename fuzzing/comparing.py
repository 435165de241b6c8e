"""Computes one program under some switches, and compares each call with Theano's unoptimized Python code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuzzing.programs import Call, Program
from fuzzing.switches import Compilation, Switches
from fuzzing.ways import Functions, Refused, reference

__all__ = ["Differs", "compare"]

#: The number that the caller writes into its own results and arguments.
_GARBAGE = 77


class Differs(AssertionError):
    """A function's result differs from the reference's."""


@dataclass
class _Held:
    """A result of the caller and its expected content; the next call of the function `lender` may overwrite it."""

    what: str
    seen: Any
    expected: Any
    lender: int | None = None


def compare(program: Program, switches: Switches, device: str = "auto") -> bool:
    """Compare a program's results and shared values with the reference; return whether any call was compared.

    After each call, the caller overwrites its arguments and every second result; this must have no effect. All results
    that the caller holds are checked again after each later call. A borrowed result is only checked until its function
    is called again. A call is omitted if the reference raises an error. Raise `Differs` if a value differs.
    """
    return _Comparison(program, switches, device).run()


class _Comparison:
    def __init__(self, program: Program, switches: Switches, device: str) -> None:
        self._program, self._switches, self._device = program, switches, device
        self._held: list[_Held] = []
        self._results: list[Any] = []
        self._checked = 0

    def run(self) -> bool:
        self._reference = reference(self._program, self._switches.surroundings.float_dtype)
        compilations = (self._switches.first, self._switches.second)
        try:
            self._ours = Functions(self._program, self._switches.surroundings, compilations, self._device)
            for number in range(len(self._program.calls)):
                self._step(number)
        except Refused:
            pass
        except Differs:
            raise
        except Exception as error:
            raise self._differs(f"{type(error).__name__}: {error}") from error
        return self._checked > 0

    def _step(self, number: int) -> None:
        """Make a call and check all values, unless the reference raises an error."""
        call = self._program.calls[number]
        for index, value in self._program.assignments(number).items():
            self._reference.of(call.function).set(index, value)
            self._ours.of(call.function).set(index, np.array(value))
        self._check_held(f"before call {number}")
        arguments = self._arguments(call)
        copies = list(map(np.array, arguments))
        try:
            expected = self._reference.call(call.function, copies, call.times)
        except Exception:
            return
        given = list(map(np.array, arguments))
        self._results = self._ours.call(call.function, arguments, call.times)
        where = f"call {number}"
        self._see_arguments(where, arguments, given)
        self._see_results(where, call, expected, arguments)
        for index in range(len(self._program.shared)):
            self._check(
                f"{where}, shared {index}",
                self._ours.of(call.function).get(index),
                self._reference.of(call.function).get(index),
            )
        self._check_held(f"after {where}", call.function)
        self._overwrite(call, arguments)
        self._checked += 1

    def _arguments(self, call: Call) -> list[np.ndarray]:
        """Return a call's arguments; some of them are results of the previous call.

        Theano's own linkers forbid two things that a device allows: passing a borrowed result to the next call, and
        passing an array twice if it may be overwritten.
        """
        arguments = self._program.arguments(call)
        on_host = _is_of_host(self._switches.of(call.function))
        for index, output in call.passed_on:
            if output >= len(self._results):
                continue
            result, usual = self._results[output], arguments[index]
            borrowed = any(held.seen is result and held.lender is not None for held in self._held)
            # The first of several repetitions of a call may overwrite a borrowed result that a later repetition reads.
            if borrowed and (on_host or call.times > 1):
                continue
            if (result.dtype, result.shape) == (usual.dtype, usual.shape):
                arguments[index] = result
        if not on_host:
            return arguments
        return [
            np.array(value) if any(np.may_share_memory(value, other) for other in arguments[:index]) else value
            for index, value in enumerate(arguments)
        ]

    def _see_arguments(self, where: str, arguments: Sequence[np.ndarray], given: Sequence[np.ndarray]) -> None:
        """Check that a call has only changed arguments that it may overwrite."""
        mutable = [value for leaf, value in zip(self._program.inputs, arguments, strict=True) if leaf.mutable]
        for index, (value, before) in enumerate(zip(arguments, given, strict=True)):
            if not any(np.may_share_memory(value, other) for other in mutable):
                self._check(f"{where}, argument {index}", value, before)
        self._held = [held for held in self._held if not _shares(held.seen, mutable)]

    def _see_results(self, where: str, call: Call, expected: Sequence[Any], arguments: Sequence[np.ndarray]) -> None:
        """Check that results are right, and keep them for later checks."""
        outputs = self._program.functions[call.function].outputs
        aliases = [*arguments, *(var.get_value(borrow=True) for var in self._reference.graph.shared)]
        for index, ((_, borrow), ours, theirs) in enumerate(zip(outputs, self._results, expected, strict=True)):
            what = f"{where}, output {index}"
            self._check(what, ours, theirs)
            if not borrow:
                self._held.append(_Held(what, ours, np.array(theirs)))
            # In Theano, a borrowed result may share memory with another result, which the caller may overwrite.
            elif not _shares(ours, [*arguments, *self._results[:index], *self._results[index + 1 :]]) and not _shares(
                theirs, aliases
            ):
                self._held.append(_Held(what, ours, np.array(theirs), call.function))

    def _check_held(self, where: str, called: int | None = None) -> None:
        """Check that kept results are unchanged; forget results that the function `called` lent in earlier calls."""
        now = where.removeprefix("after ")
        self._held = [
            held
            for held in self._held
            if held.lender is None or held.lender != called or held.what.startswith(f"{now},")
        ]
        for held in self._held:
            self._check(f"{held.what}, compared again {where}", held.seen, held.expected)

    def _overwrite(self, call: Call, arguments: Sequence[np.ndarray]) -> None:
        """Overwrite the arguments and every second result, which belong to the caller.

        An argument that a host function may overwrite is left alone, because it may hold the next value of a shared
        variable.
        """
        lent = [held.seen for held in self._held]
        if _is_of_host(self._switches.of(call.function)):
            lent += [value for leaf, value in zip(self._program.inputs, arguments, strict=True) if leaf.mutable]
        for argument in {id(value): value for value in arguments}.values():
            if not _shares(argument, [*self._results, *lent]) and argument.flags.writeable:
                argument[...] = _GARBAGE
        own = [held for held in self._held if held.lender is None]
        for held in own[1::2]:
            if isinstance(held.seen, np.ndarray) and held.seen.flags.writeable:
                held.seen[...] = _GARBAGE
                held.expected = np.full_like(held.expected, _GARBAGE)

    def _check(self, what: str, ours: Any, theirs: Any) -> None:
        if not isinstance(ours, np.ndarray | np.generic):
            raise self._differs(f"{what}: expected an array of NumPy, seen {type(ours).__name__}")
        if ours.dtype != theirs.dtype or ours.shape != theirs.shape or not np.array_equal(ours, theirs):
            with np.printoptions(precision=17):
                raise self._differs(f"{what}: expected {theirs.dtype}\n{theirs!r}\nseen {ours.dtype}\n{ours!r}")

    def _differs(self, what: str) -> Differs:
        return Differs(f"{what}\n{self._switches.script()}\n{self._program.script()}")


def _is_of_host(chosen: Compilation) -> bool:
    return chosen.way == "function" and chosen.mode != "OPENCL" and chosen.linker != "opencl"


def _shares(value: Any, others: Sequence[Any]) -> bool:
    return any(np.may_share_memory(value, other) for other in others if isinstance(other, np.ndarray))
