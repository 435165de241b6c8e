"""Common code of the command lines: arguments and options, and a message if PyMC is not installed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

if find_spec("pymc") is None:
    sys.exit("PyMC is not installed. The cure: make pytensor, then .venv-pytensor/bin/python -m profiles.pytensor...")

from profiles.pytensor import models, sides

__all__ = ["chosen_sides", "json_option", "model_names", "models_argument", "sizes", "sizes_option", "write_json"]

models_argument = click.argument("names", metavar="[MODEL]...", nargs=-1, type=click.Choice(list(models.MODELS)))
sizes_option = click.option(
    "--size",
    type=click.Choice(["small", "large"]),
    default="small",
    show_default=True,
    help="Size of the models' data.",
)
json_option = click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the numbers to this file."
)


def model_names(names: Sequence[str]) -> list[str]:
    """Return the models of a command: all of them, if none is named."""
    return list(names or models.MODELS)


def sizes(names: Iterable[str], size: str) -> dict[str, int]:
    """Return the small or the large size of each model."""
    return {name: getattr(models.entry(name), size) for name in names}


def chosen_sides(names: Sequence[str]) -> list[str]:
    """Return those of the named sides that can be used; exit if there are fewer than two."""
    missing = [name for name in names if not sides.available(name)]
    for name in missing:
        click.echo(f"skipped: {name}, which needs {', '.join(sides.missing(name))}", err=True)
    left = [name for name in names if name not in missing]
    if len(left) < 2:
        raise click.ClickException("fewer than two sides can be compared. The cure: pip install 'optdb[pymc]'")
    return left


def write_json(records: Sequence[Any], path: Path | None) -> None:
    """Write dataclasses if a path is given."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps([asdict(record) for record in records], indent=1))
