"""Standard output for tables."""

from __future__ import annotations

from rich.console import Console

NARROWEST = 132
"""Columns to assume where the output is not a terminal, which would be taken to have 80."""


def console() -> Console:
    """Return standard output, wide enough for the tables."""
    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=max(terminal.width, NARROWEST))
