"""Small PyMC models of many kinds, as users write them, in addition to the twelve models that grow.

Each is a function without arguments that returns the model; `replaced_data` also returns a function that changes its
data.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

from profiles.pytensor.gallery import counts, data, hierarchies, mixtures, processes, series, survival

__all__ = ["GALLERY", "build"]


def _models(family: ModuleType) -> dict[str, Callable[[], Any]]:
    """Return the models of a family, in the order in which they are written."""
    functions = inspect.getmembers(family, inspect.isfunction)
    own = [(name, one) for name, one in functions if one.__module__ == family.__name__ and not name.startswith("_")]
    return dict(sorted(own, key=lambda item: item[1].__code__.co_firstlineno))


#: The models by name.
GALLERY: dict[str, Callable[[], Any]] = {
    name: builder
    for family in (hierarchies, counts, mixtures, survival, series, processes, data)
    for name, builder in _models(family).items()
}


def build(name: str) -> tuple[Any, Callable[[], None] | None]:
    """Return a model, and the function that changes its data, or None if there is no such function."""
    built = GALLERY[name]()
    return built if isinstance(built, tuple) else (built, None)
