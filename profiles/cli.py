"""What the command lines share: types of arguments, which refuse what is not there, and the option for a way."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import click

from profiles import models, ways


class ModelName(click.ParamType):
    """The name of a model."""

    name = "model"

    def convert(self, value, param, ctx) -> str:
        """Refuse names that are not known, and list those that are."""
        if value in models.known():
            return value
        names = [*models.known(), *models.of_libraries()]
        if value not in names:
            self.fail(f"no model is named {value!r}; known are: {', '.join(names)}", param, ctx)
        return value


class ModelBuilder(ModelName):
    """The name of a model; turned into a function that builds it."""

    def convert(self, value, param, ctx) -> Callable[[], models.Model]:
        """Refuse names that are not known, and list those that are."""
        if callable(value):
            return value
        builder = functools.partial(models.build, super().convert(value, param, ctx))
        builder.name = builder.args[0]
        return builder


class Picture(click.Path):
    """Where a plot is written; refused before anything is measured if there is nothing to draw it with."""

    name = "file"

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(self, value, param, ctx) -> Path:
        """Refuse any file where Matplotlib is missing."""
        if find_spec("matplotlib") is None:
            self.fail("there is no Matplotlib to draw it with. The cure: pip install 'optdb[profiles]'", param, ctx)
        return super().convert(value, param, ctx)


MODEL = ModelBuilder()
MODEL_NAME = ModelName()
PICTURE = Picture()

way_option = click.option(
    "--way", type=click.Choice(["stock", "optdb"]), default="stock", show_default=True, help="Whose optimizer."
)


def way(name: str) -> ways.Way:
    """The way that `way_option` named."""
    return ways.topological() if name == "optdb" else ways.stock()
