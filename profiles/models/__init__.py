"""Builders of real models: `build` gives one by name, `known` lists the names.

Each module beside this one holds a family and registers its members when imported here; ``base``
has the table, ``parts`` what the families share. The Keras models take part only where Keras is
installed. The models of a checkout's package ``models`` are built by their names, too, where their
libraries are installed.
"""

import importlib
import importlib.util

from profiles.models import (  # noqa: F401  imported because they register themselves
    attention,
    base,
    feedforward,
    keras_nets,
    probabilistic,
    recurrent,
    residual,
    stick_breaking,
)
from profiles.models.base import Model, UnknownModel, known, register

__all__ = ["Model", "UnknownModel", "build", "dtype_of", "known", "of_libraries", "register"]


def of_libraries() -> list[str]:
    """Return the names of the package ``models`` that can be built here and that are not `known` ones."""
    if importlib.util.find_spec("models") is None:
        return []
    return [name for name in importlib.import_module("models").available() if name not in known()]


def _is_of_libraries(name: str) -> bool:
    # To look for the libraries takes longer than to build a small model of ours.
    return name not in known() and name in of_libraries()


def build(name: str, **sizes: object) -> Model:
    """Build a model.

    Parameters
    ----------
    name
        One of `known` or `of_libraries`.
    **sizes
        Replace the sizes that the name stands for.

    Raises
    ------
    UnknownModel
        The message lists the names that are known.
    """
    builders = importlib.import_module("models") if _is_of_libraries(name) else base
    return builders.build(name, **sizes)


def dtype_of(name: str) -> str:
    """Return the floatX in which a model's users compute."""
    return importlib.import_module("models").entry(name).floatX if _is_of_libraries(name) else "float32"
