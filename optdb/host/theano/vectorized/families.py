"""The modules that register functions of arrays, one for each family of ops; loaded with the first Python thunk."""

from __future__ import annotations

import functools
import importlib

__all__ = ["load"]

_FAMILIES = (
    "arranging",
    "classification",
    "convolutions",
    "draws",
    "elementwise",
    "indexing",
    "neighbours",
    "pooling",
    "reductions",
    "structured_dots",
)


@functools.lru_cache(maxsize=1)
def load() -> None:
    """Import all families, which registers their ops."""
    for family in _FAMILIES:
        importlib.import_module(f"optdb.host.theano.vectorized.{family}")
