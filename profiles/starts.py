"""Times processes with empty or full caches, from the start of the interpreter to a function's first calls.

The CPU seconds include those of compilers that the process starts.
"""

from __future__ import annotations

import functools
import itertools
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from profiles import isolated

__all__ = ["CACHES", "CPU_PARTS", "WALL_PARTS", "Start", "measure", "start"]

WALL_PARTS = ("import", "model", "compile", "calls")
"""Python and imports; the symbolic graph; ``theano.function``; calls of the function."""

CPU_PARTS = ("import", "model", "optimize", "link", "compilers", "calls")
"""The same, with ``theano.function`` in parts: rewriting the graph; the rest; and the processes that it starts."""

CACHES = ("cold", "warm")
"""Empty at the first start of a side; full of what the first start left at the second."""


@dataclass(frozen=True)
class Start:
    """The times of a new process with empty or full caches (one of `CACHES`).

    `cpu` maps each of `CPU_PARTS` to CPU seconds, and `wall` maps each of `WALL_PARTS` to wall seconds. `compilers` is
    the number of C compiler calls. `values` are the outputs of each call, as lists of numbers.
    """

    model: str
    side: str
    cache: str
    cpu: dict[str, float]
    wall: dict[str, float]
    compilers: int = 0
    values: list[list[Any]] = field(default_factory=list, repr=False)

    @property
    def cpu_total(self) -> float:
        """The sum of the CPU seconds of all parts."""
        return sum(self.cpu.values())

    @property
    def wall_total(self) -> float:
        """Wall seconds since the start of the process."""
        return sum(self.wall.values())


@dataclass(frozen=True)
class _Moment:
    """The time of the wall clock, and the CPU seconds that this process and its child processes have used so far."""

    wall: float
    own: float
    children: float

    @classmethod
    def now(cls) -> _Moment:
        own, children = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return cls(time.time(), own.ru_utime + own.ru_stime, children.ru_utime + children.ru_stime)


def start(name: str, began: float, calls: int) -> tuple[dict[str, float], dict[str, float], list[list[Any]]]:
    """Import Theano, build a model, compile it and call it; return `cpu`, `wall` and `values` of a `Start`.

    `began` is the time when the process was started. Each call depends on the updates of the previous calls.
    """
    import theano
    from theano.compile.function_module import FunctionMaker

    moments = [_Moment(began, 0.0, 0.0), _Moment.now()]
    from profiles import models

    model = models.build(name)
    moments.append(_Moment.now())
    optimizing = _Stopwatch()
    FunctionMaker.__init__ = optimizing.around(FunctionMaker.__init__)  # type: ignore[method-assign]  # to measure it
    function = theano.function(model.inputs, model.outputs, updates=model.updates)
    moments.append(_Moment.now())
    values = [[np.asarray(out, "float64").tolist() for out in function(*model.data)] for _ in range(calls)]
    moments.append(_Moment.now())
    pairs = list(itertools.pairwise(moments))
    imports, building, compiling, calling = (after.own - before.own for before, after in pairs)
    cpu = {
        "import": imports,
        "model": building,
        "optimize": optimizing.seconds,
        "link": compiling - optimizing.seconds,
        "compilers": moments[3].children,
        "calls": calling + moments[4].children - moments[3].children,
    }
    return cpu, {part: after.wall - before.wall for part, (before, after) in zip(WALL_PARTS, pairs)}, values


class _Stopwatch:
    """Adds up the CPU seconds of a method; of nested calls, only the outermost one counts."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth = 0

    def around(self, method: Callable[..., None]) -> Callable[..., None]:
        """Return a method that calls the given method, and adds the CPU seconds of the call."""

        @functools.wraps(method)
        def timed(*args: object, **options: object) -> None:
            self._depth += 1
            before = _Moment.now().own
            try:
                method(*args, **options)
            finally:
                self._depth -= 1
                if not self._depth:
                    self.seconds += _Moment.now().own - before

        return timed


def _ignore(*_: object) -> None:
    pass


def measure(
    name: str,
    sides: Mapping[str, str],
    flags: str = "floatX=float32",
    caches: Sequence[str] = CACHES,
    calls: int = 0,
    timeout: float | None = None,
    starting: Callable[[str, str], None] = _ignore,
    started: Callable[[Start], None] = _ignore,
) -> list[Start]:
    """Start a model in each configuration, with empty caches and again with the caches that this start has filled.

    `sides` maps the name of a configuration to its THEANO_FLAGS, and `flags` are flags for all configurations.
    `starting` is called before each start, and `started` after it. Raise `isolated.Failed` if a start fails, or takes
    longer than `timeout` seconds.
    """
    starts = []
    for side, own_flags in sides.items():
        with tempfile.TemporaryDirectory(prefix="optdb-start-") as made:
            folder = Path(made)
            env = caching_below(folder)
            all_flags = f"{flags},{own_flags},base_compiledir={folder / 'theano'}"
            for cache in caches:
                starting(side, cache)
                starts.append(_start(name, side, cache, all_flags, folder, env, calls, timeout))
                started(starts[-1])
    return starts


def _start(
    name: str,
    side: str,
    cache: str,
    flags: str,
    folder: Path,
    env: Mapping[str, str],
    calls: int,
    timeout: float | None,
) -> Start:
    before = compilers_started(folder)
    arguments = ("profiles.starts:start", name, time.time(), calls)
    try:
        cpu, wall, values = isolated.call(*arguments, flags=flags, env=env, timeout=timeout)
    except isolated.Failed as failure:
        raise isolated.Failed(f"{side}, {cache} caches: {failure}") from None
    return Start(name, side, cache, cpu, wall, compilers_started(folder) - before, values)


def caching_below(folder: Path) -> dict[str, str]:
    """Return environment variables that put caches below a folder, and let starts of the C compiler be counted."""
    names = {"POCL_CACHE_DIR": "pocl", "XDG_CACHE_HOME": "xdg", "CUDA_CACHE_PATH": "cuda"}
    caches = {variable: str(folder / name) for variable, name in names.items()}
    return {**caches, "PATH": _search_path_with_counter(folder)}


def compilers_started(folder: Path) -> int:
    """Return how often the C compiler was started in the environment that `caching_below` returns for a folder."""
    log = folder / "compilers"
    return len(log.read_text().splitlines()) if log.exists() else 0


def _search_path_with_counter(folder: Path) -> str:
    """Write a wrapper of the compiler that logs each call; return a search path in which its folder is first."""
    compiler = shutil.which("g++")
    if compiler is None:
        return os.environ["PATH"]
    script = folder / "bin" / "g++"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\necho >> {folder / "compilers"}\nexec {compiler} "$@"\n')
    script.chmod(0o755)
    return os.pathsep.join([str(script.parent), os.environ["PATH"]])
