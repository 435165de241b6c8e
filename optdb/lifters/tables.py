"""Tables of what became of a graph, for `rich`, and as plain text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from optdb.lifters.report import LiftReport

__all__ = ["lift_tables", "new_table", "text_of"]


def text_of(renderable: Any, width: int = 120) -> str:
    """Return what `rich` would print, without colours."""
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as captured:
        console.print(renderable)
    return captured.get()


def new_table(
    title: str,
    texts: Sequence[str],
    numbers: Sequence[str] = (),
    rows: Iterable[Sequence[Any]] = (),
    most: int | None = None,
) -> Table:
    """Return a table.

    Parameters
    ----------
    title : str
        What stands above it.
    texts, numbers : sequence of str
        Its columns: those of words, then those of numbers.
    rows : iterable of sequence
        What its cells show, from the left; others are empty.
    most : int, optional
        So many rows are shown, and how many more there are.
    """
    table = Table(title=escape(title), title_justify="left", min_width=min(len(title), 100))
    for name in texts:
        table.add_column(name, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right")
    rows = list(rows)
    for row in rows[:most]:
        table.add_row(*(Text(str(cell)) for cell in row))
    if most is not None and len(rows) > most:
        table.add_row(f"and {len(rows) - most} more")
    return table


def lift_tables(report: LiftReport) -> list[Table]:
    """Return what was lifted, and what was not."""
    return [
        _counted(f"lifted to {report.device}", "by", report.by_lifter()),
        _counted("stayed on the host", "because", report.by_reason()),
    ]


def _counted(title: str, why: str, nodes: Counter[tuple[str, str]]) -> Table:
    rows = ((op, reason, count) for (op, reason), count in nodes.most_common())
    return new_table(title, ("op", why), ("nodes",), rows)
