"""Compiles the functions of a program in the ways that their switches select."""

from __future__ import annotations

import contextlib
import pickle
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import cloudpickle
import numpy as np
import theano
from theano.compile.mode import predefined_linkers

import optdb
from fuzzing.profiles import context_like
from fuzzing.programs import Graph, Program
from fuzzing.switches import Compilation, Surroundings, in_force
from optdb.host.api.device_linker import DeviceLinker
from optdb.opencl import contexts
from optdb.opencl.exporting import Untraceable
from optdb.opencl.linking.planned_vm import PlannedVM
from optdb.opencl.registry import context_of
from optdb.runtime.commands import CommandList
from optdb.runtime.scripts import Script, can_script

__all__ = ["REFERENCE", "Compiled", "Functions", "Refused", "reference"]

REFERENCE = theano.Mode("py", None)


class Refused(Exception):
    """Raised if a function cannot be computed for a known reason."""


class Compiled:
    """A compiled function that uses the program's shared variables or copies of these variables."""

    def __init__(self, function: Any, shared: Sequence[Any], tiered: str = "off") -> None:
        self._function, self._shared = function, shared
        #: The simulator or file that holds the values of the variables with the names `_names`.
        self._holder: Any = None
        self._names: Collection[str | None] = ()
        self._waits = tiered == "after a call"
        if tiered == "before calls":
            optdb.wait(function)

    def call(self, arguments: Sequence[np.ndarray], times: int) -> list[Any]:
        """Call the function several times, and return the results of the last call."""
        for _ in range(times):
            results = self._function(*map(np.array, arguments)) if times > 1 else self._function(*arguments)
            if self._waits:
                self._waits = False
                optdb.wait(self._function)
        return results

    def get(self, index: int) -> np.ndarray:
        """Return a shared value."""
        var = self._shared[index]
        return self._holder.get(var.name) if var.name in self._names else var.get_value()

    def set(self, index: int, value: np.ndarray) -> None:
        """Give a shared variable another value."""
        var = self._shared[index]
        if var.name in self._names:
            self._holder.set(var.name, value)
        else:
            var.set_value(value)

    def take(self, shared: Sequence[Any]) -> None:
        """Copy the values of the program's shared variables to the function."""
        for index, var in enumerate(shared):
            if var is not self._shared[index]:
                self.set(index, var.get_value())

    def give(self, shared: Sequence[Any]) -> None:
        """Copy the values of the function's variables to the program's shared variables."""
        for index, var in enumerate(shared):
            if var is not self._shared[index]:
                var.set_value(self.get(index))


class Simulated(Compiled):
    """A simulator of a function; with `loops`, a single `call_n_times` makes all repetitions of a call."""

    def __init__(
        self, function: Any, shared: Sequence[Any], device: str, pickled: bool = False, loops: bool = False
    ) -> None:
        sim = optdb.SimulatorOCL(function, device)
        if pickled:
            sim, shared = _through_pickle(pickle, sim, shared)
        super().__init__(sim, shared)
        self.sim = self._holder = sim
        self._loops = loops
        # Variables are identified by name, because a copied function has new variables with the same names.
        self._names = {var.name for var in sim.shared}

    def call(self, arguments: Sequence[np.ndarray], times: int) -> list[Any]:
        return self.sim.call_n_times(times, *arguments) if self._loops else super().call(arguments, times)

    def take(self, shared: Sequence[Any]) -> None:
        super().take(shared)
        if names := self._in_common(shared):  # without these names, the simulator would copy all variables
            self.sim.sync_from_theano(*names)

    def give(self, shared: Sequence[Any]) -> None:
        if names := self._in_common(shared):
            self.sim.sync_to_theano(*names)
        super().give(shared)

    def _in_common(self, shared: Sequence[Any]) -> list[str]:
        """Return the names of the program's variables that the simulator uses itself, instead of copies of them."""
        same = [var.name for var, own in zip(shared, self._shared, strict=True) if var is own]
        return [name for name in same if name in self._names]


class Loaded(Compiled):
    """A function that a simulator has exported to a file; `examples` are the arguments of example calls."""

    def __init__(self, simulated: Simulated, shared: Sequence[Any], examples: list[tuple], device: str) -> None:
        super().__init__(None, shared)
        self._names = {var.name for var in simulated.sim.shared}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "function.optdb"
            try:
                simulated.sim.export(path, examples)
            except Untraceable as error:
                raise Refused(str(error)) from error
            self._function = self._holder = optdb.load(path, context_like(device), build_in_child=False)

    def call(self, arguments: Sequence[np.ndarray], times: int) -> list[Any]:
        try:
            return super().call(arguments, times)
        except ValueError as error:
            if "example" in str(error):  # the file has no trace for these shapes
                raise Refused(str(error)) from error
            raise

    def set(self, index: int, value: np.ndarray) -> None:
        if self._shared[index].name in self._names and self.get(index).shape != value.shape:
            raise Refused("shared values of a file keep their shapes")
        super().set(index, value)

    def take(self, shared: Sequence[Any]) -> None:
        for index, var in enumerate(shared):
            self.set(index, var.get_value())

    def give(self, shared: Sequence[Any]) -> None:
        for index, var in enumerate(shared):
            var.set_value(self.get(index))


class Functions:
    """The functions of a program, which have the same shared variables; each is compiled according to its switches.

    Each simulator and each unpickled function has separate values, which are copied to the function that is called
    next.
    """

    def __init__(
        self, program: Program, surroundings: Surroundings, compilations: Sequence[Compilation], device: str
    ) -> None:
        self._program, self._surroundings, self._compilations = program, surroundings, compilations
        self._device = device
        with self._compiling(surroundings.op_cache_for_graph == "on", False, {}):
            try:
                self.graph = Graph(program, self._target(), tested=surroundings.test_values != "off")
                for var in self.graph.shared:
                    var.tag.is_scratch = surroundings.next_values == "early"
            except Exception as error:
                if surroundings.test_values == "off":
                    raise
                raise Refused(f"test values: {error}") from error
        self._ways: dict[int, Compiled] = {}
        self._turn: Compiled | None = None
        if surroundings.compiled == "before calls":
            for number in sorted({call.function for call in program.calls}):
                self._compiled(number)

    def _target(self) -> Any:
        return context_of(self._device) if self._surroundings.shared == "device" else "cpu"

    @contextlib.contextmanager
    def _compiling(self, op_cache: bool, engine: bool, flags: dict[str, Any]) -> Iterator[None]:
        ours = {
            "floatX": self._surroundings.float_dtype,
            "compute_test_value": self._surroundings.test_values,
            "compute_test_value_opt": self._surroundings.test_values_of_rewriters,
        }
        with in_force(op_cache, engine, {**ours, **flags}):
            yield

    def _compiled(self, number: int) -> Compiled:
        """Return a compiled function; compile it at the first request."""
        if number not in self._ways:
            chosen = self._compilations[number]
            with self._compiling(chosen.op_cache == "on", chosen.engine == "on", chosen.flags()):
                self._ways[number] = self._make(number, chosen)
        return self._ways[number]

    def _make(self, number: int, chosen: Compilation) -> Compiled:
        function, shared = _ORIGINS[chosen.origin](self._function(number, chosen), self.graph.shared)
        if chosen.way == "function":
            return Compiled(function, shared, chosen.tiered)
        # `call_n_times` passes the same arrays to each repetition, so the function must not overwrite them.
        loops = chosen.way == "loop" and not any(leaf.mutable for leaf in self._program.inputs)
        simulated = Simulated(function, shared, self._device, chosen.way == "pickled simulator", loops)
        if chosen.way != "file":
            return simulated
        calls = [call for call in self._program.calls if call.function == number]
        # A trace may also be valid for shapes that differ from those of its example. The arguments of the first call
        # are therefore an example, and those of the last call if their sizes differ.
        examples = [calls[0], *(call for call in calls[-1:] if call.sizes != calls[0].sizes)]
        arguments = [tuple(self._program.arguments(call)) for call in examples]
        return Loaded(simulated, shared, arguments, self._device)

    def _function(self, number: int, chosen: Compilation) -> Any:
        """Compile a function; if Theano's own optimizer rejects it, compile it with the engine.

        Theano rejects a function that returns an input and, more than once, the length of this input. An assertion in
        Theano's ShapeFeature may fail when Theano copies a result that is a constant of one element. Theano's loop
        fusion mistakes an empty test value for that of a scalar.
        """
        # With Theano's own linkers, the host part of a function may return an argument that it has overwritten.
        mutable = self._surroundings.shared == "host" and chosen.mode != "lifted"
        with contextlib.ExitStack() as stack:
            if chosen.mode == "lifted":
                stack.enter_context(contexts.as_default(context_of(self._device)))
            mode = _mode(chosen, self._device)
            try:
                return self.graph.compile(number, mode, mutable)
            except (theano.gof.InconsistencyError, AssertionError, TypeError) as error:
                if isinstance(error, TypeError) and "(value=[])" not in str(error):
                    raise
                if chosen.engine == "on" or chosen.mode in ("TOPO", "OPENCL"):
                    raise
                stack.enter_context(optdb.enable())
                return self.graph.compile(number, mode, mutable)

    def of(self, number: int) -> Compiled:
        """Return the function to call next; copy to it the values that the previously called function left."""
        way = self._compiled(number)
        if way is not self._turn:
            if self._turn is not None:
                self._turn.give(self.graph.shared)
            way.take(self.graph.shared)
            self._turn = way
        return way

    def call(self, number: int, arguments: Sequence[np.ndarray], times: int) -> list[Any]:
        """Call a function several times with its flags set; return the results of the last call.

        Raise `Refused` if C code rejects a product of empty matrices.
        """
        chosen = self._compilations[number]
        scripted = scripted_beginnings() if chosen.first_commands == "script" else contextlib.nullcontext()
        with theano.change_flags(**chosen.flags()), scripted:
            try:
                return self.of(number).call(arguments, times)
            except ValueError as error:
                if "some matrix has no unit stride" in str(error):
                    raise Refused(str(error)) from error
                raise


@contextlib.contextmanager
def scripted_beginnings() -> Iterator[None]:
    """Within the block, let a `Script` enqueue the first commands of each call, as in calls on several devices."""
    call = PlannedVM.__call__

    def begun(machine: PlannedVM, before: Any = None) -> None:
        call(machine, before or _enqueue_by_script)

    with mock.patch.object(PlannedVM, "__call__", begun):
        yield


def _enqueue_by_script(commands: CommandList) -> bool:
    if not commands or not can_script() or commands.needs_python:
        return False
    script = Script()
    script.enqueue(commands)
    script.run()
    return True


def reference(program: Program, float_dtype: str) -> Functions:
    """Return a program's functions, compiled for Theano's Python code without optimization."""
    return _Reference(program, Surroundings(float_dtype=float_dtype), [Compilation()] * 2, "cpu")


class _Reference(Functions):
    def _function(self, number: int, chosen: Compilation) -> Any:
        return self.graph.compile(number, REFERENCE)


def _mode(chosen: Compilation, device: str) -> theano.Mode:
    """Return the mode in which a function is compiled."""
    if chosen.mode == "OPENCL":
        return optdb.mode(device=device)
    mode = theano.Mode(_linker(chosen, device), "fast_compile" if chosen.mode == "fast_compile" else "fast_run")
    if chosen.mode == "TOPO":
        return optdb.mode(mode)
    # Setting the flag `optdb.device` has the same effect.
    return mode.including("opencl") if chosen.mode == "lifted" else mode


def _linker(chosen: Compilation, device: str) -> Any:
    if chosen.linker == "opencl":
        return DeviceLinker(device)
    return predefined_linkers[chosen.linker].clone(allow_gc=chosen.allow_gc == "on")


def _swapped(function: Any, shared: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
    """Return a copy of a function that uses other shared variables, and these variables."""
    used = {id(item.variable) for item in function.maker.inputs}
    swap = {var: _like(var) for var in shared if id(var) in used}
    return function.copy(swap=swap), [swap.get(var, var) for var in shared]


def _like(var: Any) -> Any:
    """Return a new shared variable with the same name, type and value."""
    return theano.shared(var.get_value(), var.name, target=getattr(var.type, "context_name", "cpu"))


def _through_pickle(module: Any, computed: Any, shared: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
    """Pickle and unpickle a function or a simulator; return the new object and its shared variables."""
    try:
        content = module.dumps((computed, list(shared)))
    except TypeError as error:
        # If outer products run in Python, Theano's linkers put a SciPy function into the graph that cannot be pickled.
        if "'fortran' object" in str(error):
            raise Refused(str(error)) from error
        raise
    return pickle.loads(content)


def _pickled(module: Any) -> Callable[[Any, Sequence[Any]], tuple[Any, Sequence[Any]]]:
    return lambda function, shared: _through_pickle(module, function, shared)


#: For each `origin`, a Python function that takes a compiled function and its shared variables, and returns the
#: function to call and its variables.
_ORIGINS: dict[str, Callable[[Any, Sequence[Any]], tuple[Any, Sequence[Any]]]] = {
    "compiled": lambda function, shared: (function, shared),
    "copied": lambda function, shared: (function.copy(), shared),
    "swapped": _swapped,
    "pickled": _pickled(pickle),
    "cloudpickled": _pickled(cloudpickle),
}
