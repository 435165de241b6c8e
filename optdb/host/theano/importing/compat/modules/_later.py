"""Makes functions that import their original module when they are called."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


def later(module: str, name: str) -> Callable[..., Any]:
    """Return a replacement for a function whose module takes long to import; it can be pickled, as Theano requires."""
    return _Later(module, name)


class _Later:
    def __init__(self, module: str, name: str) -> None:
        self._module, self.__name__ = module, name

    def __call__(self, *args: Any, **options: Any) -> Any:
        return getattr(importlib.import_module(self._module), self.__name__)(*args, **options)

    def __reduce__(self) -> tuple[Any, ...]:
        return later, (self._module, self.__name__)
