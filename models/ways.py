"""The ways to compile a model: stock Theano, optdb's engine, mode OPENCL, and SimulatorOCL.

A `Way` returns a `Compiled`, which can be called, and which has the graphs that it runs. The functions of all ways use
the same shared variables of a model, so `worker` resets these variables before each way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import theano
from theano.compile.mode import Mode

import optdb
from profiles.interpret import Interpreter
from profiles.models import Model

STOCK, ENGINE, OPENCL, SIMULATOR = "stock", "engine", "opencl", "simulator"


@dataclass(frozen=True)
class Compiled:
    """A compiled model.

    `sync` copies the values that calls have computed to Theano's shared variables. `explain` returns where each node
    runs. If it is called with arguments, it also returns the transfers of a call. `profile` is None if the way has no
    profiler.
    """

    call: Callable[..., Any]
    function: Any
    sync: Callable[[], None]
    explain: Callable[..., Any]
    profile: Callable[..., Any] | None = None


@dataclass(frozen=True)
class Way:
    """A named way to compile a model.

    `compile` takes a model, and a bool that says whether Theano's own linker, and not an interpreter, runs nodes on the
    host.
    """

    name: str
    summary: str
    compile: Callable[[Model, bool], Compiled]


@contextlib.contextmanager
def _stock_optimizer() -> Iterator[None]:
    optdb.disable()
    with theano.change_flags(cycle_detection="regular"):
        yield


def _host(model: Model, c_code: bool) -> Compiled:
    linker = theano.config.linker if c_code else Interpreter()
    function = _function(model, Mode(linker, "fast_run"))
    return Compiled(function, function, _nothing, _explainer(function))


def _stock(model: Model, c_code: bool) -> Compiled:
    with _stock_optimizer():
        return _host(model, c_code)


def _engine(model: Model, c_code: bool) -> Compiled:
    with optdb.enable():
        return _host(model, c_code)


def _opencl(model: Model, c_code: bool) -> Compiled:
    function = _function(model, optdb.mode(device="opencl"))
    return Compiled(function, function, _nothing, _explainer(function))


def _simulator(model: Model, c_code: bool) -> Compiled:
    with _stock_optimizer():
        # A simulator takes a compiled function, and never runs this function on the host.
        function = _function(model, Mode("py", "fast_run"))
        simulator = optdb.SimulatorOCL(function)
    return Compiled(simulator, function, simulator.sync_to_theano, simulator.report, simulator.profile)


def _function(model: Model, mode: Mode) -> Any:
    return theano.function(model.inputs, model.outputs, updates=model.updates, mode=mode, on_unused_input="ignore")


def _explainer(function: Any) -> Callable[..., Any]:
    return lambda *args: optdb.explain(function, *args)


def _nothing() -> None:
    """Do nothing, because calls have already updated Theano's shared variables."""


WAYS = {
    way.name: way
    for way in (
        Way(STOCK, "unmodified Theano: the reference", _stock),
        Way(ENGINE, "optdb's engine: optdb.enable()", _engine),
        Way(OPENCL, "the engine and the device: optdb.mode(device='opencl')", _opencl),
        Way(SIMULATOR, "stock's function on the device: optdb.SimulatorOCL(f)", _simulator),
    )
}
