"""Builders of real models: `build` gives one by name, `known` lists the names.

Each module beside this one holds a family and registers its members when imported here; ``base``
has the table, ``parts`` what the families share. The Keras models take part only where Keras is
installed.
"""

from profiles.models import (  # noqa: F401  imported because they register themselves
    feedforward,
    keras_nets,
    probabilistic,
    recurrent,
    residual,
    stick_breaking,
)
from profiles.models.base import Model, UnknownModel, build, known, register

__all__ = ["Model", "UnknownModel", "build", "known", "register"]
