"""The rules of the state machine, and the comparisons that follow each step.

Every rule makes the same change to Theano's shared variables, to simulators and to models in NumPy. After each step,
the values of all variables must equal those of the models. All results and arguments that the caller holds must also
have the values of the models.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import optdb
from fuzzing.machines import in_threads
from fuzzing.states.expressions import OPERATIONS, Kind, Undefined, trouble
from fuzzing.states.functions import HOST_WAYS, WAYS, compiled, shared_variables
from fuzzing.states.model import Model, contents
from fuzzing.states.separate import Attempt, Stateful, attempts, of_file, on_device, with_private_state
from fuzzing.states.specs import COUNT, Spec, kinds, shapes_of, specs
from optdb.opencl.simulator.execution.calls import RepeatedMethod

__all__ = ["Differs", "SharedVariables"]

#: Maximum number of functions in a run; it is small because a function takes longer to compile than to call.
MOST_FUNCTIONS = 7
#: Maximum number of results whose contents are compared after each step.
MOST_HELD = 24
#: The number that the caller writes into its own arrays.
GARBAGE = 1

Values = dict[int, np.ndarray]


class Differs(AssertionError):
    """The value of a variable or a result differs from the model's value."""


@dataclass(eq=False)
class Used:
    """A compiled function, and the model that computes the same calls in NumPy."""

    model: Model
    call: Any
    way: str
    #: The model's current values of the variables in Theano or, if the function is a method of a simulator, in the
    #: simulator.
    values: Values
    simulator: Simulator | None = None
    is_copy: bool = False
    last_borrowed: list[np.ndarray] = field(default_factory=list)

    @property
    def spec(self) -> Spec:
        """What it computes."""
        return self.model.spec

    @property
    def is_of_host(self) -> bool:
        """Whether the function is compiled by one of Theano's own linkers."""
        return self.way in HOST_WAYS


@dataclass(eq=False)
class Simulator:
    """A simulator, and the values of its variables according to the model."""

    sim: Any
    values: Values

    def takes(self, numbers: set[int], present: Values) -> None:
        """Add values of variables that are new to the simulator: it takes over Theano's current values."""
        for k in numbers - set(self.values):
            self.values[k] = present[k].copy()


@dataclass(eq=False)
class Held:
    """An array that the caller holds, and its expected content."""

    what: str
    array: np.ndarray
    expected: np.ndarray


def step(**strategies: Any) -> Callable[[Callable[..., None]], Any]:
    """Return a decorator that makes a method a rule, which ends without an error if the method raises `Undefined`."""

    def decorate(method: Callable[..., None]) -> Any:
        @functools.wraps(method)
        def run(self: SharedVariables, *args: Any, **drawn: Any) -> None:
            with contextlib.suppress(Undefined):
                method(self, *args, **drawn)

        return rule(**strategies)(_noting_failure(run))

    return decorate


def _noting_failure(method: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(method)
    def run(self: SharedVariables, *args: Any, **drawn: Any) -> None:
        try:
            method(self, *args, **drawn)
        except BaseException:
            self.has_failed = True
            raise

    return run


_numbers = st.integers(0, 9)
_variables = st.integers(0, COUNT - 1)
_length = st.sampled_from([0, 1, 1, 2, 2, 3, 4])
#: At most one length is 0, because incrementing an out-of-bounds row raises no error if rows have no elements.
_lengths = st.tuples(_length, _length).filter(any)
_seeds = st.integers(0, 99)
#: A device is chosen more often than one of Theano's own linkers.
_ways = st.sampled_from([way for way in WAYS for _ in range(1 if way in HOST_WAYS else 3)])
_errors = st.sampled_from([None, None, None, ArithmeticError, KeyboardInterrupt])


class SharedVariables(RuleBasedStateMachine):
    """A state machine of shared variables, the functions that use them, and the arrays that the caller holds."""

    #: The name of the device, as in `optdb.mode`.
    device = "auto"
    #: Whether an earlier step has failed. If it has, later differences may be consequences.
    has_failed = False

    @initialize(
        kinds=kinds(),
        lengths=st.tuples(_lengths, _lengths),
        seed=_seeds,
        defaults=st.frozensets(_variables, max_size=1),
        functions=st.lists(st.tuples(specs(), _ways), min_size=2, max_size=4),
    )
    def begin(
        self,
        kinds: tuple[Kind, ...],
        lengths: tuple[tuple[int, int], ...],
        seed: int,
        defaults: frozenset[int],
        functions: list[tuple[Spec, str]],
    ) -> None:
        """Create the shared variables, with one shape for each kind, and compile the first functions."""
        self.kinds, self.defaults = kinds, defaults
        sizes = [lengths[kind != kinds[0]] for kind in kinds]
        self.values: Values = {k: contents(kind, shapes_of(kind, sizes[k]), seed + k) for k, kind in enumerate(kinds)}
        self.shared = shared_variables(kinds, [self.values[k] for k in range(COUNT)], self.defaults)
        self.functions: list[Used] = []
        self.simulators: list[Simulator] = []
        self.held: list[Held] = []
        self.arguments: list[Held] = []
        self.pending: list[tuple[Used, Any, list[np.ndarray]]] = []
        for spec, way in functions:
            self._add(spec, way, to_last=bool(seed % 2), repeats=bool(seed % 3))

    # Functions

    @precondition(lambda self: len(self.functions) < MOST_FUNCTIONS)
    @step(spec=specs(), way=_ways, to_last=st.booleans(), repeats=st.booleans())
    def compile(self, spec: Spec, way: str, to_last: bool, repeats: bool = False) -> None:
        """Compile a function; for the way "simulator", create a simulator, or add a method to the last simulator."""
        self._add(spec, way, to_last, repeats)

    def _add(self, spec: Spec, way: str, to_last: bool, repeats: bool) -> None:
        spec = spec.fitted(self.kinds)
        function = self._compiled(spec, way)
        if function is None:
            return
        model = Model(spec, self.kinds, self.defaults)
        if way != "simulator":
            self.functions.append(Used(model, function, way, self.values))
            return
        numbers = spec.used()
        if self.simulators and to_last:
            simulator = self.simulators[-1]
            name = f"method_{len(list(simulator.sim))}"
            simulator.sim.add_method(name, function)
            call = simulator.sim[name]
        else:
            simulator = Simulator(optdb.SimulatorOCL(function, self.device), {})
            call = simulator.sim
            self.simulators.append(simulator)
        if repeats:
            RepeatedMethod(call)  # the same arguments let a plan repeat its commands
        simulator.takes(numbers, self.values)
        self.functions.append(Used(model, call, way, simulator.values, simulator))

    def _compiled(self, spec: Spec, way: str) -> Any:
        """Return a compiled function; None if Theano's own linkers also reject the function."""
        try:
            return compiled(spec, self.kinds, self.shared, way, self.device)
        except Exception as error:
            if way in HOST_WAYS or self._compiled(spec, "py") is None:
                return None
            raise Differs(f"{way} does not compile {spec}: {type(error).__name__}: {error}") from error

    @precondition(
        lambda self: any(not used.is_of_host for used in self.functions) and len(self.functions) < MOST_FUNCTIONS
    )
    @step(number=_numbers, old=_variables, new=_variables, deletes=st.booleans())
    def copy(self, number: int, old: int, new: int, deletes: bool) -> None:
        """Copy a function of mode OPENCL; replace one shared variable in the copy, or leave out the updates."""
        used = self._function(number)
        if used.is_copy or used.simulator is not None or used.is_of_host:
            # Theano finds no variables in a copy of a copy. If Theano's own linkers compile a copy of a function, a
            # node that overwrites a variable may run before a node that reads the variable, because the copied graph
            # does not order these nodes.
            return
        spec, numbers = used.spec, used.spec.used()
        swaps = old in numbers and new not in numbers and self.kinds[old] == self.kinds[new]
        if (swaps and {old, new} & self.defaults) or (deletes and used.model.defaulted):
            return  # the copy would keep the default updates of the original
        # In a copy, outputs are borrowed as in the original, but updates are separate values.
        options = {"swap": {self.shared[old]: self.shared[new]}} if swaps else {}
        call = used.call.copy(delete_updates=deletes, **options)
        spec = spec.swapped(old, new) if swaps else spec
        if deletes:
            spec = replace(spec, updates=(), default_updates=False)
        self.functions.append(Used(Model(spec, self.kinds, self.defaults), call, used.way, used.values, is_copy=True))

    # Calls

    @precondition(lambda self: self.functions)
    @step(number=_numbers, seed=_seeds)
    def call_plainly(self, number: int, seed: int) -> None:
        """Call a function once with a new argument; after several such calls, the function has plans."""
        self.call(number, "new", seed, 0, 0, 1, None)

    @precondition(lambda self: self.functions)
    @step(number=_numbers, seed=_seeds, index=st.integers(-1, 2))
    def call_thrice(self, number: int, seed: int, index: int) -> None:
        """Call a function three times with the same array; change the contents of the array before each call."""
        for repetition in range(3):
            self.call(number, "rewritten", seed + repetition, index, 0, 1, None)
            self.all_are_as_expected()

    @precondition(lambda self: self.functions)
    @step(number=_numbers, seed=_seeds)
    def call_alike(self, number: int, seed: int) -> None:
        """Call a function repeatedly with the same arguments, so that it can enqueue the same commands again."""
        self.call(number, "new", seed, 0, 0, 1, None)
        for _ in range(6):
            self.all_are_as_expected()
            self.call(number, "same", seed, 0, 0, 1, None)

    @precondition(lambda self: any(used.last_borrowed for used in self.functions))
    @step(number=_numbers, seed=_seeds, index=st.integers(-1, 2))
    def call_with_borrowed(self, number: int, seed: int, index: int) -> None:
        """Call a function repeatedly with its own borrowed results."""
        candidates = [number for number, used in enumerate(self.functions) if used.last_borrowed]
        for _ in range(3):
            self.call(candidates[number % len(candidates)], "borrowed", seed, index, 0, 1, None)
            self.all_are_as_expected()

    @precondition(lambda self: self.functions)
    @step(
        number=_numbers,
        source=st.sampled_from(["new", "new", "same", "rewritten", "result"]),
        seed=_seeds,
        index=st.integers(-1, 4),
        longer=st.sampled_from([0, 0, 0, 0, 1]),
        times=st.sampled_from([1, 1, 1, 2, 3]),
        error=_errors,
    )
    def call(
        self, number: int, source: str, seed: int, index: int, longer: int, times: int, error: type | None
    ) -> None:
        """Call a function one or more times with an argument that may be invalid; a host step may raise an error."""
        used = self._function(number)
        times = 1 if error is not None else times
        argument = self._argument(used, source, seed, longer)
        before = argument.copy()
        expected = self._expected(used, argument, index, times)
        as_loop = times > 1 and used.simulator is not None and seed % 2
        trouble.error = error
        try:
            if as_loop:
                results = used.call.call_n_times(times, argument, index)
            else:
                for _ in range(times):
                    results = used.call(argument if not used.spec.mutable else argument.copy(), index)
        except BaseException as raised:
            self._after_error(used, expected, error, raised)
            return
        finally:
            trouble.error = None
        self._take(used, results, expected, f"call of {used.way}")
        if as_loop or not used.spec.mutable:
            _check("an argument after a call", argument, before, used.spec)

    @precondition(lambda self: any(used.simulator is not None for used in self.functions))
    @step(number=_numbers, seed=_seeds, index=st.integers(0, 2))
    def call_later(self, number: int, seed: int, index: int) -> None:
        """Begin an asynchronous call of a simulator, and immediately overwrite its argument."""
        candidates = [used for used in self.functions if used.simulator is not None]
        used = candidates[number % len(candidates)]
        argument = self._argument(used, "new", seed, 0).copy()
        expected = self._expected(used, argument, index, 1)
        if expected is None:
            return
        future = used.call.run_async(argument, index)
        argument[...] = GARBAGE
        self.pending.append((used, future, expected[0]))
        used.values.update(expected[1])

    @precondition(lambda self: self.pending)
    @step(number=_numbers)
    def wait(self, number: int) -> None:
        """Wait for a call that `call_later` has begun."""
        used, future, results = self.pending.pop(number % len(self.pending))
        self._take(used, future.wait(), (results, {}), "a call that was waited for")

    @precondition(lambda self: any(not used.is_of_host for used in self.functions))
    @step(first=_numbers, second=_numbers, seed=_seeds, index=st.integers(0, 2))
    def call_in_threads(self, first: int, second: int, seed: int, index: int) -> None:
        """Call two functions at the same time; the outcome must be the same as if one was called after the other."""
        candidates = [used for used in self.functions if not used.is_of_host]
        calls = [candidates[number % len(candidates)] for number in (first, second)]
        if any(output.borrow for used in calls for output in used.spec.outputs):
            return  # the second call may overwrite borrowed results of the first
        arguments = [self._argument(used, "new", seed + position, 0).copy() for position, used in enumerate(calls)]
        both = [self._in_order(calls, arguments, index, order) for order in ((0, 1), (1, 0))]
        orders = [order for order in both if order is not None]
        if len(orders) < len(both):
            return
        try:
            results = in_threads(
                [functools.partial(used.call, x.copy(), index) for used, x in zip(calls, arguments, strict=True)]
            )
        except Exception as error:
            raise Differs(f"a thread raises {type(error).__name__}: {error}") from error
        for expected, states in orders:
            if all(_same(ours, theirs) for ours, theirs in zip(map(_listed, results), expected, strict=True)):
                present = [dict(used.values) for used in calls]
                for used, state in zip(calls, states, strict=True):
                    used.values.update(state)
                if all(self._is_seen(used) for used in calls):
                    return
                for used, state in zip(calls, present, strict=True):
                    used.values.update(state)
        raise Differs(
            f"two threads: {[used.spec for used in calls]}\nresults {results}\nshared "
            f"{[var.get_value() for var in self.shared]}\nexpected one of {orders}"
        )

    # Private state of a function

    @step(spec=specs(), attempts=attempts(), way=st.sampled_from(["file", "private", "target"]), twin=st.booleans())
    def call_separate(self, spec: Spec, attempts: list[Attempt], way: str, twin: bool) -> None:
        """Call a function that is loaded from a file, has a private state, or has its variables on the device."""
        spec = spec.fitted(self.kinds)
        if "trouble" in spec.operations():
            return  # a function with a host step cannot be exported
        k, kind = spec.argument, self.kinds[spec.argument]
        like = self.values[k]
        values = {number: value.copy() for number, value in self.values.items()}
        function: Stateful | None
        if way == "file":
            compiled_function = self._compiled(spec, "simulator")
            if compiled_function is None:
                return
            example = contents(kind, like.shape, 0), attempts[0].index
            function = of_file(compiled_function, Model(spec, self.kinds, self.defaults), values, example, self.device)
        elif way == "private":
            names = [name for _, source in spec.updates for name in source.operations]
            names = [name for name in names if OPERATIONS[name].admits(kind)]
            function = with_private_state(kind, names, like, "mode" if twin else "simulator", self.device)
        else:
            function = on_device(spec, self.kinds, values, compiled, self.device)
        if function is None:
            return
        for number, attempt in enumerate(attempts):
            shape = (like.shape[0] + attempt.longer, *like.shape[1:]) if like.ndim else ()
            difference = function.difference(contents(kind, shape, attempt.seed), attempt.index)
            if difference is not None:
                raise Differs(f"call {number} of {way}, of {attempts}: {difference}\n{spec}")

    # Variables

    @step(
        k=_variables,
        lengths=_lengths,
        other_shape=st.sampled_from([False, False, True]),
        seed=_seeds,
        borrow=st.booleans(),
    )
    def set_value(self, k: int, lengths: tuple[int, int], other_shape: bool, seed: int, borrow: bool) -> None:
        """Set a shared variable in Theano with `set_value`; simulators keep their own values."""
        value = contents(self.kinds[k], self._shape(self.values[k], k, lengths, other_shape), seed)
        self.values[k] = value.copy()
        self.shared[k].set_value(value, borrow=borrow)
        if not borrow:
            value[...] = GARBAGE

    @step(k=_variables, seed=_seeds, internal=st.booleans())
    def write_in_place(self, k: int, seed: int, internal: bool) -> None:
        """Change the borrowed value of a shared variable in place, and set the variable to this value."""
        value = self.shared[k].get_value(borrow=True, return_internal_type=internal)
        if not isinstance(value, np.ndarray):
            return
        value[...] = contents(self.kinds[k], value.shape, seed)
        self.shared[k].set_value(value, borrow=True)
        self.values[k] = value.copy()

    @step(k=_variables, borrow=st.booleans())
    def zero(self, k: int, borrow: bool) -> None:
        """Set a shared variable to zeros; with `borrow`, this happens in place."""
        if self.kinds[k].is_bool and not borrow:
            return  # Theano would set it to integers
        self.shared[k].zero(borrow)
        self.values[k] = np.zeros_like(self.values[k])

    @precondition(lambda self: self.simulators)
    @step(number=_numbers, k=_variables, lengths=_lengths, other_shape=st.sampled_from([False, True]), seed=_seeds)
    def set_of_simulator(self, number: int, k: int, lengths: tuple[int, int], other_shape: bool, seed: int) -> None:
        """Set the value that a simulator holds for a shared variable."""
        simulator = self.simulators[number % len(self.simulators)]
        if k not in simulator.values:
            return
        value = contents(self.kinds[k], self._shape(simulator.values[k], k, lengths, other_shape), seed)
        simulator.values[k] = value.copy()
        simulator.sim.set(self.shared[k], value)
        value[...] = GARBAGE

    @precondition(lambda self: self.simulators)
    @step(number=_numbers, to_theano=st.booleans())
    def synchronize(self, number: int, to_theano: bool) -> None:
        """Copy the values of all variables from a simulator to Theano, or from Theano to the simulator."""
        simulator = self.simulators[number % len(self.simulators)]
        if to_theano:
            simulator.sim.sync_to_theano()
            self.values.update({k: value.copy() for k, value in simulator.values.items()})
        else:
            simulator.sim.sync_from_theano()
            simulator.values.update({k: self.values[k].copy() for k in simulator.values})

    # Arrays that the caller holds

    @precondition(lambda self: self.held)
    @step(number=st.integers(0, MOST_HELD - 1))
    def write_into_result(self, number: int) -> None:
        """Overwrite a result, which belongs to the caller."""
        held = self.held[number % len(self.held)]
        held.array[...] = GARBAGE
        held.expected = np.full_like(held.expected, GARBAGE)

    @invariant()
    @_noting_failure
    def all_are_as_expected(self) -> None:
        """Compare the values of all variables, and the caller's results and arguments, with the models."""
        for k, var in enumerate(getattr(self, "shared", ())):
            _check(f"s{k}", var.get_value(borrow=True), self.values[k])
        for simulator in getattr(self, "simulators", ()):
            for k, value in simulator.values.items():
                _check(f"s{k} of a simulator", simulator.sim.get(self.shared[k]), value)
        for held in (*getattr(self, "held", ()), *getattr(self, "arguments", ())):
            _check(f"{held.what}, later", held.array, held.expected)

    def teardown(self) -> None:
        """Wait for calls, and compare all values; do nothing after a failed step, so that its error stays visible."""
        if self.has_failed:
            return
        for used, future, results in getattr(self, "pending", ()):
            self._take(used, future.wait(), (results, {}), "a call that was waited for at the end")
        self.all_are_as_expected()

    # Helpers

    def _function(self, number: int) -> Used:
        return self.functions[number % len(self.functions)]

    def _shape(self, value: np.ndarray, k: int, lengths: tuple[int, int], other_shape: bool) -> tuple[int, ...]:
        return shapes_of(self.kinds[k], lengths) if other_shape else value.shape

    def _argument(self, used: Used, source: str, seed: int, longer: int) -> np.ndarray:
        """Return an argument for a function: a new array, an earlier argument, or a result."""
        k = used.spec.argument
        kind = self.kinds[k]
        like = used.values.get(k, self.values[k])
        if source in ("result", "borrowed") and not used.spec.mutable:
            held_arrays = [held.array for held in self.held] if source == "result" else []
            arrays = [*used.last_borrowed, *held_arrays]
            fitting = [array for array in arrays if array.dtype == kind.dtype and array.ndim == kind.rank]
            if fitting:
                return fitting[seed % len(fitting)]
        known = [held for held in self.arguments if held.array.dtype == kind.dtype and held.array.shape == like.shape]
        if source in ("same", "rewritten") and known:
            held = known[seed % len(known)]
            if source == "rewritten":
                held.array[...] = contents(kind, like.shape, seed)
                held.expected = held.array.copy()
            return held.array
        if like.ndim and not like.shape[0]:
            longer *= 2
        shape = (like.shape[0] + longer, *like.shape[1:]) if like.ndim else ()
        array = contents(kind, shape, seed)
        self.arguments = [*self.arguments[-5:], Held("an argument", array, array.copy())]
        return array

    def _expected(
        self, used: Used, argument: np.ndarray, index: int, times: int, values: Values | None = None
    ) -> tuple[list[np.ndarray], Values] | None:
        """Make calls of a model; return the last results and the next values, or None if a call raises an error."""
        state = dict(used.values if values is None else values)
        changed: Values = {}
        for step in range(times):
            try:
                results, following = used.model.call(state, argument, index)
            except (IndexError, ValueError) as error:
                if step:  # changes of the earlier calls persist, whether a simulator or a function made them
                    raise Undefined(f"step {step} raises {error}") from error
                return None
            state.update(following)
            changed.update(following)
        return results, changed

    def _in_order(
        self, calls: Sequence[Used], arguments: Sequence[np.ndarray], index: int, order: tuple[int, int]
    ) -> tuple[list[list[np.ndarray]], list[Values]] | None:
        """Make two calls of models in the given order; return results and final values, or None after an error."""
        states = {id(used.values): dict(used.values) for used in calls}
        results: list[list[np.ndarray]] = [[], []]
        for position in order:
            used = calls[position]
            expected = self._expected(used, arguments[position], index, 1, states[id(used.values)])
            if expected is None:
                return None
            results[position] = expected[0]
            states[id(used.values)].update(expected[1])
        return results, [states[id(used.values)] for used in calls]

    def _is_seen(self, used: Used) -> bool:
        """Return whether all variables that a function uses have the values of its model."""
        simulator = used.simulator

        def value_of(k: int) -> Any:
            return self.shared[k].get_value() if simulator is None else simulator.sim.get(self.shared[k])

        return all(np.array_equal(value_of(k), value) for k, value in used.values.items())

    def _take(self, used: Used, results: Any, expected: Any, what: str) -> None:
        """Compare the results of a call, keep them for later comparisons, and store the model's next values."""
        results = _listed(results)
        if expected is None:
            raise Differs(f"{what} does not raise: {used.spec}")
        used.last_borrowed = []
        for position, (ours, theirs, output) in enumerate(zip(results, expected[0], used.spec.outputs, strict=True)):
            _check(f"{what}, output {position}", ours, theirs, used.spec)
            if isinstance(ours, np.ndarray):
                if output.borrow:
                    used.last_borrowed.append(ours)
                else:
                    self.held.append(Held(f"output {position} of {used.way} {used.spec}", ours, theirs.copy()))
        del self.held[:-MOST_HELD]
        used.values.update({k: value.copy() for k, value in expected[1].items()})

    def _after_error(self, used: Used, expected: Any, error: type | None, raised: BaseException) -> None:
        """Check that an error was expected; if a function of Theano's own linkers raised it, set all variables."""
        if error is not None and isinstance(raised, error):
            pass
        elif expected is not None or not isinstance(raised, Exception):
            raise Differs(f"{used.way} raises {type(raised).__name__}: {raised}\n{used.spec}") from raised
        if used.is_of_host:
            for k, value in self.values.items():
                self.shared[k].set_value(value)


def _listed(results: Any) -> list[Any]:
    return list(results) if isinstance(results, list | tuple) else [results]


def _same(ours: Sequence[Any], theirs: Sequence[np.ndarray]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))


def _check(what: str, ours: Any, theirs: np.ndarray, spec: Spec | None = None) -> None:
    ours = np.asarray(ours)
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape or not np.array_equal(ours, theirs):
        end = "" if spec is None else f"\n{spec}"
        raise Differs(f"{what}: expected\n{theirs!r}\nseen\n{ours!r}{end}")
