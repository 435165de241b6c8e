"""The folder in the user's cache where optdb keeps files, and how they are written there.

Nothing of optdb is imported here, so that every folder can.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from platformdirs import user_cache_dir

__all__ = ["cache_dir", "replace_file"]


def cache_dir() -> Path:
    """Return optdb's folder in the user's cache, which need not be there."""
    return Path(user_cache_dir("optdb", appauthor=False))


def replace_file(path: Path, content: bytes) -> None:
    """Write a file in one step: other processes read what was there before, or all of the content.

    Raises
    ------
    OSError
        If it cannot be written; then nothing is left of it. The file's folder is made if it is not there.
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
