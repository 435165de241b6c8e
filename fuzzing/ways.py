"""The ways in which a program is computed: each gives something to call, with shared values to be read and set."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import theano

import optdb
from fuzzing.programs import Graph, Program
from optdb.opencl import contexts
from optdb.opencl.exporting import Untraceable
from optdb.opencl.registry import context_of

__all__ = ["REFERENCE", "WAYS", "Refused", "Way"]

REFERENCE = theano.Mode("py", None)


class Refused(Exception):
    """A way cannot compute the program, and says so by name."""


class Way(Protocol):
    """A function, computed in one way."""

    def call(self, arguments: Sequence[np.ndarray], times: int) -> list[Any]:
        """Call the function some times, and return what the last call does."""

    def get(self, place: int) -> np.ndarray:
        """Return a shared value."""

    def set(self, place: int, value: np.ndarray) -> None:
        """Give a shared variable another value."""


class Compiled:
    """A function compiled by Theano in some mode.

    Parameters
    ----------
    program : Program
        Which function.
    mode : theano.Mode
        How it is compiled.
    target : str
        Where its shared variables are, see `Graph`.
    """

    def __init__(self, program: Program, mode: theano.Mode, target: str = "cpu") -> None:
        self._graph = Graph(program, target)
        # Theano's own host part may return an argument that it has overwritten.
        self._function = self._graph.compile(mode, mutable=target == "cpu")

    def call(self, arguments: Sequence[np.ndarray], times: int) -> list[Any]:
        for _ in range(times):
            results = self._function(*map(np.array, arguments)) if times > 1 else self._function(*arguments)
        return results

    def get(self, place: int) -> np.ndarray:
        return self._graph.shared[place].get_value()

    def set(self, place: int, value: np.ndarray) -> None:
        self._graph.shared[place].set_value(value)


def _for_the_host(graph: Graph) -> Any:
    """Compile by Theano's own optimizer; what that refuses, by the engine.

    Theano refuses functions that return an input and, more than once, its length; and where it copies a result that is
    a constant of one element, an assertion of its ShapeFeature may fail.
    """
    mode = theano.Mode("py", "fast_run")
    try:
        return graph.compile(mode)
    except (theano.gof.InconsistencyError, AssertionError):
        with optdb.enable():
            return graph.compile(mode)


class Copied(Compiled):
    """A copy of a function, as `Function.copy` makes it of the optimized graph."""

    def __init__(self, program: Program, mode: theano.Mode) -> None:
        super().__init__(program, mode)
        self._function = self._function.copy()


def _of_device(program: Program, device: str) -> Compiled:
    """Return a function of a program that has its shared variables on a device."""
    with contexts.as_default(context_of(device)) as name:
        return Compiled(program, _lifting(), name)


def _lifting() -> theano.Mode:
    """Return Theano's mode in which graphs go to a device, as with the flag `optdb.device`."""
    return theano.compile.get_default_mode().including("opencl")


class Simulated:
    """A simulator of a function.

    Parameters
    ----------
    program : Program
        Which function.
    device : str
        Where.
    loops : bool
        Whether several calls are one of `call_n_times`.
    lifted : bool
        Whether the function was compiled for the device already, and not for the host.
    """

    def __init__(self, program: Program, device: str, loops: bool = False, lifted: bool = False) -> None:
        if lifted:
            with contexts.as_default(context_of(device)) as name:
                self._graph = Graph(program, name)
                function = self._graph.compile(_lifting())
        else:
            self._graph = Graph(program)
            function = _for_the_host(self._graph)
        self.sim = optdb.SimulatorOCL(function, device)
        used = set(map(id, self.sim.shared))
        self._used = [id(var) in used for var in self._graph.shared]
        # `call_n_times` has always the same arguments, unless the function may change them.
        self._loops = loops and not any(leaf.mutable for leaf in program.inputs)

    def call(self, arguments: Sequence[np.ndarray], times: int) -> list[Any]:
        if self._loops:
            return self.sim.call_n_times(times, *arguments)
        for _ in range(times):
            results = self.sim(*map(np.array, arguments)) if times > 1 else self.sim(*arguments)
        return results

    def get(self, place: int) -> np.ndarray:
        var = self._graph.shared[place]
        return self.sim.get(var) if self._used[place] else var.get_value()

    def set(self, place: int, value: np.ndarray) -> None:
        var = self._graph.shared[place]
        if self._used[place]:
            self.sim.set(var, value)
        else:
            var.set_value(value)


class Loaded:
    """An exported file, loaded again.

    Parameters
    ----------
    program : Program
        Which function.
    device : str
        Where.
    """

    def __init__(self, program: Program, device: str) -> None:
        self._simulated = Simulated(program, device)
        sim = self._simulated.sim
        self._names = {var.name for var in sim.shared}
        for place, value in program.assignments(0).items():
            self._simulated.set(place, value)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "function.optdb"
            try:
                sim.export(path, [tuple(program.arguments(call)) for call in program.calls[:1]])
            except Untraceable as error:
                raise Refused(str(error)) from error
            self._function = optdb.load(path, device, build_in_child=False)

    def call(self, arguments: Sequence[np.ndarray], times: int) -> list[Any]:
        for _ in range(times):
            try:
                results = self._function(*arguments)
            except ValueError as error:
                if "example" in str(error):  # no trace holds for such shapes
                    raise Refused(str(error)) from error
                raise
        return results

    def get(self, place: int) -> np.ndarray:
        name = f"s{place}"
        return self._function.get(name) if name in self._names else self._simulated.get(place)

    def set(self, place: int, value: np.ndarray) -> None:
        name = f"s{place}"
        if name not in self._names:
            self._simulated.set(place, value)
            return
        if self._function.get(name).shape != value.shape:
            raise Refused("shared values of a file keep their shapes")
        self._function.set(name, value)


#: Way to what makes it, of a program and a device.
WAYS: dict[str, Callable[[Program, str], Way]] = {
    "mode": lambda program, device: Compiled(program, optdb.mode(device=device)),
    "copy": lambda program, device: Copied(program, optdb.mode(device=device)),
    "device": _of_device,
    "simulator": Simulated,
    "again": lambda program, device: Simulated(program, device, lifted=True),
    "loop": lambda program, device: Simulated(program, device, loops=True),
    "file": Loaded,
}
