"""Old names of attributes and of what modules have, which warn and lead to the new ones; each stays for one release.

Nothing of optdb is imported here, so that every folder can.
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
    """Return a read-only property that warns, and gives another attribute of the object.

    Parameters
    ----------
    old, new : str
        The names; the new one may be that of an attribute's attribute, with a dot.
    """
    get = operator.attrgetter(new)

    def read(self: Any) -> Any:
        warn_renamed(f"{type(self).__name__}.{old}", f".{new}")
        return get(self)

    return property(read, doc=f"An old name of `{new}`.")


def renamed_names(module: str, new_names: Mapping[str, str]) -> Callable[[str], Any]:
    """Return what a module needs as its ``__getattr__`` so that old names warn, and give what has a new one.

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
    """Return a decorator for a class whose constructor's keywords, and attributes, have changed their names.

    A keyword by its old name warns, and counts for the new one, as does reading the attribute. Where both names are
    given, the old one counts: ``dataclasses.replace(it, old=...)`` passes all fields.

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
