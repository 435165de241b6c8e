"""Makes a module fall back to the names of another module."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection
from types import ModuleType
from typing import Any


def fall_back_to(
    original: ModuleType | str, namespace: dict[str, Any], submodules: Collection[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a module that replaces another.

    The names that `namespace` lacks come from `original`, which is imported on first use if it is a name; the names in
    `submodules` are the module's own submodules.
    """

    def __getattr__(name: str) -> Any:  # noqa: N807
        if name.startswith("__") and name.endswith("__") and name != "__version__":
            raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}")
        if name in submodules:
            return importlib.import_module(f"{namespace['__name__']}.{name}")
        value = getattr(_imported(original), name)
        namespace[name] = value  # so that the next use does not call this function
        return value

    def __dir__() -> list[str]:  # noqa: N807
        return sorted({*dir(_imported(original)), *namespace, *submodules})

    return __getattr__, __dir__


def _imported(module: ModuleType | str) -> ModuleType:
    return importlib.import_module(module) if isinstance(module, str) else module
