"""The optimizers that are compared: three of Theano's own, and optdb's.

A `Way` consists of a mode, whose optimizer is queried, and a context. ``measure`` enters the context for each run, so
that several optimizers can take turns in one process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

import theano
from theano.compile.mode import Mode

import optdb

BASELINES = ("fast_run", "fast", "o3")


@dataclass(frozen=True)
class Way:
    """An optimizer: the mode that is queried for it, and a context in which each run is made."""

    name: str
    mode: Callable[[], Mode]
    context: Callable[[], AbstractContextManager]


def _fast_run() -> Mode:
    return theano.compile.mode.get_mode("FAST_RUN")


def stock(baseline: str = "fast_run") -> Way:
    """Return Theano's own optimizer.

    The baseline is one of three: ``fast_run``, ``fast`` (``fast_run`` with ``cycle_detection=fast``), or ``o3``, which
    does nothing in place.
    """
    if baseline not in BASELINES:
        raise ValueError(f"no baseline is named {baseline!r}; known are: {', '.join(BASELINES)}")

    @contextlib.contextmanager
    def context() -> Iterator[None]:
        optdb.disable()
        cycles = "fast" if baseline == "fast" else "regular"
        with theano.change_flags(cycle_detection=cycles):
            yield

    mode = (lambda: Mode(theano.config.linker, "o3")) if baseline == "o3" else _fast_run
    return Way("stock", mode, context)


def topological() -> Way:
    """Return Theano's ``fast_run`` with optdb's engine in its phases."""
    return Way("optdb", _fast_run, optdb.enable)


def with_op_cache(way: Way) -> Way:
    """Return the same optimizer with optdb's op cache installed, which makes equal ops the same object."""

    @contextlib.contextmanager
    def context() -> Iterator[None]:
        with way.context(), optdb.cache.install():
            yield

    return Way(f"{way.name} + op cache", way.mode, context)
