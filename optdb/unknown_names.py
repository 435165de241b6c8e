"""The error for a name that does not exist. All folders may import this module."""

from __future__ import annotations

__all__ = ["UnknownName"]


class UnknownName(KeyError):
    """There is no object with this name. Unlike `KeyError`, it prints its message without quotes."""

    def __str__(self) -> str:
        return str(self.args[0])
