"""Common code of the command lines: argument types that reject unknown names, and the option ``--way``."""

from __future__ import annotations

from dataclasses import dataclass

import click

from profiles import models, ways
from profiles.terminal import PICTURE

__all__ = ["MODEL", "MODEL_NAME", "PICTURE", "ModelBuilder", "ModelName", "way", "way_option"]


class ModelName(click.ParamType):
    """The name of a model."""

    name = "model"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Accept the name of a known model; for other names, raise an error that lists the known models."""
        if value in models.known():
            return value
        names = [*models.known(), *models.of_libraries()]
        if value not in names:
            self.fail(f"no model is named {value!r}; known are: {', '.join(names)}", param, ctx)
        return value


@dataclass(frozen=True)
class Builder:
    """Builds a new copy of a model at each call."""

    name: str

    def __call__(self) -> models.Model:
        """Build the model."""
        return models.build(self.name)


class ModelBuilder(click.ParamType):
    """The name of a model; it is converted to a `Builder`."""

    name = "model"

    def convert(self, value: str | Builder, param: click.Parameter | None, ctx: click.Context | None) -> Builder:
        """Accept the name of a known model; for other names, raise an error that lists the known models."""
        return value if isinstance(value, Builder) else Builder(MODEL_NAME.convert(value, param, ctx))


MODEL_NAME = ModelName()
MODEL = ModelBuilder()

way_option = click.option(
    "--way", type=click.Choice(["stock", "optdb"]), default="stock", show_default=True, help="Whose optimizer."
)


def way(name: str) -> ways.Way:
    """Return the optimizer (`Way`) that the value of `way_option` names."""
    return ways.topological() if name == "optdb" else ways.stock()
