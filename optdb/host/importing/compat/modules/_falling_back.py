"""Makes a module give the names of another one where it has none of its own."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any


def fall_back_to(
    original: ModuleType, namespace: dict[str, Any]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a module that stands for another.

    Parameters
    ----------
    original : module
        Asked for what the module lacks.
    namespace : dict
        The module's own globals.
    """

    def __getattr__(name: str) -> Any:  # noqa: N807
        if name.startswith("__") and name.endswith("__") and name != "__version__":
            raise AttributeError(f"module {original.__name__!r} has no attribute {name!r}")
        value = getattr(original, name)
        namespace[name] = value  # the next use does not come here
        return value

    def __dir__() -> list[str]:  # noqa: N807
        return sorted({*dir(original), *namespace})

    return __getattr__, __dir__
