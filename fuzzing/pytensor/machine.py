"""The rules of the state machine, and its invariants.

Each function is compiled twice: in one of the modes and, as the reference, with PyTensor's linker `py` without
rewriting. The two compiled functions have separate shared variables. Every change is made to both sets of variables.
The values of both sets, and the outputs of both functions, have to agree.
"""

from __future__ import annotations

import contextlib
import copy
import pickle
import signal
from typing import Any
from unittest import mock

import numpy as np
import pytensor
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from pytensor.compile.mode import Mode
from pytensor.tensor.random.type import random_generator_type

import optdb.pytensor
from fuzzing.interrupts import interrupt_at
from fuzzing.pytensor.functions import LIMIT, MODES, SHAPES, VARIABLES, Failure, OnHost, Spec, compiled, mode_of, specs
from optdb.codegen.loops import sizes
from optdb.device.functions import tracer
from optdb.device.plans import PlanOptions
from optdb.runtime import host_buffers

__all__ = ["UpdatedVariables"]

#: Maximum number of functions in a run.
MOST_FUNCTIONS = 4
#: Maximum number of the Python event at which a call is interrupted. A repeated call has few events, and a traced call
#: has many events.
FEW_EVENTS, MANY_EVENTS = 150, 20_000
_numbers = st.integers(0, MOST_FUNCTIONS)
_positions = st.integers(0, VARIABLES - 1)
_seeds = st.integers(0, 1000)
_events = st.one_of(st.integers(1, FEW_EVENTS), st.integers(1, MANY_EVENTS))


class Side:
    """A set of shared variables, and the compiled functions that use them."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        rng = np.random.default_rng(7)
        self.variables = [
            pytensor.shared(rng.normal(size=shape), f"v{number}", shape=shape) for number in range(VARIABLES)
        ]
        self.rng = pytensor.shared(np.random.default_rng(3))
        self.history = pytensor.shared(np.zeros(2))
        self.functions: list[Any] = []

    @property
    def shared(self) -> list[Any]:
        """All shared variables."""
        return [*self.variables, self.rng, self.history]

    def values(self) -> list[Any]:
        """Return copies of the values of all shared variables."""
        return [variable.get_value() for variable in self.shared]

    def set_values(self, values: list[Any]) -> None:
        """Set all shared variables to given values."""
        for variable, value in zip(self.shared, values, strict=True):
            variable.set_value(value)


class UpdatedVariables(RuleBasedStateMachine):
    """A state machine that compiles functions in all modes and calls them; the functions update shared variables."""

    @initialize(
        shape=st.sampled_from(SHAPES),
        spec=specs(),
        mode=st.sampled_from(MODES),
        constants=st.sampled_from([16, 0]),
        borrows=st.booleans(),
    )
    def begin(self, shape: tuple[int, ...], spec: Spec, mode: str, constants: int, borrows: bool) -> None:
        """Create both sets of shared variables, and the first function.

        Kernels contain lengths up to `constants`. If `borrows` is true, devices read arguments and write results of
        any size in place.
        """
        self.scopes = contextlib.ExitStack()
        self.scopes.enter_context(mock.patch.object(sizes, "LARGEST_CONSTANT", constants))
        if borrows:
            self.scopes.enter_context(mock.patch.object(tracer, "LEAST_IN_PLACE", 1))
            self.scopes.enter_context(mock.patch.object(host_buffers, "MIN_ZERO_COPY_BYTES", 1))
        # Python ignores SIGINT if a shell has started it in the background.
        self.scopes.callback(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
        self.shape = shape
        self.specs: list[tuple[Spec, str]] = []
        self.sides = Side(shape), Side(shape)
        self.pending: list[tuple[Any, Any]] = []
        self.compile(spec, mode)

    def teardown(self) -> None:
        """Compare the values of all shared variables at the end of a run."""
        OnHost.fails = False
        if hasattr(self, "scopes"):
            self.wait()
            self.compare_values()
            self.scopes.close()

    @precondition(lambda self: len(self.specs) < MOST_FUNCTIONS)
    @rule(spec=specs(), mode=st.sampled_from(MODES))
    def compile(self, spec: Spec, mode: str) -> None:
        """Compile a function."""
        self.specs.append((spec, mode))
        modes = mode_of(mode), Mode("py", None)
        for side, chosen in zip(self.sides, modes, strict=True):
            side.functions.append(compiled(spec, side.variables, side.rng, side.history, chosen))
        if mode == "merged":
            self.sides[0].functions[-1].vm.jit_fn.function._options = PlanOptions("always", "never")

    # Calls

    @rule(number=_numbers, seed=_seeds, times=st.integers(1, 7))
    def call(self, number: int, seed: int, times: int) -> None:
        """Call a function one or more times; after several calls, it has a plan."""
        for turn in range(times):
            x = self._argument(seed + turn)
            computed, expected = [function(x) for function in self._functions(number)]
            self._compare(computed, expected)

    @rule(number=_numbers, seed=_seeds, times=st.integers(1, 6))
    def call_n_times(self, number: int, seed: int, times: int) -> None:
        """Call a function several times with a single `call_n_times`."""
        function, reference = self._functions(number)
        x = self._argument(seed)
        if self._is_on_device(number):
            computed = optdb.pytensor.call_n_times(function, times, x)
        else:
            computed = [function(x) for _ in range(times)][-1]
        self._compare(computed, [reference(x) for _ in range(times)][-1])

    @rule(number=_numbers, seed=_seeds)
    def begin_call(self, number: int, seed: int) -> None:
        """Begin an asynchronous call of a function, and overwrite its argument immediately."""
        if not self._is_on_device(number):
            return
        function, reference = self._functions(number)
        x = self._argument(seed)
        expected = reference(x)
        future = optdb.pytensor.run_async(function, x)
        x[...] = np.nan
        self.pending.append((future, expected))

    @rule()
    def wait(self) -> None:
        """Wait for all calls that have begun."""
        for future, expected in self.pending:
            self._compare(future.wait(), expected)
        self.pending.clear()

    @rule(number=_numbers, seed=_seeds, event=_events, times=st.sampled_from([1, 1, 3]), anew=st.booleans())
    def interrupt(self, number: int, seed: int, event: int, times: int, anew: bool) -> None:
        """Interrupt a call; either all shared variables or none of them must get their next values.

        With `anew`, the shared variables are set before the call.
        """
        function, reference = self._functions(number)
        if self.specs[number % len(self.specs)][1] == "python":
            return  # PyTensor's own functions may leave variables in any state
        before = self.sides[1].values()
        if anew:
            self.sides[0].set_values(copy.deepcopy(before))
        x = self._argument(seed)
        states = [before]
        for _ in range(times):
            reference(x)
            states.append(self.sides[1].values())
        try:
            with interrupt_at(event):
                if times == 1:
                    function(x)
                else:
                    optdb.pytensor.call_n_times(function, times, x)
        except KeyboardInterrupt:
            pass
        values = self.sides[0].values()
        matching = [state for state in states if _agree(values, state)]
        assert matching, ("half updated", values, states)
        self.sides[1].set_values(copy.deepcopy(matching[-1]))

    @rule(number=_numbers, seed=_seeds)
    def fail(self, number: int, seed: int) -> None:
        """Make a call that raises an error; it must not change a shared variable."""
        spec, mode = self.specs[number % len(self.specs)]
        if mode == "python" or not (spec.checks or spec.on_host):
            return
        x = self._argument(seed)
        if spec.checks:
            if not x.size:
                return
            x = x + 2 * LIMIT
        OnHost.fails = spec.on_host
        try:
            self._functions(number)[0](x)
        except (Failure, AssertionError):
            pass
        else:
            # The call may succeed: rewriting removes a failing node that no result needs, while the reference keeps
            # this node.
            self.sides[1].set_values(self.sides[0].values())
        finally:
            OnHost.fails = False

    # Variables

    @rule(position=_positions, seed=_seeds, borrow=st.booleans())
    def set_value(self, position: int, seed: int, borrow: bool) -> None:
        """Set a shared variable to a new value."""
        for side in self.sides:
            side.variables[position].set_value(self._argument(seed), borrow=borrow)

    @precondition(lambda self: not self.pending)
    @rule(giver=_positions, taker=_positions, seed=_seeds)
    def hand_over(self, giver: int, taker: int, seed: int) -> None:
        """Set variable `taker` to the array of variable `giver` without a copy, and set `giver` to a new value."""
        for side in self.sides:
            side.variables[taker].set_value(side.variables[giver].get_value(borrow=True), borrow=True)
            side.variables[giver].set_value(self._argument(seed), borrow=True)

    @rule(kind=st.sampled_from(["PCG64", "PCG64", "MT19937"]), seed=_seeds)
    def set_generator(self, kind: str, seed: int) -> None:
        """Set the random generator."""
        for side in self.sides:
            side.rng.set_value(np.random.Generator(getattr(np.random, kind)(seed)))

    @rule(position=_positions)
    def read_value(self, position: int) -> None:
        """Compare a variable's value."""
        values = [side.variables[position].get_value() for side in self.sides]
        assert _agree(values[:1], values[1:]), values

    @rule(position=_positions, borrow=st.booleans())
    def edit_value(self, position: int, borrow: bool) -> None:
        """Change the value of a shared variable in place, and set the variable to this value."""
        for side in self.sides:
            value = side.variables[position].get_value(borrow=borrow)
            value[...] = value * 0.5
            side.variables[position].set_value(value, borrow=borrow)

    @rule()
    def compare_values(self) -> None:
        """Compare all variables."""
        computed, expected = [side.values() for side in self.sides]
        assert _agree(computed, expected), (computed, expected)

    # Copies

    @rule(number=_numbers, seed=_seeds)
    def call_pickled(self, number: int, seed: int) -> None:
        """Pickle and unpickle a function, and call the unpickled function, which has its own shared variables."""
        x = self._argument(seed)
        self._compare(*[pickle.loads(pickle.dumps(function))(x) for function in self._functions(number)])

    @precondition(lambda self: len(self.specs) < MOST_FUNCTIONS)
    @rule(number=_numbers)
    def copy_function(self, number: int) -> None:
        """Copy a function; the copy uses the same shared variables."""
        number %= len(self.specs)
        self.specs.append(self.specs[number])
        for side in self.sides:
            side.functions.append(side.functions[number].copy())

    def _functions(self, number: int) -> tuple[Any, Any]:
        computed, reference = (side.functions[number % len(self.specs)] for side in self.sides)
        return computed, reference

    def _is_on_device(self, number: int) -> bool:
        return self.specs[number % len(self.specs)][1] != "python"

    def _argument(self, seed: int) -> Any:
        return np.asarray(np.random.default_rng(seed).normal(size=self.shape))

    @staticmethod
    def _compare(computed: Any, expected: Any) -> None:
        assert _agree(computed, expected), (computed, expected)


def _agree(computed: Any, expected: Any) -> bool:
    """Return whether the values in two lists agree."""
    pairs = zip(computed, expected, strict=True)
    return all(_same(one, other) for one, other in pairs)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, np.random.Generator):
        return bool(random_generator_type.values_eq(one, other))
    return one.shape == other.shape and np.allclose(one, other, rtol=1e-9, atol=1e-9, equal_nan=True)
