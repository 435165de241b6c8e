"""Old names of attributes, which warn and lead to the new ones; each stays for one release.

Nothing of optdb is imported here, so that every folder can.
"""

from __future__ import annotations

import operator
import warnings
from typing import Any

__all__ = ["renamed", "warn_renamed"]


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
