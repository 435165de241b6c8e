"""The error for an unknown name, and the search for the most similar name.

This module imports nothing from optdb, so that every package can import it.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["UnknownName", "nearest"]


class UnknownName(KeyError):
    """Raised if no object has the given name.

    Unlike a `KeyError`, this error is printed without quotes around its message.
    """

    def __str__(self) -> str:
        return str(self.args[0])


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the name that is most similar to `name`; None if no name is similar."""
    import difflib  # imported here, because only errors need difflib

    return next(iter(difflib.get_close_matches(name, list(names), n=1)), None)
