"""The rules of the state machine, and its invariants.

All functions of a run add numbers to the same two shared variables, or to copies of these variables. At any time, the
two variables of a pair must have the same value, which is the sum of all addends.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import pickle
import signal
import sys
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import theano
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from theano.gof import vm

import optdb
from fuzzing.interrupts import interrupt_at
from fuzzing.machines import in_threads
from fuzzing.tiers.functions import LENGTH, WAYS, Spec, compiled, specs, variables
from fuzzing.tiers.gate import Gate
from optdb.host.theano.clinker import plug
from optdb.host.theano.clinker.cache import module_cache
from optdb.host.theano.clinker.collecting import collector
from optdb.host.theano.clinker.linking import NodeLinker
from optdb.host.theano.clinker.tiers.background import background
from optdb.host.theano.clinker.tiers.turns import turn

__all__ = ["TieredFunctions"]

#: Maximum number of functions in a run.
MOST_FUNCTIONS = 4
#: Number of concurrent threads, and number of calls in each thread.
THREADS, CALLS = 3, 6
#: Seconds after which Python switches between the concurrent threads.
SECONDS_BETWEEN_SWITCHES = 1e-6
#: Maximum seconds to acquire the lock `turn` on a busy machine.
SECONDS_FOR_TURN = 60.0
#: Successive calls are interrupted at Python events whose numbers have this distance; the second constant is the
#: largest number.
EVENTS_BETWEEN_INTERRUPTS = 7
MOST_EVENTS = 250
#: The path of a compiler that does not exist.
LOST = "/nonexistent/g++"


@dataclass(eq=False)
class Pair:
    """The containers of two shared variables, and the value that both variables should have."""

    containers: list[Any]
    value: np.ndarray

    def read(self) -> list[np.ndarray]:
        """Return the current values."""
        return [np.array(container.storage[0]) for container in self.containers]


@dataclass(eq=False)
class Used:
    """A function in use."""

    spec: Spec
    way: str
    call: Any
    pair: Pair
    #: Whether the function has a Scan whose inner function was compiled when there was no C compiler.
    has_loop_in_python: bool = False

    @property
    def has_compiler(self) -> bool:
        """Whether a C compiler existed when the function was compiled."""
        return self.way != "no compiler"


_numbers = st.integers(0, MOST_FUNCTIONS)
_terms = st.integers(-3, 3)
_lengths = st.integers(0, 4)
_ways = st.sampled_from(WAYS)


class TieredFunctions(RuleBasedStateMachine):
    """A state machine that compiles and calls functions with tiers, and starts their compilers one after the other."""

    @initialize(spec=specs(), way=_ways)
    def begin(self, spec: Spec, way: str) -> None:
        """Let C compilers wait, and compile the first function."""
        self.scopes = contextlib.ExitStack()
        # Python ignores SIGINT if a shell has started it in the background.
        self.scopes.callback(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
        self.gate = self.scopes.enter_context(Gate(background).closed())
        if plug.is_installed():
            self.scopes.callback(plug.install)
        flags = {"optdb.tiered": False, "cxx": theano.config.cxx}
        self.scopes.enter_context(theano.configparser.change_flags(**flags))
        self.scopes.callback(optdb.disable)
        self.is_on = self.is_lost = False
        self.shared = variables()
        self.pair = Pair([var.container for var in self.shared], np.zeros(LENGTH))
        self.functions: list[Used] = []
        self.compiled = 0
        self.compile(spec, way)

    def teardown(self) -> None:
        """Discard all functions and their modules, and restore all settings."""
        self.functions.clear()
        gc.collect()
        self.scopes.close()
        module_cache().clear_unversioned()
        collector.nodes = NodeLinker()

    # Compiling and dropping functions

    @precondition(lambda self: len(self.functions) < MOST_FUNCTIONS)
    @rule(spec=specs(), way=_ways)
    def compile(self, spec: Spec, way: str) -> None:
        """Compile another function of the same shared variables."""
        if way == "on" and not self.is_on:
            self.turn_on(by_flag=False)
        call = compiled(spec, self.shared, way, f"function {self.compiled % MOST_FUNCTIONS}")
        self.compiled += 1
        self.functions.append(Used(spec, way, call, self.pair))
        self.is_on &= way != "enabled and disabled"
        self._uninstall_unused()

    @rule(by_flag=st.booleans())
    def turn_on(self, by_flag: bool) -> None:
        """Enable the engine and tiers for functions that are compiled later."""
        optdb.enable(tiered=None if by_flag else True)
        theano.config.optdb.tiered = True
        self.is_on = True

    @rule()
    def turn_off(self) -> None:
        """Disable the engine and tiers, which must not change functions that were compiled earlier."""
        theano.config.optdb.tiered = False
        self.is_on = False
        self._uninstall_unused()

    @precondition(lambda self: len(self.functions) < MOST_FUNCTIONS and self.functions)
    @rule(number=_numbers, how=st.sampled_from(["copy", "share", "copy.copy", "pickle"]))
    def copy(self, number: int, how: str) -> None:
        """Copy a function, or pickle and unpickle it with its shared variables, unless the copy would have no tiers."""
        used = self._function(number)
        if used.way not in ("mode", "no compiler") and not self.is_on:
            return
        if how == "pickle" and used.spec.has_scan and self.is_lost and not self.is_on:
            return  # without the engine, an unpickled Scan uses Theano's default mode, which waits for C code
        pair, way = used.pair, "mode" if used.way == "no compiler" else used.way
        has_loop_in_python = used.has_loop_in_python or (used.spec.has_scan and not used.has_compiler)
        if how == "pickle":
            call = pickle.loads(pickle.dumps(used.call))
            updated = [spec.update is not None for spec in call.maker.inputs]
            containers = [box for box, is_updated in zip(call.input_storage, updated, strict=True) if is_updated]
            pair, has_loop_in_python = Pair(containers, pair.value.copy()), False
        elif how == "copy.copy":
            call = copy.copy(used.call)
        else:
            call = used.call.copy(share_memory=how == "share")
        self.functions.append(Used(used.spec, way, call, pair, has_loop_in_python))
        self._uninstall_unused()

    @precondition(lambda self: self.functions)
    @rule(number=_numbers)
    def drop(self, number: int) -> None:
        """Discard a function, and check that nothing else keeps it alive."""
        dropped = weakref.ref(self._function(number).call)
        self.functions.remove(self._function(number))
        gc.collect()
        assert dropped() is None

    # Compilers

    @rule()
    def build_one(self) -> None:
        """Let one compiler finish."""
        self.gate.let_one()

    @rule()
    def build_all(self) -> None:
        """Let all compilers finish."""
        self.gate.let_all()

    @precondition(lambda self: not self.is_lost)
    @rule(rarely=st.integers(0, 3))
    def lose_compiler(self, rarely: int) -> None:
        """Make the compiler disappear."""
        if not rarely:
            theano.config.cxx = LOST
            self.is_lost = True

    # Calls

    @precondition(lambda self: self.functions)
    @rule(number=_numbers, term=_terms, length=_lengths)
    def call(self, number: int, term: int, length: int) -> None:
        """Call a function."""
        used = self._function(number)
        self._check(used, used.call(*_arguments(term, length)), term, length)
        used.pair.value = used.pair.value + term

    @precondition(lambda self: self.functions)
    @rule(number=_numbers, term=_terms, first=st.integers(1, EVENTS_BETWEEN_INTERRUPTS), waits=st.booleans())
    def interrupt(self, number: int, term: int, first: int, waits: bool) -> None:
        """Interrupt each of several calls, or `optdb.wait`, at one event; a call must take full effect or none."""
        for event in range(first, MOST_EVENTS, EVENTS_BETWEEN_INTERRUPTS):
            if not self._interrupt(self._function(number), term, event, waits):
                return

    def _interrupt(self, used: Used, term: int, event: int, waits: bool) -> bool:
        """Interrupt a call at the event with a given number; return False if the call ends before this event."""
        arguments = _arguments(term, LENGTH)
        before = used.pair.value
        try:
            with interrupt_at(event) as is_over:
                if waits:
                    optdb.wait(used.call, timeout=0.01)
                else:
                    used.call(*arguments)
        except (KeyboardInterrupt, TimeoutError):
            pass
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert in_threads([_turn_is_free])[0]
        after = used.pair.read()[0]
        made = [before] if waits else [before, before + term]
        assert any(np.array_equal(after, value) for value in made), (before, term, after)
        used.pair.value = after
        self.variables_are_right()
        return is_over()

    @precondition(lambda self: self.functions)
    @rule(
        numbers=st.lists(_numbers, min_size=THREADS, max_size=THREADS),
        term=_terms,
        lengths=st.lists(_lengths, min_size=1),
    )
    def call_in_threads(self, numbers: list[int], term: int, lengths: list[int]) -> None:
        """Call functions in several threads; each call must return its own results, and no addition may be lost."""
        functions = [self._function(number) for number in numbers]

        def work(position: int) -> None:
            for repetition in range(CALLS):
                used, length = functions[position], lengths[(position + repetition) % len(lengths)]
                results = used.call(*_arguments(term + position, length))
                self._check(used, results, term + position, length, is_alone=False)

        with _switching_often():
            in_threads([functools.partial(work, position) for position in range(THREADS)])
        for position, used in enumerate(functions):
            used.pair.value = used.pair.value + CALLS * (term + position)

    @precondition(lambda self: self.functions)
    @rule(number=_numbers)
    def wait(self, number: int) -> None:
        """Wait for a function's C code; then all C code that can be built must be in use."""
        used = self._function(number)
        self.gate.let_all()
        tier = optdb.wait(used.call)
        assert tier.done
        if used.spec.linker.startswith("cvm") and not (tier.in_python or used.spec.has_scan):
            assert type(used.call.fn) is vm.CVM

    # Invariants

    @invariant()
    def variables_are_right(self) -> None:
        """Check that both variables of each pair equal the sum of the addends."""
        for pair in {used.pair for used in self.functions}:
            for value in pair.read():
                np.testing.assert_array_equal(value, pair.value)

    @invariant()
    def tiers_are_right(self) -> None:
        """Check that the reported tier of each function agrees with the kinds of its ops."""
        for used in self.functions:
            tier = optdb.tier(used.call)
            assert tier.done or used.has_compiler
            assert tier.modules_left == 0 or not tier.done
            if tier.done and used.has_compiler and not self.is_lost:
                kinds = used.spec.kinds
                assert tier.modules_failed == kinds.count("fails"), (tier, used)
                in_python = kinds.count("fails") + kinds.count("python") + used.has_loop_in_python
                assert tier.in_python == in_python, (tier, used)
            if not used.has_compiler:
                # The C code of Scan itself may already be loaded.
                assert tier.in_c <= used.spec.has_scan and not tier.modules_failed, (tier, used)

    # Helpers

    def _uninstall_unused(self) -> None:
        """Restore Theano's own linker if tiers are off, even if this process's flags enable optdb's linker."""
        if not self.is_on:
            optdb.disable()
            plug.uninstall()

    def _function(self, number: int) -> Used:
        return self.functions[number % len(self.functions)]

    def _check(self, used: Used, results: list[np.ndarray], term: int, length: int, is_alone: bool = True) -> None:
        """Compare results with the expected ones; in threads, compare the two variables only with each other."""
        result, first, second = results
        np.testing.assert_array_equal(result, used.spec.factor * np.arange(length))
        np.testing.assert_array_equal(first, used.pair.value if is_alone else second)
        np.testing.assert_array_equal(first, second)


def _arguments(term: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(float(length)), np.full(LENGTH, float(term))


@contextlib.contextmanager
def _switching_often() -> Iterator[None]:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(SECONDS_BETWEEN_SWITCHES)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


def _turn_is_free() -> bool:
    """Acquire and release the lock `turn`, which tiered functions use; return whether it could be acquired."""
    is_free = turn.acquire(timeout=SECONDS_FOR_TURN)
    if is_free:
        turn.release()
    return is_free
