"""Functions whose state no other function uses: state in a file, in a private input, or in variables on the device.

Each function is called several times with arguments that may be invalid, and compared with its model after each call.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import theano
import theano.tensor as tt
from hypothesis import strategies as st

import optdb
from fuzzing.profiles import context_like
from fuzzing.states.expressions import Kind, Undefined, apply_numpy, apply_theano
from fuzzing.states.model import Model
from fuzzing.states.specs import Spec
from optdb.opencl import contexts
from optdb.opencl.exporting import Untraceable
from optdb.opencl.registry import context_of
from optdb.runtime.errors import ShapeError

__all__ = ["Attempt", "Stateful", "attempts", "of_file", "on_device", "with_private_state"]

#: The errors that a call with wrong arguments may raise.
_ERRORS = (IndexError, ValueError, TypeError)


@dataclass(frozen=True)
class Attempt:
    """The arguments of a call: the argument's seed, its length beyond that of the shared variable, and the index."""

    seed: int
    index: int
    longer: int


def attempts() -> st.SearchStrategy[list[Attempt]]:
    """Return a strategy that draws consecutive calls."""
    attempt = st.builds(Attempt, st.integers(0, 99), st.integers(-1, 4), st.sampled_from([0, 0, 0, 1]))
    return st.lists(attempt, min_size=1, max_size=4)


@dataclass
class Stateful:
    """A function with its model and the model's values; `get` returns the function's current value of a variable."""

    call: Callable[[np.ndarray, int], Any]
    model: Callable[[dict[int, np.ndarray], np.ndarray, int], tuple[list[np.ndarray], dict[int, np.ndarray]]]
    get: Callable[[int], np.ndarray]
    values: dict[int, np.ndarray]
    #: Errors that a valid call may raise.
    refuses: tuple[type[Exception], ...] = ()

    def difference(self, argument: np.ndarray, index: int) -> str | None:
        """Call the function; return how it differs from the model; None if it agrees or the call is undefined."""
        try:
            expected = self.model(self.values, argument, index)
        except Undefined:
            return None
        except (IndexError, ValueError):
            expected = None
        try:
            results = self.call(argument, index)
        except _ERRORS as error:
            if expected is not None and not isinstance(error, self.refuses):
                return f"raises {type(error).__name__}: {error}"
        else:
            if expected is None:
                return "does not raise"
            results = results if isinstance(results, list | tuple) else [] if results is None else [results]
            for index, (ours, theirs) in enumerate(zip(results, expected[0], strict=True)):
                if not _equal(ours, theirs):
                    return f"output {index}: expected\n{theirs!r}\nseen\n{ours!r}"
            self.values.update(expected[1])
        for k, theirs in self.values.items():
            ours = self.get(k)
            if not _equal(ours, theirs):
                return f"state {k}, after a call: expected\n{theirs!r}\nseen\n{ours!r}"
        return None


def _equal(ours: Any, theirs: np.ndarray) -> bool:
    ours = np.asarray(ours)
    return ours.dtype == theirs.dtype and np.array_equal(ours, theirs)


def of_file(
    function: Any, model: Model, values: dict[int, np.ndarray], example: tuple[np.ndarray, int], device: str
) -> Stateful | None:
    """Export a function with a simulator, and return the loaded function; return None if it cannot be exported."""
    simulator = optdb.SimulatorOCL(function, device)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "function.optdb"
        try:
            simulator.export(path, [example])
        except (Untraceable, *_ERRORS):
            return None  # the function has a host step, or its example raises an error
        file = optdb.load(path, context_like(device), build_in_child=False)
    # An exported file only contains the variables that are still used after optimization.
    known = {k: value for k, value in values.items() if f"s{k}" in file.names}

    def call_model(state: dict[int, np.ndarray], argument: np.ndarray, index: int) -> Any:
        return model.call({**values, **state}, argument, index)

    return Stateful(file, call_model, lambda k: file.get(f"s{k}"), known, refuses=(ShapeError,))


def with_private_state(
    kind: Kind, operations: Sequence[str], value: np.ndarray, way: str, device: str
) -> Stateful | None:
    """Return a function with a private state; each call returns the state, and replaces it by the next state."""
    argument, index, state = kind.symbolic("a"), tt.iscalar("i"), kind.symbolic("p")
    following = apply_theano(tuple(operations), state, kind, argument, index)
    mode = optdb.mode(device=device) if way == "mode" else "FAST_COMPILE"
    inputs = [argument, index, theano.In(state, value=value.copy(), update=following, name="p")]
    function = theano.function(inputs, state, mode=mode, on_unused_input="ignore")
    call = function if way == "mode" else optdb.SimulatorOCL(function, device)

    def call_model(state: dict[int, np.ndarray], argument: np.ndarray, index: int) -> Any:
        return [state[0]], {0: apply_numpy(tuple(operations), state[0], kind, argument, index)}

    # The private state is only visible in results, because each call returns the state that the previous call left.
    return Stateful(call, call_model, lambda _: values[0], values := {0: value.copy()})


def on_device(
    spec: Spec, kinds: Sequence[Kind], values: dict[int, np.ndarray], compile_with: Callable[..., Any], device: str
) -> Stateful:
    """Return a function whose shared variables are device arrays."""
    with contexts.as_default(context_of(device)) as name:
        shared = [theano.shared(values[k].copy(), f"s{k}", target=name) for k in range(len(kinds))]
        function = compile_with(spec, kinds, shared, "target", device)
    model = Model(spec, kinds, frozenset())
    return Stateful(function, model.call, lambda k: shared[k].get_value(), dict(values))
