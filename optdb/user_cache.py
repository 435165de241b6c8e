"""optdb's folder in the user's cache, and atomic replacement of files.

This module imports nothing of optdb, so that every package can import it.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from platformdirs import user_cache_dir

__all__ = ["cache_dir", "replace_file"]


def cache_dir() -> Path:
    """Return optdb's folder in the user's cache, which may not exist yet."""
    return Path(user_cache_dir("optdb", appauthor=False))


def replace_file(path: Path, content: bytes) -> None:
    """Write a file atomically: other processes read the former content or all of the new one.

    The file's folder is created if it does not exist.

    Raises
    ------
    OSError
        If the file cannot be written. No temporary file is left.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    draft = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
