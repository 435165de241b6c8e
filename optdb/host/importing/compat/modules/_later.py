"""Makes functions that import the module that they come from when they are called."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


def later(module: str, name: str) -> Callable[..., Any]:
    """Return a function that stands for one of a module that takes long to import.

    Parameters
    ----------
    module, name : str
        Where the function is, and what it is called there.
    """

    def call(*args: Any, **options: Any) -> Any:
        return getattr(importlib.import_module(module), name)(*args, **options)

    call.__name__ = call.__qualname__ = name
    return call
