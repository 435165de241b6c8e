"""Builders of real models: `build` builds a model by name, and `known` returns the names.

Each module in this folder contains a family of models, and registers them when it is imported here. ``base`` defines
the table of models, and ``parts`` contains common code. The Keras models are only available if Keras is installed. In a
checkout of optdb, the models of the package ``models`` can also be built by name if their libraries are installed.
"""

import importlib
import importlib.util

from profiles.models import (  # noqa: F401  imported so that they register their models
    attention,
    base,
    feedforward,
    keras_nets,
    probabilistic,
    recurrent,
    stick_breaking,
)
from profiles.models.base import Model, UnknownModel, known, register

__all__ = ["Model", "UnknownModel", "build", "dtype_of", "known", "of_libraries", "register"]


def of_libraries() -> list[str]:
    """Return the names of the models in the package ``models`` that can be built here, and that are not `known`."""
    if importlib.util.find_spec("models") is None:
        return []
    return [name for name in importlib.import_module("models").available() if name not in known()]


def _is_of_libraries(name: str) -> bool:
    # Compare with the known names first, because searching for the libraries takes longer than building a small model.
    return name not in known() and name in of_libraries()


def build(name: str, **sizes: object) -> Model:
    """Build a model by name; `sizes` replace default sizes. Raise `UnknownModel` if there is no such model."""
    builders = importlib.import_module("models") if _is_of_libraries(name) else base
    return builders.build(name, **sizes)


def dtype_of(name: str) -> str:
    """Return the floatX with which a model is normally used."""
    return importlib.import_module("models").entry(name).floatX if _is_of_libraries(name) else "float32"
