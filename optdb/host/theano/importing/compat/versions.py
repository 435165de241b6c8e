"""Decides which parts of the compatibility layer the installed versions need.

Versions are read from the packages' metadata, because ``import optdb`` imports neither NumPy nor SciPy.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

PYTHON_WITHOUT_DISTUTILS = (3, 12)
PYTHON_WITHOUT_OLD_CALLS = (3, 13)
NUMPY_WITHOUT_LISTS = (1, 23)
NUMPY_WITHOUT_ALIASES = (1, 24)
NUMPY_WITHOUT_VALUES = (2, 0)
SCIPY_CHANGED = (1, 12)

INDEXING_BY_LISTS = frozenset(["theano.tensor.signal.pool"])

#: The first version in which ``import scipy`` suffices to use ``scipy.stats``.
SCIPY_LAZY = (1, 10)


def version_text(package: str) -> str | None:
    """Return the installed version of a package as text; None if it is not installed."""
    in_folders = (list(_versions_in(folder or ".", package)) for folder in sys.path)
    versions = next(filter(None, in_folders), [])
    if len(versions) == 1:
        return versions[0]
    # The package has metadata other than a ``.dist-info`` folder, or files are left over from another version.
    import importlib.metadata

    try:
        return importlib.metadata.version(package)
    except (importlib.metadata.PackageNotFoundError, OSError, KeyError):
        # importlib_metadata, if imported, raises OSError if the file is missing and KeyError if the version is missing.
        return None


def _versions_in(folder: str, package: str) -> Iterator[str]:
    """Yield the versions of a package from the names of ``.dist-info`` folders.

    Reading the versions with ``importlib.metadata`` would take a tenth of the time that ``import theano`` takes.
    """
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.name.endswith(".dist-info")]
    except OSError:
        return
    for name in names:
        project, _, version = name.removesuffix(".dist-info").partition("-")
        if _normalized(project) == _normalized(package) and Path(folder, name, "METADATA").is_file():
            yield version


def _normalized(package: str) -> str:
    return re.sub("[-_.]+", "_", package).lower()


_installed: dict[str, tuple[int, ...]] = {}


def installed(package: str) -> tuple[int, ...]:
    """Return the installed version of a package as numbers; () if it is not installed."""
    if package not in _installed:
        version = version_text(package)
        if version is None:
            return ()  # a notebook may install the package later
        numbers = re.match(r"\d+(\.\d+)*", version)
        _installed[package] = tuple(int(part) for part in numbers.group().split(".")) if numbers else ()
    return _installed[package]


def needs_translation() -> bool:
    """Return whether Theano's source must be translated."""
    return (
        sys.version_info >= PYTHON_WITHOUT_DISTUTILS
        or installed("numpy") >= NUMPY_WITHOUT_ALIASES
        or installed("scipy") >= SCIPY_CHANGED
    )


def is_translated(module: str) -> bool:
    """Return whether a module of Theano is translated; with NumPy 1.23, only the few that fail are translated."""
    return needs_translation() or (module in INDEXING_BY_LISTS and installed("numpy") >= NUMPY_WITHOUT_LISTS)


def needs_promotion() -> bool:
    """Return whether NumPy promotes by type alone (NEP 50)."""
    return installed("numpy") >= NUMPY_WITHOUT_VALUES


def needs_header() -> bool:
    """Return whether Theano's C code needs the header of `ccode` to compile."""
    return sys.version_info >= PYTHON_WITHOUT_OLD_CALLS or installed("numpy") >= NUMPY_WITHOUT_VALUES
