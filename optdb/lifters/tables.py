"""Tables of what became of a graph, for `rich`, and as plain text."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rich.console import Console
from rich.table import Table

from optdb.lifters.report import LiftReport

__all__ = ["lift_tables", "new_table", "text_of"]


def text_of(renderable: Any, width: int = 120) -> str:
    """Return what `rich` would print, without colours."""
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as captured:
        console.print(renderable)
    return captured.get()


def new_table(title: str, texts: tuple[str, ...], numbers: tuple[str, ...] = ()) -> Table:
    """Return an empty table.

    Parameters
    ----------
    title : str
        What stands above it.
    texts, numbers : tuple of str
        Its columns: those of words, then those of numbers.
    """
    table = Table(title=title, title_justify="left", min_width=min(len(title), 100))
    for name in texts:
        table.add_column(name, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right")
    return table


def lift_tables(report: LiftReport) -> list[Table]:
    """Return what was lifted, and what was not."""
    return [
        _counted(f"lifted to {report.device}", "by", report.by_lifter()),
        _counted("stayed on the host", "because", report.by_reason()),
    ]


def _counted(title: str, why: str, nodes: Counter[tuple[str, str]]) -> Table:
    table = new_table(title, ("op", why), ("nodes",))
    for (op, reason), count in nodes.most_common():
        table.add_row(op, reason, str(count))
    return table
