"""Deprecated names of attributes and module members: they warn and give the new ones, each for one release.

This module imports nothing of optdb, so that every package can import it.
"""

from __future__ import annotations

import functools
import operator
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["renamed", "renamed_fields", "renamed_names", "warn_renamed"]


def warn_renamed(old: str, new: str, stacklevel: int = 3) -> None:
    """Warn that a name has changed.

    Parameters
    ----------
    old, new : str
        The names, as a user writes them.
    stacklevel : int
        Which caller the warning is about, as for `warnings.warn` in the function that calls this one.
    """
    warnings.warn(f"{old} is now {new}, and goes away with the next release", FutureWarning, stacklevel=stacklevel)


def renamed(old: str, new: str) -> property:
    """Return a read-only property that warns and returns another attribute of the object.

    Parameters
    ----------
    old, new : str
        The names; the new one may be a dotted path.
    """
    get = operator.attrgetter(new)

    def read(self: Any) -> Any:
        warn_renamed(f"{type(self).__name__}.{old}", f".{new}")
        return get(self)

    return property(read, doc=f"An old name of `{new}`.")


def renamed_names(module: str, new_names: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a module's ``__getattr__``, by which old names warn and give the objects with the new names.

    Parameters
    ----------
    module : str
        The module's own ``__name__``.
    new_names : mapping of str to str
        By old name.
    """

    def read(name: str) -> Any:
        if name not in new_names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warn_renamed(f"{module}.{name}", f"{module}.{new_names[name]}")
        return getattr(sys.modules[module], new_names[name])

    return read


def renamed_fields(**new_names: str) -> Callable[[type], type]:
    """Return a class decorator for renamed keywords of the constructor and renamed attributes.

    An old keyword warns and sets the new one; reading an old attribute warns and returns the new one. If both keywords
    are passed, the old one has priority: ``dataclasses.replace(it, old=...)`` passes all fields.

    Parameters
    ----------
    **new_names : str
        By old name.
    """

    def decorate(cls: type) -> type:
        init = cls.__init__

        @functools.wraps(init)
        def accept(self: Any, *args: Any, **kwargs: Any) -> None:
            for old in [name for name in kwargs if name in new_names]:
                new = new_names[old]
                warn_renamed(f"{cls.__name__}({old}=...)", f"{cls.__name__}({new}=...)")
                kwargs[new] = kwargs.pop(old)
            init(self, *args, **kwargs)

        cls.__init__ = accept
        for old, new in new_names.items():
            setattr(cls, old, renamed(old, new))
        return cls

    return decorate
