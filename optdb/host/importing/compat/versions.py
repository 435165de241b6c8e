"""Decides which parts of the compatibility layer the installed versions need.

Versions are read from the packages' metadata: ``import optdb`` imports neither NumPy nor SciPy.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys

#: The first versions that cannot run Theano's unchanged source.
PYTHON_WITHOUT_DISTUTILS = (3, 12)
PYTHON_WITHOUT_OLD_CALLS = (3, 13)
NUMPY_WITHOUT_LISTS = (1, 23)
NUMPY_WITHOUT_ALIASES = (1, 24)
NUMPY_WITHOUT_VALUES = (2, 0)
SCIPY_CHANGED = (1, 12)

#: The modules that index arrays by lists of slices.
INDEXING_BY_LISTS = frozenset(["theano.tensor.signal.pool"])

#: From this version on, ``import scipy`` suffices to use ``scipy.stats``.
SCIPY_LAZY = (1, 10)


_installed: dict[str, tuple[int, ...]] = {}


def installed(package: str) -> tuple[int, ...]:
    """Return the installed version of a package as numbers; () if it is not installed."""
    if package not in _installed:
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            return ()  # a notebook may install it later
        numbers = re.match(r"\d+(\.\d+)*", version)
        _installed[package] = tuple(int(part) for part in numbers.group().split(".")) if numbers else ()
    return _installed[package]


def needs_translation() -> bool:
    """Return whether Theano's source has to be translated to run."""
    return (
        sys.version_info >= PYTHON_WITHOUT_DISTUTILS
        or installed("numpy") >= NUMPY_WITHOUT_ALIASES
        or installed("scipy") >= SCIPY_CHANGED
    )


def is_translated(module: str) -> bool:
    """Return whether a module of Theano has to be translated: all, or only the few that fail with NumPy 1.23."""
    return needs_translation() or (module in INDEXING_BY_LISTS and installed("numpy") >= NUMPY_WITHOUT_LISTS)


def needs_promotion() -> bool:
    """Return whether NumPy promotes by type alone (NEP 50)."""
    return installed("numpy") >= NUMPY_WITHOUT_VALUES


def needs_header() -> bool:
    """Return whether Theano's C code needs the header of `ccode` to compile."""
    return sys.version_info >= PYTHON_WITHOUT_OLD_CALLS or installed("numpy") >= NUMPY_WITHOUT_VALUES
