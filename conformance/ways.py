"""The ways to run a suite: stock Theano, or Theano with parts of optdb enabled.

The option ``--way`` selects a way by name. The process that runs a suite enables the way once, before it imports the
suite's modules, because many of these modules read the default mode when they are imported. To add a way, add an entry
to `WAYS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

STOCK = "stock"


@dataclass(frozen=True)
class Way:
    """A way to run Theano's suites; `switch_on` is called before the first test module is imported."""

    name: str
    summary: str
    switch_on: Callable[[], object]


def _stock() -> None:
    """Leave the engine off, but import optdb, so that optdb's patches for Theano's import are the same in every way."""
    import optdb  # noqa: F401


def _topo() -> None:
    import optdb

    optdb.enable()


def _cache() -> None:
    import optdb

    optdb.cache.install()


def _both() -> None:
    _topo()
    _cache()


def _clinker() -> None:
    from optdb.host.theano.clinker import plug

    plug.install()


def _all() -> None:
    _both()
    _clinker()


def _tiers() -> None:
    import optdb

    optdb.enable(tiered=True)


def _changing() -> None:
    """Enable tiers; let functions change tiers before the first call or before the second call, in turn.

    Most tests call a function before its C code can be ready, so that few functions change tiers with `_tiers` alone.
    """
    import itertools
    import weakref

    _tiers()

    from theano.compile.function_module import Function

    import optdb

    call = Function.__call__
    countdown: weakref.WeakKeyDictionary[object, int] = weakref.WeakKeyDictionary()
    first = itertools.cycle((1, 0))

    def call_changing(self: Function, *args: object, **kwargs: object) -> object:
        left = countdown.get(self)
        if left is None:
            left = next(first)
        if left == 0:
            optdb.wait(self)
        countdown[self] = left - 1
        return call(self, *args, **kwargs)

    Function.__call__ = call_changing  # type: ignore[method-assign]  # for the rest of the process


def _linker() -> None:
    import optdb  # noqa: F401, I001  before Theano
    import theano

    theano.config.linker = "opencl"


def _everything() -> None:
    _all()
    _linker()


def _pytensor() -> None:
    import optdb.pytensor

    optdb.pytensor.enable()


def _pytensor_engine() -> None:
    """Make the engine also rewrite graphs below its minimum size, because most graphs of the suites are so small."""
    _pytensor()

    from optdb.pytensor import rewriting

    rewriting.LEAST_NODES = 0


WAYS: dict[str, Way] = {
    way.name: way
    for way in (
        Way(STOCK, "unmodified Theano; its differences from the baseline are flaky tests", _stock),
        Way("topo", "Theano's phases with optdb's engine: optdb.enable()", _topo),
        Way("clinker", "C code built by optdb, for --flags cxx=g++: optdb.clinker", _clinker),
        Way("cache", "equal ops are one object: optdb.cache.install()", _cache),
        Way("topo+cache", "both", _both),
        Way("all", "both, and C code built by optdb, for --flags cxx=g++", _all),
        Way("tiers", "nodes compute in Python until their C code is built: optdb.enable(tiered=True)", _tiers),
        Way(
            "changing",
            "tiers, for --flags cxx=g++: each function waits for its C code before its first or second call",
            _changing,
        ),
        Way("linker", "functions of the default mode on a device: the flag linker=opencl", _linker),
        Way("pytensor", "for --host pytensor: optdb.pytensor.enable()", _pytensor),
        Way("pytensor-engine", "the same, with the engine for graphs of any size", _pytensor_engine),
        Way("everything", "all of these at once; --flags cxx=g++ lets the host part be C code", _everything),
    )
}
