"""Common code of the command lines: arguments, options, and an error message if PyMC is not installed."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from importlib.util import find_spec

import click

if find_spec("pymc") is None:
    sys.exit("PyMC is not installed. The cure: make pytensor, then .venv-pytensor/bin/python -m profiles.pytensor...")

from profiles.pytensor import models, sides
from profiles.terminal import OptionDecorator

__all__ = [
    "chosen_sides",
    "model_names",
    "models_argument",
    "side_option",
    "sides_option",
    "sizes",
    "sizes_option",
    "timeout_option",
]

models_argument = click.argument("names", metavar="[MODEL]...", nargs=-1, type=click.Choice(list(models.MODELS)))
SIDE = click.Choice(list(sides.SIDES))
side_option = click.option(
    "--side", type=SIDE, default=sides.OPENCL, show_default=True, help="Side to compare with the reference."
)


def sizes_option(default: str = "small", what: str = "Size of the models' data.") -> OptionDecorator:
    """Return the option for the size of the data."""
    sizes = click.Choice(["small", "large"])
    return click.option("--size", type=sizes, default=default, show_default=True, help=what)


def sides_option(what: str, *chosen: str) -> OptionDecorator:
    """Return the option for the configurations (`SIDES`) to compare; the first one is the reference."""
    what = f"Sides that {what}; the first is the reference."
    return click.option("--side", "chosen", multiple=True, type=SIDE, default=chosen, show_default=True, help=what)


def timeout_option(whose: str) -> OptionDecorator:
    """Return the option for the timeout of a process."""
    return click.option(
        "--timeout", type=click.FloatRange(min=0, min_open=True), help=f"Timeout of {whose}, in seconds."
    )


def model_names(names: Sequence[str]) -> list[str]:
    """Return the named models, or all models if none is named."""
    return list(names or models.MODELS)


def sizes(names: Iterable[str], size: str) -> dict[str, int]:
    """Return the small or the large size of each model."""
    return {name: getattr(models.entry(name), size) for name in names}


def chosen_sides(names: Sequence[str]) -> list[str]:
    """Return the named configurations that are installed here; exit if there are fewer than two."""
    missing = [name for name in names if not sides.available(name)]
    for name in missing:
        click.echo(f"skipped: {name}, which needs {', '.join(sides.missing(name))}", err=True)
    left = [name for name in names if name not in missing]
    if len(left) < 2:
        raise click.ClickException("fewer than two sides can be compared. The cure: pip install 'optdb[pymc]'")
    return left
