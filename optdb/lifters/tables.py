"""Tables of a graph's placement, for `rich` and as plain text."""

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
    """Return the text that `rich` prints, without colours."""
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
        Its title.
    texts, numbers : sequence of str
        The names of its columns: text columns, then number columns.
    rows : iterable of sequence
        The cells of each row, from the left; missing cells are empty.
    most : int, optional
        The most rows to show; a last row counts those left out.
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
    """Return the tables of lifted nodes, and of those that stayed on the host."""
    return [
        _counted(f"lifted to {report.device}", "by", report.by_lifter()),
        _counted("stayed on the host", "because", report.by_reason()),
    ]


def _counted(title: str, why: str, nodes: Counter[tuple[str, str]]) -> Table:
    rows = ((op, reason, count) for (op, reason), count in nodes.most_common())
    return new_table(title, ("op", why), ("nodes",), rows)
