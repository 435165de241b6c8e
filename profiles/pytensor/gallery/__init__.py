"""Small PyMC models of many kinds, as users write them; `profiles.pytensor.models` has larger ones.

Each model is a function that needs no arguments and returns the model. `replaced_data` also returns a function that
changes the model's data. The models with missing data also have a large size.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

from profiles.pytensor.gallery import data, hierarchies, likelihoods, processes, series

__all__ = ["GALLERY", "LARGE", "build"]


def _models(family: ModuleType) -> dict[str, Callable[..., Any]]:
    """Return the models of a family, in the order in which they are written."""
    functions = inspect.getmembers(family, inspect.isfunction)
    own = [(name, one) for name, one in functions if one.__module__ == family.__name__ and not name.startswith("_")]
    return dict(sorted(own, key=lambda item: item[1].__code__.co_firstlineno))


#: The models by name.
GALLERY: dict[str, Callable[..., Any]] = {
    name: builder
    for family in (hierarchies, likelihoods, series, processes, data)
    for name, builder in _models(family).items()
}


#: For each model with a large size, the number of rows in this size.
LARGE = {"missing_outcomes": 100_000, "missing_covariates": 100_000}


def build(name: str, size: str = "small") -> tuple[Any, Callable[[], None] | None]:
    """Return a model, and the function that changes its data; None instead of the function if there is none."""
    built = GALLERY[name](LARGE[name]) if size == "large" and name in LARGE else GALLERY[name]()
    return built if isinstance(built, tuple) else (built, None)
