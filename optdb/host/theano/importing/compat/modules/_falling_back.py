"""Helpers for replacement modules: fall back to the original's names, defer imports, and replace missing packages."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection
from types import ModuleType
from typing import Any, NoReturn


def fall_back_to(
    original: ModuleType | str, namespace: dict[str, Any], submodules: Collection[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a module that replaces the module `original`.

    Names that `namespace` lacks come from `original`, which is imported on first use if it is given as a module's name.
    The names in `submodules` are the module's own submodules.
    """

    def __getattr__(name: str) -> Any:  # noqa: N807
        if name.startswith("__") and name.endswith("__") and name != "__version__":
            raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}")
        if name in submodules:
            return importlib.import_module(f"{namespace['__name__']}.{name}")
        value = getattr(_imported(original), name)
        namespace[name] = value  # the next use finds the name without this function
        return value

    def __dir__() -> list[str]:  # noqa: N807
        return sorted({*dir(_imported(original)), *namespace, *submodules})

    return __getattr__, __dir__


def _imported(module: ModuleType | str) -> ModuleType:
    return importlib.import_module(module) if isinstance(module, str) else module


def later(module: str, name: str) -> Callable[..., Any]:
    """Return a picklable stand-in for a function; it imports the function's module on first use."""
    return _Later(module, name)


class _Later:
    def __init__(self, module: str, name: str) -> None:
        self._module, self.__name__ = module, name

    def __call__(self, *args: Any, **options: Any) -> Any:
        return getattr(importlib.import_module(self._module), self.__name__)(*args, **options)

    def __reduce__(self) -> tuple[Any, ...]:
        return later, (self._module, self.__name__)


class Optional:
    """A package that may be missing, fail to import, or lack names; error messages quote `cure`."""

    def __init__(self, name: str, cure: str) -> None:
        self.name = name
        self.cure = cure
        self.module: ModuleType | None = None
        self.reason = ""
        try:
            self.module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            missing = error.name or name
            self.reason = f"{name} is not installed" if missing == name else f"{name} needs {missing}"
        except Exception as error:
            # If the package's version is too old for the installed NumPy, the import can raise any exception.
            self.reason = f"{name} does not import here ({type(error).__name__}: {error})"

    def has(self, attribute: str) -> bool:
        """Return whether the package is available and has the given attribute."""
        return self.module is not None and hasattr(self.module, attribute)

    def get(self, attribute: str) -> Any:
        """Return the package's attribute, or a function that raises `NotImplementedError`."""
        if attribute.startswith("__") and attribute != "__version__":
            raise AttributeError(f"module {self.name!r} has no attribute {attribute!r}")
        if self.has(attribute):
            return getattr(self.module, attribute)
        return self._missing(attribute)

    def describe_missing(self, attribute: str) -> str:
        """Return a message that names the missing part and the fix."""
        reason = self.reason
        if self.module is not None:
            reason = f"{self.name} {getattr(self.module, '__version__', '')} has no {attribute}"
        return f"{self.name}.{attribute} is not available: {reason}.\nThe cure: {self.cure}"

    def _missing(self, attribute: str) -> Callable[..., NoReturn]:
        def missing(*args: object, **options: object) -> NoReturn:
            raise NotImplementedError(self.describe_missing(attribute))

        missing.__name__ = missing.__qualname__ = attribute
        return missing

    def make_class(self, attribute: str) -> type:
        """Return the package's class; if it is missing, a class that only supports annotations and instance checks."""
        if self.has(attribute):
            return getattr(self.module, attribute)

        def lookup(instance: object, name: str) -> NoReturn:
            raise AttributeError(f"{name}: {self.describe_missing(attribute)}")

        return type(attribute, (), {"__getattr__": lookup, "__doc__": f"Replaces ``{self.name}.{attribute}``."})
