"""Compares the time from the start of a process to a compiled function, with empty or full caches.

`profiles.starts` starts the processes. This module compares processes with Theano alone and with optdb.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table

from profiles import models, terminal
from profiles import starts as starting
from profiles.report import OPTDB, STOCK, add_legend, draw_shares, geometric_mean
from profiles.starts import CACHES, Start

PARTS = ("import", "model", "optimize", "link", "compilers")
"""Those of `profiles.starts.CPU_PARTS` that end with the function."""

FLAGS = {STOCK: "optdb.topo=False,optdb.clinker=False", OPTDB: "optdb.topo=True"}


def measure(name: str, timeout: float | None = None, tell: Callable[[str], None] = lambda step: None) -> list[Start]:
    """Start a model with Theano alone and with optdb, with empty caches and again with the filled caches."""
    flags = f"floatX={models.dtype_of(name)}"
    return starting.measure(
        name, FLAGS, flags, timeout=timeout, started=lambda start: tell(f"{start.side}, {start.cache}")
    )


def render(starts: Sequence[Start]) -> RenderableType:
    """Return a table for empty caches and a table for full caches."""
    return Group(*(_table(starts, cache) for cache in CACHES))


def _table(starts: Sequence[Start], cache: str) -> Table:
    pairs = _pairs(starts, cache)
    table = Table(
        title=f"From the start of a process to a function, {cache} caches",
        caption="CPU seconds, including compilers; of two numbers, the first is stock's",
        show_footer=True,
    )
    cpu_mean = geometric_mean(stock.cpu_total / ours.cpu_total for stock, ours in pairs)
    wall_mean = geometric_mean(stock.wall_total / ours.wall_total for stock, ours in pairs)
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
            f"{stock.cpu_total:.1f} / {ours.cpu_total:.1f}",
            f"{stock.cpu_total / ours.cpu_total:.1f}x",
            f"{stock.wall_total:.1f} / {ours.wall_total:.1f}",
            f"{stock.wall_total / ours.wall_total:.1f}x",
            f"{stock.compilers} / {ours.compilers}",
        )
    return table


def _pairs(starts: Sequence[Start], cache: str) -> list[tuple[Start, Start]]:
    found = {(start.model, start.side): start for start in starts if start.cache == cache}
    names = dict.fromkeys(model for model, _ in found)
    return [(found[name, STOCK], found[name, OPTDB]) for name in names if {(name, STOCK), (name, OPTDB)} <= set(found)]


def numbers(starts: Sequence[Start]) -> list[dict[str, object]]:
    """Return all numbers in the form in which they are written to a file."""
    return [{**asdict(start), "cpu_total": start.cpu_total, "wall_total": start.wall_total} for start in starts]


def write_plot(starts: Sequence[Start], path: Path) -> None:
    """Draw a stacked bar for each start, relative to the time of stock Theano with the same caches."""
    with terminal.drawing(path, (11, 8), len(CACHES)) as (figure, rows):
        for axes, cache in zip(rows, CACHES, strict=True):
            bars = [
                (stock.model, [(one.side, one.cpu_total, one.cpu) for one in (stock, ours)])
                for stock, ours in _pairs(starts, cache)
            ]
            draw_shares(axes, bars, PARTS, "tab10")
            axes.set_ylabel("CPU seconds, share of stock's")
            axes.set_title(f"From the start of a process to a function, {cache} caches")
        add_legend(figure, PARTS, "tab10")
