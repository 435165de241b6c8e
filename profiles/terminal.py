"""Standard output for tables, and the type of an option that names a file for a plot."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import click
from rich.console import Console

NARROWEST = 132
"""Columns to assume where the output is not a terminal, which would be taken to have 80."""


def console() -> Console:
    """Return standard output, wide enough for the tables."""
    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=max(terminal.width, NARROWEST))


class Picture(click.Path):
    """The path of a plot; rejected before any measurement if Matplotlib is missing."""

    name = "file"

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Reject any file if Matplotlib is missing."""
        if find_spec("matplotlib") is None:
            self.fail("there is no Matplotlib to draw it with. The cure: pip install 'optdb[profiles]'", param, ctx)
        return Path(os.fsdecode(super().convert(value, param, ctx)))


PICTURE = Picture()
