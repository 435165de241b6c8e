"""Measures theano.function as a whole: from the start of a process to a function, with empty caches and with full ones.

`start` runs in the new process and takes its parts apart; `measure` starts it for Theano alone and for optdb, each with
a compiledir and a cache of its own, and with a compiler in front of the true one that counts how often it is called.
Seconds are those of processors, of the process and of the compilers that it starts, and those of the clock.
"""

from __future__ import annotations

import functools
import json
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table

from profiles import isolated
from profiles.cold import CACHES, caches
from profiles.report import OPTDB, STOCK, geometric_mean

PARTS = ("import", "model", "optimize", "link", "compilers")
"""What a start consists of: Python and imports; the symbolic graph; rewriting it; the rest of ``theano.function``; and
the processes that it starts."""

FLAGS = {STOCK: "optdb.topo=False,optdb.clinker=False", OPTDB: "optdb.topo=True"}


@dataclass(frozen=True)
class Start:
    """One start of a process.

    Parameters
    ----------
    model, side, cache
        What was started, for whom (`STOCK`, `OPTDB`), and which of `CACHES`.
    cpu
        Seconds of processors, for each of `PARTS`.
    wall
        Seconds of the clock, from the start of the process.
    compilers
        How often the compiler was called.
    """

    model: str
    side: str
    cache: str
    cpu: dict[str, float]
    wall: float
    compilers: int

    @property
    def total(self) -> float:
        """Seconds of processors, of all parts."""
        return sum(self.cpu.values())


def start(name: str, began: float) -> tuple[dict[str, float], float]:
    """Import Theano, build a model and compile it.

    Parameters
    ----------
    name
        Of the model.
    began
        When the process was started, as `time.time` says it.

    Returns
    -------
    dict
        CPU seconds of each of `PARTS`.
    float
        Seconds of the clock.
    """
    import theano
    from theano.compile.function_module import FunctionMaker

    times = [_own()]
    from profiles import models

    model = models.build(name)
    times.append(_own())
    optimizing = _Stopwatch()
    FunctionMaker.__init__ = optimizing.around(FunctionMaker.__init__)
    theano.function(model.inputs, model.outputs, updates=model.updates)
    times.append(_own())
    wall = time.time() - began
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = (
        *(times[0], times[1] - times[0], optimizing.seconds, times[2] - times[1] - optimizing.seconds),
        children.ru_utime + children.ru_stime,
    )
    return dict(zip(PARTS, seconds, strict=True)), wall


def _own() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class _Stopwatch:
    """Adds up the CPU seconds of a method, of the outermost of nested calls."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth = 0

    def around(self, method: Callable[..., None]) -> Callable[..., None]:
        """Return the method with the stopwatch around it."""

        @functools.wraps(method)
        def timed(*args: object, **options: object) -> None:
            self._depth += 1
            before = _own()
            try:
                method(*args, **options)
            finally:
                self._depth -= 1
                if not self._depth:
                    self.seconds += _own() - before

        return timed


def measure(name: str, timeout: float | None = None, tell: Callable[[str], None] = lambda step: None) -> list[Start]:
    """Start a model on both sides: from empty caches, and again from what the first start left.

    Parameters
    ----------
    name
        Of the model.
    timeout
        Seconds that a start may take.
    tell
        Called with the name of each step that is finished.

    Raises
    ------
    isolated.Failed
        If a start fails, or takes too long.
    """
    starts = []
    for side, flags in FLAGS.items():
        with tempfile.TemporaryDirectory(prefix="optdb-whole-") as made:
            folder = Path(made)
            env = {**caches(folder), "PATH": _counting(folder)}
            for cache in CACHES:
                starts.append(_start(name, side, cache, f"floatX=float32,{flags}", folder, env, timeout))
                tell(f"{side}, {cache}")
    return starts


def _start(
    name: str, side: str, cache: str, flags: str, folder: Path, env: dict[str, str], timeout: float | None
) -> Start:
    log = folder / "compilers"
    log.write_text("")
    flags = f"{flags},base_compiledir={folder / 'theano'}"
    try:
        cpu, wall = isolated.call("profiles.whole:start", name, time.time(), flags=flags, env=env, timeout=timeout)
    except isolated.Failed as failure:
        raise isolated.Failed(f"{side}, {cache} caches: {failure}") from None
    return Start(name, side, cache, cpu, wall, len(log.read_text().splitlines()))


def _counting(folder: Path) -> str:
    """Put a compiler that writes a line for each call in front of the true one; return the search path."""
    script = folder / "bin" / "g++"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\necho >> {folder / "compilers"}\nexec {shutil.which("g++")} "$@"\n')
    script.chmod(0o755)
    return os.pathsep.join([str(script.parent), os.environ["PATH"]])


def render(starts: Sequence[Start]) -> RenderableType:
    """Return a table for each of `CACHES`."""
    return Group(*(_table(starts, cache) for cache in CACHES))


def _table(starts: Sequence[Start], cache: str) -> Table:
    pairs = _pairs(starts, cache)
    table = Table(
        title=f"From the start of a process to a function, {cache} caches",
        caption="CPU seconds with those of compilers; stock's first where two numbers stand together",
        show_footer=True,
    )
    cpu_mean = geometric_mean(stock.total / ours.total for stock, ours in pairs)
    wall_mean = geometric_mean(stock.wall / ours.wall for stock, ours in pairs)
    table.add_column("model", footer="geometric mean")
    for part in PARTS:
        table.add_column(part, justify="right")
    table.add_column("whole", justify="right")
    table.add_column("ratio", justify="right", footer=f"{cpu_mean:.1f}x")
    table.add_column("wall", justify="right")
    table.add_column("ratio", justify="right", footer=f"{wall_mean:.1f}x")
    table.add_column("compiler runs", justify="right")
    for stock, ours in pairs:
        table.add_row(
            stock.model,
            *(f"{stock.cpu[part]:.1f} / {ours.cpu[part]:.1f}" for part in PARTS),
            f"{stock.total:.1f} / {ours.total:.1f}",
            f"{stock.total / ours.total:.1f}x",
            f"{stock.wall:.0f} / {ours.wall:.0f}",
            f"{stock.wall / ours.wall:.1f}x",
            f"{stock.compilers} / {ours.compilers}",
        )
    return table


def _pairs(starts: Sequence[Start], cache: str) -> list[tuple[Start, Start]]:
    found = {(start.model, start.side): start for start in starts if start.cache == cache}
    names = dict.fromkeys(model for model, _ in found)
    return [(found[name, STOCK], found[name, OPTDB]) for name in names if {(name, STOCK), (name, OPTDB)} <= set(found)]


def write_json(starts: Sequence[Start], path: Path) -> None:
    """Write all numbers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([{**asdict(start), "total": start.total} for start in starts], indent=1))


def write_plot(starts: Sequence[Start], path: Path) -> None:
    """Draw the parts of each start as stacked bars, as shares of what stock takes with the same caches."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, rows = pyplot.subplots(len(CACHES), 1, figsize=(11, 8), layout="constrained")
    colors = dict(zip(PARTS, pyplot.get_cmap("tab10").colors))
    for axes, cache in zip(rows, CACHES, strict=True):
        pairs = _pairs(starts, cache)
        for position, pair in enumerate(pairs):
            for one, offset in zip(pair, (-0.2, 0.2), strict=True):
                height = 0.0
                for part, seconds in one.cpu.items():
                    share = seconds / pair[0].total
                    axes.bar(position + offset, share, 0.38, bottom=height, color=colors[part])
                    height += share
                label = f"{one.side}\n{one.total:.1f} s"
                axes.text(position + offset, height, label, ha="center", va="bottom", fontsize=7)
        axes.set_xticks(range(len(pairs)), [stock.model for stock, _ in pairs])
        axes.set_ylabel("CPU seconds, share of stock's")
        axes.set_title(f"From the start of a process to a function, {cache} caches")
        axes.margins(y=0.15)
    patches = [pyplot.Rectangle((0, 0), 1, 1, color=colors[part]) for part in reversed(PARTS)]
    figure.legend(patches, list(reversed(PARTS)), loc="outside right center", fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
