"""Errors about a file, and about calls of its functions."""

from __future__ import annotations

__all__ = ["FileError", "LimitError", "ShapeError"]


class FileError(ValueError):
    """A file is not valid. The message names the fault and the cure."""


class LimitError(FileError):
    """A file needs more memory or work than its limits allow. The message says how to raise them."""


class ShapeError(ValueError):
    """A function in a file does not support the shapes of a call, or a value that determines shapes."""
