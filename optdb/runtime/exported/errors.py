"""What can be wrong with a file, or with a call of what is in it."""

from __future__ import annotations

__all__ = ["FileError", "LimitError", "ShapeError"]


class FileError(ValueError):
    """A file is not what it should be. The message says what is wrong with it, and what to do."""


class LimitError(FileError):
    """A file asks for more memory or work than it may take. The message says how to allow it."""


class ShapeError(ValueError):
    """A function in a file does not know what to do with such shapes, or with a value that decides over shapes."""
