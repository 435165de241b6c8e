"""Creates tables for `rich`, and renders them as plain text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text


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
    """Return a table with a column for each name in `texts` and `numbers`; missing cells are empty.

    Rows after the first `most` rows are omitted, and a final row gives their number.
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
