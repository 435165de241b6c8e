"""What the command lines share: types of arguments, which refuse what is not there, and the option for a way."""

from __future__ import annotations

import functools
from collections.abc import Callable

import click

from profiles import models, ways
from profiles.pictures import PICTURE

__all__ = ["MODEL", "MODEL_NAME", "PICTURE", "ModelBuilder", "ModelName", "way", "way_option"]


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


MODEL = ModelBuilder()
MODEL_NAME = ModelName()

way_option = click.option(
    "--way", type=click.Choice(["stock", "optdb"]), default="stock", show_default=True, help="Whose optimizer."
)


def way(name: str) -> ways.Way:
    """The way that `way_option` named."""
    return ways.topological() if name == "optdb" else ways.stock()
