"""Shows in a few minutes what optdb is for: ``python -m profiles.demo``.

For each of `LEGS`, the whole of ``theano.function`` is measured under Theano's own optimizer and under optdb, each
start in a process of its own: from an empty cache of compiled C code, and again from the full one. The values of two
calls are compared. Then one model runs on the OpenCL device, if there is one that is no simulator. What is done is
printed as it is done, also where there is no terminal.

``profiles.compare`` has the optimizer's phases, and ``profiles.cold`` starts on the device.
"""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from profiles import isolated
from profiles.cold import caches

#: What is said before anything is measured; taken on two cores of a busy server.
EXPECTED_MINUTES = "two to three minutes"

PARTS = ("import", "graph", "optimize and link", "compilers", "two calls")
COLORS = dict(zip(PARTS, ("#bbbbbb", "#8da0cb", "#fc8d62", "#e5c494", "#66c2a5")))

SIDES = {"stock": "optdb.topo=False", "optdb": "optdb.topo=True"}
DEVICE = "device"


@dataclass(frozen=True)
class Leg:
    """A model, and how it is started.

    Parameters
    ----------
    model
        Its name.
    flags
        THEANO_FLAGS besides those of the sides.
    starts
        What the caches of compiled C code, and of the device's programs, are at each start: cold, then warm.
    note
        What the flags mean, in words.
    """

    model: str
    flags: str
    starts: tuple[str, ...]
    note: str


LEGS = (
    Leg("mlp", "floatX=float64", ("cold", "warm"), "with a C compiler"),
    Leg("gru30", "floatX=float64,cxx=", ("cold",), "without a C compiler"),
    Leg("vae", "floatX=float64,cxx=", ("cold",), "without a C compiler"),
)
DEVICE_LEG = Leg("mlp", "floatX=float32,cxx=", ("cold", "warm"), "on the OpenCL device")

#: How much values may differ: relative to the largest number of an array.
TOLERANCE = {"optdb": 1e-9, DEVICE: 1e-3}


@dataclass(frozen=True)
class Start:
    """One start of a process.

    Parameters
    ----------
    leg
        What was started.
    side
        One of `SIDES`, or `DEVICE`.
    cache
        'cold' or 'warm'.
    seconds
        Of processors, by `PARTS`: of all threads, and of the compilers that were called.
    values
        The outputs of both calls.
    """

    leg: Leg
    side: str
    cache: str
    seconds: dict[str, float]
    values: list[Any]

    @property
    def function(self) -> float:
        """Seconds of processors that ``theano.function`` took."""
        return self.seconds["optimize and link"] + self.seconds["compilers"]


def start(name: str) -> tuple[list[float], list[Any]]:
    """Build a model, compile it and call it twice; return the seconds of each of `PARTS`, and the outputs."""
    import theano

    from profiles import models

    # The imports' part begins with the process.
    marks = [[0.0, 0.0], _used()]
    model = models.build(name)
    marks.append(_used())
    function = theano.function(model.inputs, model.outputs, updates=model.updates)
    marks.append(_used())
    # The second call sees what the first one did to the parameters.
    values = [[np.asarray(out, "float64").tolist() for out in function(*model.data)] for _ in range(2)]
    marks.append(_used())
    own = [after[0] - before[0] for before, after in itertools.pairwise(marks)]
    children = [after[1] - before[1] for before, after in itertools.pairwise(marks)]
    return [own[0] + children[0], own[1] + children[1], own[2], children[2], own[3] + children[3]], values


def _used() -> list[float]:
    """Return the seconds of processors that this process, and those that it started, have used."""
    used = os.times()
    return [used.user + used.system, used.children_user + used.children_system]


def run(leg: Leg, sides: dict[str, str], tell: Callable[[str], None]) -> list[Start]:
    """Start a model on each side, from empty caches first, and tell what comes of it."""
    starts = []
    for side, flags in sides.items():
        with tempfile.TemporaryDirectory(prefix="optdb-demo-") as folder:
            flags = f"{leg.flags},{flags},base_compiledir={folder}/theano"
            for cache in leg.starts:
                tell(f"{side}, {cache} ...")
                seconds, values = isolated.call("profiles.demo:start", leg.model, flags=flags, env=caches(Path(folder)))
                starts.append(Start(leg, side, cache, dict(zip(PARTS, seconds)), values))
                tell(f"{side}, {cache}: theano.function {starts[-1].function:.1f} s {_of_which(seconds)}")
    return starts


def _of_which(seconds: Sequence[float]) -> str:
    compilers = seconds[PARTS.index("compilers")]
    return f"({compilers:.1f} s of it compilers)" if compilers > 0.05 else ""


def difference(one: Any, other: Any) -> float:
    """Return by how much two lists of outputs differ, relative to the largest number of each; inf if in shape."""
    worst = 0.0
    for a, b in zip(_arrays(one), _arrays(other), strict=True):
        if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
            return float("inf")
        finite = np.isfinite(a)
        scale = max(1e-30, float(np.max(np.abs(a[finite]), initial=0.0)))
        worst = max(worst, float(np.max(np.abs(a - b)[finite], initial=0.0)) / scale)
    return worst


def _arrays(values: Any) -> list[np.ndarray]:
    return [np.asarray(out, "float64") for call in values for out in call]


@dataclass(frozen=True)
class Row:
    """One line of the table: the starts of one model from one state of the caches."""

    stock: Start
    ours: Start

    @property
    def ratio(self) -> float:
        """How many times fewer seconds ``theano.function`` takes."""
        return self.stock.function / max(self.ours.function, 1e-9)

    @property
    def difference(self) -> float:
        """By how much the values differ."""
        return difference(self.stock.values, self.ours.values)

    @property
    def agrees(self) -> bool:
        """Whether the values are the same, within the rounding of the side."""
        return self.difference <= TOLERANCE[self.ours.side]


def rows_of(starts: Sequence[Start]) -> list[Row]:
    """Pair the starts under stock with the others; the device's are compared with stock's from cold caches."""
    stock = {(s.leg.model, s.cache): s for s in starts if s.side == "stock"}
    return [Row(stock[s.leg.model, s.cache], s) for s in starts if s.side != "stock"]


def table_of(rows: Sequence[Row]) -> Table:
    """Return what was measured."""
    table = Table(
        title="theano.function, in CPU seconds of the process and of the compilers that it calls", title_justify="left"
    )
    for column in ("model", "", "caches", "stock", "optdb", "quicker by", "values differ by"):
        table.add_column(column, justify="left" if column in ("model", "", "caches") else "right")
    for row in rows:
        verdict = f"{row.difference:.0e}" + ("" if row.agrees else " [red]too much[/]")
        caches_are = {"cold": "empty", "warm": "full"}[row.ours.cache] if len(row.ours.leg.starts) > 1 else "-"
        table.add_row(
            *(row.ours.leg.model, row.ours.leg.note, caches_are),
            *(f"{row.stock.function:.1f}", f"{row.ours.function:.1f}", f"{row.ratio:.1f}x", verdict),
        )
    return table


def plot(starts: Sequence[Start], path: Path) -> None:
    """Draw a bar for each start, by parts."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 1.5 + 0.45 * len(starts)), layout="constrained")
    labels = [f"{s.leg.model}, {s.leg.note}, {s.cache}: {s.side}" for s in starts]
    for position, one in enumerate(starts):
        left = 0.0
        for part, seconds in one.seconds.items():
            axes.barh(position, seconds, left=left, color=COLORS[part], label=part if not position else None)
            left += seconds
        axes.text(left, position, f" {left:.1f} s", va="center", fontsize=8)
    axes.set_yticks(range(len(starts)), labels, fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.set_xlabel("CPU seconds from the start of the process to the second result")
    figure.legend(loc="outside lower center", ncols=len(PARTS), fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def _device() -> str | None:
    """Return the name of the best OpenCL device, None if there is none that is worth it."""
    from optdb.runtime.errors import DeviceError

    try:
        from optdb.runtime import devices

        working = [row for row in devices.list_devices() if row.works and row.kind != "simulator"]
    except DeviceError:
        return None
    return devices.find("opencl").name.strip() if working else None


def _measure(tell: Callable[[str], None]) -> list[Start]:
    """Start everything, and return what came of it."""
    starts: list[Start] = []
    for leg in LEGS:
        tell(f"{leg.model}, {leg.note}")
        starts += run(leg, SIDES, lambda text: tell(f"    {text}"))
    name = _device()
    if name is None:
        tell("there is no OpenCL device (`python -m optdb devices` says more); the host is all that is shown")
    else:
        tell(f"{DEVICE_LEG.model}, on {name}")
        starts += run(DEVICE_LEG, {DEVICE: "optdb.topo=True,optdb.device=opencl"}, lambda text: tell(f"    {text}"))
    return starts


@click.command()
@click.option(
    "--plot", "path", type=click.Path(dir_okay=False, path_type=Path), default=Path("build", "demo.png"),
    show_default=True, help="Draw what was measured there.",
)  # fmt: skip
def main(path: Path) -> None:
    """Compare the whole of theano.function under Theano's own optimizer and under optdb, and try the OpenCL device."""
    began = time.monotonic()

    def tell(text: str) -> None:
        print(f"[{time.monotonic() - began:5.0f} s] {text}", flush=True)

    tell(f"this takes {EXPECTED_MINUTES} on two cores; all other seconds are those of processors")
    try:
        starts = _measure(tell)
    except isolated.Failed as failure:
        raise click.ClickException(f"a process failed:\n{failure}") from None
    rows = rows_of(starts)
    console = Console()
    (console if console.is_terminal else Console(width=120)).print(table_of(rows))
    plot(starts, path)
    tell(f"the plot is {path}; `make bench` has the optimizer's phases for more models")
    sys.exit(0 if all(row.agrees for row in rows) else 1)


if __name__ == "__main__":
    main()
