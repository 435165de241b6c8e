"""Shows rich's tables as HTML in notebooks: `HtmlTables` adds the method ``_repr_html_`` to classes that have `render`.

The cells contain the text of the printed tables, with special characters escaped. The notebook chooses colours and
column widths.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Column, Table

__all__ = ["HtmlTables", "ReportTables", "html_of"]


class HtmlTables:
    """Base class for objects whose method `render` or ``__rich__`` returns tables for `rich` to print."""

    if TYPE_CHECKING:

        def render(self) -> Table | Group:
            """Return the tables to print; a class that defines ``__rich__`` does not need this method."""

    def __rich__(self) -> Table | Group:
        return self.render()

    def _repr_html_(self) -> str:
        """Return the tables as HTML for Jupyter."""
        return html_of(self.__rich__())


class ReportTables(HtmlTables):
    """Base class for reports, which an interactive session shows as printed text."""

    def __repr__(self) -> str:
        return str(self).rstrip() or f"<{type(self).__name__} without rows>"


def html_of(rendered: RenderableType) -> str:
    """Return tables as HTML without scripts or references to other files; everything but tables becomes text."""
    # Import rich here, because `optdb.runtime` imports this module, and works without rich.
    from rich.console import Group
    from rich.table import Table

    if isinstance(rendered, Group):
        return "".join(map(html_of, rendered.renderables))
    if not isinstance(rendered, Table):
        return f"<p>{_escaped(rendered)}</p>"
    caption = f'<caption style="text-align: left">{_escaped(rendered.title)}</caption>' if rendered.title else ""
    head = ""
    if rendered.show_header and any(_escaped(column.header) for column in rendered.columns):
        head = f"<thead><tr>{''.join(_cell('th', column, column.header) for column in rendered.columns)}</tr></thead>"
    cells = [[_cell("td", column, cell) for cell in column.cells] for column in rendered.columns]
    rows = "".join(f"<tr>{''.join(row)}</tr>" for row in zip(*cells, strict=True))
    return f"<table>{caption}{head}<tbody>{rows}</tbody></table>"


def _cell(tag: str, column: Column, value: Any) -> str:
    # Do not wrap numbers; long names may wrap.
    is_number = column.justify == "right"
    style = "text-align: right; white-space: nowrap" if is_number else "text-align: left; overflow-wrap: anywhere"
    return f'<{tag} style="{style}">{_escaped(value)}</{tag}>'


def _escaped(value: Any) -> str:
    """Return a cell as escaped text; a plain string is parsed as rich's markup, as in a printed table."""
    from rich.text import Text

    text = Text.from_markup(value) if isinstance(value, str) else value
    return html.escape(text.plain if isinstance(text, Text) else str(text))
