"""Shows within a few minutes what optdb gains: ``python -m profiles.demo``.

For each of `LEGS`, a process is measured from its start to the second result, with Theano's own optimizer and with
optdb. The values of two calls are compared. Then one model runs on the OpenCL device. Progress is printed even without
a terminal.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from profiles import cli, isolated, starts, terminal, whole
from profiles.report import OPTDB, STOCK
from profiles.starts import CACHES, Start
from profiles.training import difference

COLORS = dict(zip(starts.CPU_PARTS, ("#bbbbbb", "#8da0cb", "#fc8d62", "#e78ac3", "#e5c494", "#66c2a5")))

DEVICE = "device"

#: The quantity in the table and the plot.
MEASURE = "CPU seconds from the start of a process to the second result, compilers included"

#: Number of calls in each start. The second call sees the updates of the first one.
CALLS = 2


@dataclass(frozen=True)
class Leg:
    """A model, and how it is started.

    The `flags` are added to those of the sides, and the `note` says what they mean. The model is started once for each
    state of the `caches`, in this order.
    """

    model: str
    flags: str
    caches: tuple[str, ...]
    note: str

    @property
    def compiles(self) -> bool:
        """Whether C code is compiled."""
        return "cxx=" not in self.flags


LEGS = (
    Leg("mlp", "floatX=float64", CACHES, "with a C compiler"),
    Leg("gru30", "floatX=float64,cxx=", CACHES[:1], "without a C compiler"),
    Leg("vae", "floatX=float64,cxx=", CACHES[:1], "without a C compiler"),
)
DEVICE_LEG = Leg("mlp", "floatX=float32,cxx=", CACHES, "on the OpenCL device")

#: The tolerance of values, relative to the largest number of an array.
TOLERANCE = {OPTDB: 1e-9, DEVICE: 1e-3}

#: A leg, and one of its starts.
LegStart = tuple[Leg, Start]


def run(leg: Leg, sides: dict[str, str], tell: Callable[[str], None]) -> list[LegStart]:
    """Start a leg's model on each side (a name with its flags), and report each start to `tell`."""

    def starting(side: str, cache: str) -> None:
        tell(f"{side}, {cache} ...")

    def started(start: Start) -> None:
        compilers = start.cpu["compilers"]
        of_which = f" ({compilers:.1f} s of it compilers)" if compilers > 0.05 else ""
        tell(f"{start.side}, {start.cache}: {start.cpu_total:.1f} s{of_which}")

    measured = starts.measure(leg.model, sides, leg.flags, leg.caches, calls=CALLS, starting=starting, started=started)
    return [(leg, start) for start in measured]


@dataclass(frozen=True)
class Row:
    """One line of the table: the starts of one model with one state of the caches."""

    leg: Leg
    stock: Start
    ours: Start

    @property
    def ratio(self) -> float:
        """The factor by which optdb reduces the CPU seconds until the second result."""
        return self.stock.cpu_total / max(self.ours.cpu_total, 1e-9)

    @property
    def difference(self) -> float:
        """The difference of the values, relative to the largest number of an output."""
        calls = zip(self.stock.values, self.ours.values, strict=True)
        return max(difference(a, b) for one, other in calls for a, b in zip(one, other, strict=True))

    @property
    def agrees(self) -> bool:
        """Whether the values are equal within the tolerance of the side."""
        return self.difference <= TOLERANCE[self.ours.side]


def rows_of(measured: Sequence[LegStart]) -> list[Row]:
    """Pair each start of another side with stock Theano's start of the same model with caches in the same state."""
    stock = {(start.model, start.cache): start for _, start in measured if start.side == STOCK}
    others = [(leg, start) for leg, start in measured if start.side != STOCK]
    return [
        Row(leg, stock[start.model, start.cache], start) for leg, start in others if (start.model, start.cache) in stock
    ]


def table_of(rows: Sequence[Row]) -> Table:
    """Return the table of measurements."""
    columns = ("model", "", "caches", "stock", "optdb", "quicker by", "values differ by")
    table = terminal.table(*columns, left=("model", "", "caches"), title=MEASURE, title_justify="left")
    for row in rows:
        verdict = f"{row.difference:.0e}" + ("" if row.agrees else " [red]too much[/]")
        table.add_row(
            *(row.leg.model, row.leg.note, _fullness(row.leg, row.ours) or "-"),
            *(f"{row.stock.cpu_total:.1f}", f"{row.ours.cpu_total:.1f}", f"{row.ratio:.1f}x", verdict),
        )
    return table


def _fullness(leg: Leg, start: Start) -> str:
    """Return whether a start's caches were "empty" or "full", or "" if all starts of its leg have the same state."""
    return {"cold": "empty", "warm": "full"}[start.cache] if len(leg.caches) > 1 else ""


def _side_by_side(measured: Sequence[LegStart]) -> list[LegStart]:
    """Sort the starts of a leg by their caches, so that starts to compare are adjacent."""
    legs = list(dict.fromkeys(leg for leg, _ in measured))
    return sorted(measured, key=lambda pair: (legs.index(pair[0]), pair[0].caches.index(pair[1].cache)))


def _label(leg: Leg, start: Start) -> str:
    fullness = _fullness(leg, start)
    caches_are = f", {fullness} caches" if fullness else ""
    side = "" if start.side == DEVICE else f": {start.side}"
    return f"{leg.model} {leg.note}{caches_are}{side}"


def plot(measured: Sequence[LegStart], path: Path) -> None:
    """Draw a bar for each start, divided into parts; stock and optdb are adjacent."""
    measured = _side_by_side(measured)
    labels = [_label(leg, start) for leg, start in measured]
    with terminal.drawing(path, (9, 1.5 + 0.45 * len(measured))) as (figure, axes):
        for position, (_, start) in enumerate(measured):
            left = 0.0
            for part, seconds in start.cpu.items():
                axes.barh(position, seconds, left=left, color=COLORS[part], label=part if not position else None)
                left += seconds
            axes.text(left, position, f" {left:.1f} s", va="center", fontsize=8)
        axes.set_yticks(range(len(measured)), labels, fontsize=8)
        axes.invert_yaxis()
        axes.margins(x=0.1)
        axes.set_xlabel(MEASURE)
        figure.legend(loc="outside lower center", ncols=len(COLORS), fontsize=8)


def _device() -> str | None:
    """Return the name of the best OpenCL device; None if no device is worth using."""
    from optdb.runtime.errors import DeviceError

    try:
        from optdb.runtime import devices

        working = [row for row in devices.list_devices() if row.works and row.kind != "memory checker"]
    except DeviceError:
        return None
    return devices.find("opencl").name.strip() if working else None


def _measure(tell: Callable[[str], None]) -> list[LegStart]:
    """Run all legs, and return the results."""
    measured: list[LegStart] = []
    for leg in LEGS:
        if leg.compiles and shutil.which("g++") is None:
            tell(f"there is no g++: {leg.model}, {leg.note}, is skipped")
            continue
        tell(f"{leg.model}, {leg.note}")
        measured += run(leg, whole.FLAGS, lambda text: tell(f"    {text}"))
    name = _device()
    if name is None:
        tell("there is no OpenCL device (`python -m optdb devices` says more); only the host is measured")
    else:
        tell(f"{DEVICE_LEG.model}, on {name}")
        measured += run(DEVICE_LEG, {DEVICE: "optdb.topo=True,optdb.device=opencl"}, lambda text: tell(f"    {text}"))
    return measured


@click.command()
@click.option(
    "--plot", "path", type=cli.PICTURE, default=Path("build", "demo.png"),
    show_default=True, help="Draw the measurements into this file.",
)  # fmt: skip
def main(path: Path) -> None:
    """Compare starts of programs under Theano's own optimizer and under optdb, and try the OpenCL device."""
    began = time.monotonic()

    def tell(text: str) -> None:
        print(f"[{time.monotonic() - began:5.0f} s] {text}", flush=True)

    tell("seconds are CPU seconds, except those in brackets")
    try:
        measured = _measure(tell)
    except isolated.Failed as failure:
        raise click.ClickException(f"a process failed:\n{failure}") from None
    rows = rows_of(measured)
    console = Console()
    (console if console.is_terminal else Console(width=120)).print(table_of(rows))
    plot(measured, path)
    tell(f"the plot is {path}; `make bench` shows the optimizer's phases for more models")
    sys.exit(0 if all(row.agrees for row in rows) else 1)


if __name__ == "__main__":
    main()
