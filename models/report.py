"""Prints reports: a table of models, a table of times, reasons why steps on the device are slower, and faults."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from models.records import ENGINE, STOCK, Report
from profiles import files, terminal
from profiles.report import geometric_mean


def show(console: Console, reports: Sequence[Report], ways: Sequence[str]) -> None:
    """Print the report of a run."""
    console.print(tables(reports, ways))
    for report in reports:
        for way in ways:
            for reason in report.reasons(way)[:1]:
                console.print(f"slower: {report.model}, {way}: {escape(reason)}", soft_wrap=True, highlight=False)
    for report in reports:
        for fault in report.faults():
            heading, _, rest = fault.partition("\n")
            console.print(f"[bold red]fault[/] {report.model}: {escape(heading)}", soft_wrap=True, highlight=False)
            if rest:
                console.print(f"    {escape(rest)}", soft_wrap=True, highlight=False)
    bad = sum(bool(report.faults()) for report in reports)
    told = f"{len(reports)} models, "
    console.print(f"[bold red]{told}{bad} with faults[/]" if bad else f"{told}none with a fault", highlight=False)


def tables(reports: Sequence[Report], ways: Sequence[str]) -> RenderableType:
    """Return the table of differences between values, and the table of times."""
    return Group(_values(reports, ways), *([_times(reports, ways)] if any(r.times for r in reports) else []))


def _values(reports: Sequence[Report], ways: Sequence[str]) -> Table:
    table = Table(
        title="Models of other libraries",
        caption="nodes, in place: stock's graph / the engine's graph; ways: largest difference from stock's values; "
        "device, host, transfers: nodes of mode OPENCL's graph",
        box=SIMPLE_HEAD,
        padding=(0, 1),
    )
    table.add_column("model")
    table.add_column("dtype")
    for heading in ("nodes", "in place", *ways, "device", "host", "transfers", "branches"):
        table.add_column(heading, justify="right")
    for report in reports:
        style = "red" if report.faults() else None
        table.add_row(report.model, report.floatX, *_cells(report, ways), style=style)
    return table


def _cells(report: Report, ways: Sequence[str]) -> list[str | Text]:
    stock, engine = report.results.get(STOCK), report.results.get(ENGINE)
    nodes = inplace = "-"
    if stock is not None and engine is not None:
        nodes, inplace = f"{stock.nodes} / {engine.nodes}", f"{stock.inplace} / {engine.inplace}"
    placed = next((result for way, result in report.results.items() if result.on_device), None)
    counts = [placed.on_device, placed.on_host, placed.transfers] if placed is not None else ["-"] * 3
    branches = stock.branches if stock is not None else "-"
    return [nodes, inplace, *(_difference(report, way) for way in ways), *map(str, [*counts, branches])]


def _difference(report: Report, way: str) -> str:
    result = report.results.get(way)
    if result is None or result.error:
        return "fails"
    mark = " chaotic" if report.is_chaotic(way) else "" if report.agrees(way) else " differs"
    return ("same" if not result.difference else f"{result.difference:.0e}") + mark


def _times(reports: Sequence[Report], ways: Sequence[str]) -> Table:
    table = Table(
        title="Milliseconds per step, and speedup over Theano's C code",
        show_footer=True,
        box=SIMPLE_HEAD,
        padding=(0, 1),
    )
    timed = [(report.model, report.times) for report in reports if report.times is not None]
    table.add_column("model", "geometric mean")
    table.add_column("C", justify="right")
    for way in ways:
        mean = geometric_mean(times.ratio(way) for _, times in timed)
        table.add_column(way, "-" if math.isnan(mean) else f"{mean:.2f}x", justify="right")
    table.add_column("launches", justify="right")
    for model, times in timed:
        cells = [f"{1e3 * times.seconds[way]:.2f} {times.ratio(way):.2f}x" for way in ways]
        table.add_row(model, f"{1e3 * times.seconds[STOCK]:.2f}", *cells, str(times.launches))
    return table


def read_json(path: Path) -> list[Report]:
    """Return the reports in a file."""
    return [Report.from_json(row) for row in json.loads(path.read_text())["models"]]


def write_json(reports: Sequence[Report], path: Path) -> None:
    """Write all numbers and faults to a JSON file."""
    rows = [{**asdict(report), "faults": report.faults()} for report in reports]
    terminal.write_json({"environment": files.environment(), "models": rows}, path)
