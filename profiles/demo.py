"""Shows within a few minutes how much time optdb saves: ``python -m profiles.demo``.

For each of `LEGS`, the time of a process from the start to the second result is measured with Theano's own optimizer
and with optdb. The values of these two calls are compared. Then one model runs on the OpenCL device. Progress is
printed even without a terminal.
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

#: The quantity that the table and the plot show.
MEASURE = "CPU seconds from the start of a process to the second result, compilers included"

#: Number of calls in each start. The second call depends on the updates that the first call made.
CALLS = 2


@dataclass(frozen=True)
class Leg:
    """A model, and how the processes that compute it are started.

    The `flags` are used with and without optdb, and `note` describes them. A process is started for each state of the
    `caches`, in this order.
    """

    model: str
    flags: str
    caches: tuple[str, ...]
    note: str

    @property
    def compiles(self) -> bool:
        """Whether the leg uses a C compiler."""
        return "cxx=" not in self.flags


LEGS = (
    Leg("mlp", "floatX=float64", CACHES, "with a C compiler"),
    Leg("gru30", "floatX=float64,cxx=", CACHES[:1], "without a C compiler"),
    Leg("vae", "floatX=float64,cxx=", CACHES[:1], "without a C compiler"),
)
DEVICE_LEG = Leg("mlp", "floatX=float32,cxx=", CACHES, "on the OpenCL device")

#: The largest accepted difference of values, relative to the largest number of the output.
TOLERANCE = {OPTDB: 1e-9, DEVICE: 1e-3}

#: A leg, and one of the starts of the leg's model.
LegStart = tuple[Leg, Start]


def run(leg: Leg, sides: dict[str, str], tell: Callable[[str], None]) -> list[LegStart]:
    """Start a leg's model with each of the flags in `sides`; pass a line of text for each start to `tell`."""

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
    """A line of the table: two starts of a model with the same state of the caches."""

    leg: Leg
    stock: Start
    ours: Start

    @property
    def ratio(self) -> float:
        """The factor by which optdb reduces the CPU seconds until the second result."""
        return self.stock.cpu_total / max(self.ours.cpu_total, 1e-9)

    @property
    def difference(self) -> float:
        """The largest difference of the values, relative to the largest number of the output."""
        calls = zip(self.stock.values, self.ours.values, strict=True)
        return max(difference(a, b) for one, other in calls for a, b in zip(one, other, strict=True))

    @property
    def agrees(self) -> bool:
        """Whether the values are equal, within the tolerance for optdb on the host or on the device."""
        return self.difference <= TOLERANCE[self.ours.side]


def rows_of(measured: Sequence[LegStart]) -> list[Row]:
    """Pair each start with optdb with stock Theano's start of the same model and with the same state of the caches."""
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
    """Return the state of a start's caches, "empty" or "full"; "" if all starts of the leg have the same state."""
    return {"cold": "empty", "warm": "full"}[start.cache] if len(leg.caches) > 1 else ""


def _side_by_side(measured: Sequence[LegStart]) -> list[LegStart]:
    """Sort the starts of each leg by the state of the caches, so that starts that are compared are adjacent."""
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
    """Return the name of the best OpenCL device; None if there is no working device."""
    from optdb.runtime.errors import DeviceError

    try:
        from optdb.runtime import devices

        working = [row for row in devices.list_devices() if row.works and row.kind != "memory checker"]
    except DeviceError:
        return None
    return devices.find("opencl").name.strip() if working else None


def _measure(tell: Callable[[str], None]) -> list[LegStart]:
    """Run all legs, and return the measured starts."""
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
    """Compare the starts of programs with Theano's own optimizer and with optdb, also on the OpenCL device."""
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
