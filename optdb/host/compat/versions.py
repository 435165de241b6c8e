"""Which parts of the compatibility layer the versions at hand need.

Versions are read from the packages' metadata: ``import optdb`` imports neither NumPy nor SciPy.
"""

from __future__ import annotations

import functools
import importlib.metadata
import re
import sys

#: The first versions that Theano's source does not run on as it is.
PYTHON_WITHOUT_DISTUTILS = (3, 12)
PYTHON_WITHOUT_OLD_CALLS = (3, 13)
NUMPY_WITHOUT_LISTS = (1, 23)
NUMPY_WITHOUT_ALIASES = (1, 24)
NUMPY_WITHOUT_VALUES = (2, 0)
SCIPY_CHANGED = (1, 12)

#: The modules that index arrays by lists of slices.
INDEXING_BY_LISTS = frozenset(["theano.tensor.signal.pool"])

#: From this version on ``import scipy`` is enough to use ``scipy.stats``.
SCIPY_LAZY = (1, 10)


@functools.cache
def installed(package: str) -> tuple[int, ...]:
    """Return the installed version of a package as numbers, () where there is none."""
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ()
    numbers = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in numbers.group().split(".")) if numbers else ()


def needs_translation() -> bool:
    """Whether Theano's source has to be translated to run here."""
    return (
        sys.version_info >= PYTHON_WITHOUT_DISTUTILS
        or installed("numpy") >= NUMPY_WITHOUT_ALIASES
        or installed("scipy") >= SCIPY_CHANGED
    )


def is_translated(module: str) -> bool:
    """Whether a module of Theano's has to be translated: all of them, or the few that NumPy 1.23 refuses already."""
    return needs_translation() or (module in INDEXING_BY_LISTS and installed("numpy") >= NUMPY_WITHOUT_LISTS)


def needs_promotion() -> bool:
    """Whether NumPy decides result types without looking at values (NEP 50)."""
    return installed("numpy") >= NUMPY_WITHOUT_VALUES


def needs_header() -> bool:
    """Whether Theano's C code needs the header of `ccode` to compile."""
    return sys.version_info >= PYTHON_WITHOUT_OLD_CALLS or installed("numpy") >= NUMPY_WITHOUT_VALUES
