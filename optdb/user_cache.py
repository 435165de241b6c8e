"""optdb's folder in the user's cache.

This module imports nothing of optdb, so that every package can import it.
"""

from __future__ import annotations

from pathlib import Path

from platformdirs import user_cache_dir

__all__ = ["cache_dir"]


def cache_dir() -> Path:
    """Return optdb's folder in the user's cache, which may not exist yet."""
    return Path(user_cache_dir("optdb", appauthor=False))
