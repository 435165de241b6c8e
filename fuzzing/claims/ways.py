"""The ways to compute the function of a `Case`: in mode OPENCL, by a simulator, or from an exported file."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import theano

import optdb
from fuzzing.claims.cases import Case, Graph
from fuzzing.profiles import context_like
from optdb.opencl.exporting import Untraceable

__all__ = ["WAYS", "OnHost", "Refused", "Way"]

#: Calls end if a shared variable has more elements than this.
_LARGEST_STATE = 1 << 12


class Refused(Exception):
    """Raised if a function cannot be computed for a known reason."""


class Way(Protocol):
    """A function with shared variables that can be called."""

    def call(self, arguments: Sequence[Any], times: int) -> list[Any]:
        """Call the function `times` times, and return the results of the last call."""

    def get(self, name: str) -> np.ndarray:
        """Return the value of a shared variable."""

    def set(self, name: str, value: np.ndarray) -> None:
        """Give a shared variable another value."""


class OnHost:
    """A function that Theano compiles in a given mode."""

    def __init__(self, case: Case, mode: theano.Mode) -> None:
        self._graph = Graph(case)
        self._function = self._graph.compile(mode)

    def call(self, arguments: Sequence[Any], times: int) -> list[Any]:
        for _ in range(times):
            results = self._function(*arguments)
            if any(var.get_value(borrow=True).size > _LARGEST_STATE for var in self._graph.shared.values()):
                raise Refused("a shared variable grows: if calls square its length, the next one needs all memory")
        return results

    def get(self, name: str) -> np.ndarray:
        return self._graph.shared[name].get_value()

    def set(self, name: str, value: np.ndarray) -> None:
        self._graph.shared[name].set_value(value)


class Simulated:
    """A simulator of the function; if `loops` is true, a single `call_n_times` makes all repetitions of a call."""

    def __init__(self, case: Case, device: str, loops: bool = False) -> None:
        self._graph = Graph(case)
        self.sim = optdb.SimulatorOCL(self._graph.compile(theano.Mode("py", "fast_run")), device)
        self._names = {var.name for var in self.sim.shared}
        self._loops = loops

    def call(self, arguments: Sequence[Any], times: int) -> list[Any]:
        if self._loops:
            return self.sim.call_n_times(times, *arguments)
        for _ in range(times):
            results = self.sim(*arguments)
        return results

    def get(self, name: str) -> np.ndarray:
        var = self._graph.shared[name]
        return self.sim.get(var) if name in self._names else var.get_value()

    def set(self, name: str, value: np.ndarray) -> None:
        var = self._graph.shared[name]
        if name in self._names:
            self.sim.set(var, value)
        else:
            var.set_value(value)


class Loaded:
    """A function that is exported to a file and loaded. The first call's arguments are the example."""

    def __init__(self, case: Case, device: str) -> None:
        self._simulated = Simulated(case, device)
        example = [argument.value for argument in case.arguments(case.calls[0])]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "function.optdb"
            try:
                self._simulated.sim.export(path, [tuple(example)])
            except (Untraceable, TypeError, ValueError, IndexError, AssertionError) as error:
                raise Refused(str(error)) from error
            self._function = optdb.load(path, context_like(device), build_in_child=False)
        self._names = {var.name for var in self._simulated.sim.shared}

    def call(self, arguments: Sequence[Any], times: int) -> list[Any]:
        for _ in range(times):
            try:
                results = self._function(*arguments)
            except ValueError as error:
                if "example" in str(error):  # the file has no trace for these shapes
                    raise Refused(str(error)) from error
                raise
        return results

    def get(self, name: str) -> np.ndarray:
        return self._function.get(name) if name in self._names else self._simulated.get(name)

    def set(self, name: str, value: np.ndarray) -> None:
        if name not in self._names:
            self._simulated.set(name, value)
            return
        if self._function.get(name).shape != value.shape and self._function.get(name).ndim == value.ndim:
            raise Refused("shared values of a file keep their shapes")
        self._function.set(name, value)


#: Maps a name to a function that takes a case and the name of a device, and returns the case's compiled function.
WAYS: dict[str, Callable[[Case, str], Way]] = {
    "mode": lambda case, device: OnHost(case, optdb.mode(device=device)),
    "simulator": Simulated,
    "loop": lambda case, device: Simulated(case, device, loops=True),
    "file": Loaded,
}
