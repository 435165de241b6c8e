"""Common code of the command lines: options, tables, progress bars, plots, and files of numbers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

__all__ = [
    "PICTURE",
    "console",
    "count_option",
    "device_option",
    "drawing",
    "json_option",
    "print_paths",
    "progress",
    "table",
    "write_json",
]

NARROWEST = 132
"""Columns to assume where the output is not a terminal, which would be taken to have 80."""

OptionDecorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def console() -> Console:
    """Return standard output, wide enough for the tables."""
    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=max(terminal.width, NARROWEST))


class Picture(click.Path):
    """The path of a plot; if Matplotlib is missing, the path is rejected before anything is measured."""

    name = "file"

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Reject any path if Matplotlib is missing."""
        if find_spec("matplotlib") is None:
            self.fail("there is no Matplotlib to draw it with. The cure: pip install 'optdb[profiles]'", param, ctx)
        return Path(os.fsdecode(super().convert(value, param, ctx)))


PICTURE = Picture()

json_option: OptionDecorator = click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write all numbers to this file."
)


def count_option(name: str, default: int, what: str, least: int = 1) -> OptionDecorator:
    """Return an option for an integer that is at least `least`."""
    return click.option(name, type=click.IntRange(min=least), default=default, show_default=True, help=what)


def device_option(default: str = "opencl", what: str = "Device to use.") -> OptionDecorator:
    """Return the option for a device, which is named as in the flag optdb.device."""
    return click.option("--device", default=default, show_default=True, help=what)


def table(*columns: str, left: Collection[str] = (), **options: Any) -> Table:
    """Return a table whose columns are right-justified, except for the columns in `left`."""
    result = Table(**options)
    for column in columns:
        result.add_column(column, justify="left" if column in left else "right")
    return result


def progress() -> Progress:
    """Return a progress bar on standard error, which disappears at the end."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


@contextmanager
def drawing(path: Path, size: tuple[float, float], rows: int = 1, **options: Any) -> Iterator[tuple[Any, Any]]:
    """Yield a figure and its axes; write the plot to a file after the block."""
    import matplotlib  # imported here because the import takes a second

    matplotlib.use("Agg")  # needs no display
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(rows, figsize=size, layout="constrained", **options)
    yield figure, axes
    path.parent.mkdir(parents=True, exist_ok=True)
    # Leave out the date, so that equal numbers produce equal files.
    figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)


def write_json(numbers: Any, path: Path | None) -> None:
    """If a path is given, write numbers, which may be in dataclasses, to a JSON file."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(numbers, indent=1, default=asdict) + "\n")


def print_paths(**paths: Path | None) -> None:
    """Print the names of the files that were written, and what the files contain."""
    for what, path in paths.items():
        if path is not None:
            console().print(f"{what}: {path}", soft_wrap=True)
