"""optdb's folder in the user's cache, and the warning if it is not writable.

This module imports nothing from optdb, so that every package can import it.
"""

from __future__ import annotations

import logging
from pathlib import Path

from platformdirs import user_cache_dir

__all__ = ["cache_dir", "warn_unwritable"]

_logger = logging.getLogger(__name__)

#: The pairs of description and folder that this process has warned about.
_warned: set[tuple[str, Path]] = set()


def cache_dir() -> Path:
    """Return optdb's folder in the user's cache, which may not exist yet."""
    return Path(user_cache_dir("optdb", appauthor=False))


def warn_unwritable(what: str, folder: Path, error: OSError, cost: str, variable: str = "XDG_CACHE_HOME") -> None:
    """Warn once per process that files cannot be saved in a folder.

    `cost` is a verb phrase that says what each process has to do instead, such as 'compiles it again'. The environment
    variable `variable` selects a different folder.
    """
    if (what, folder) in _warned:
        return
    _warned.add((what, folder))
    _logger.warning(
        "%s cannot be saved in %s (%s): each process %s.\n"
        "The cure: name a folder with space that can be written: export %s=FOLDER",
        *(what, folder, error.strerror or error, cost, variable),
    )
