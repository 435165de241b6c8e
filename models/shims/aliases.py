"""Names that were dropped from Python's collections and inspect, and from NumPy."""

from __future__ import annotations

import builtins
import collections
import collections.abc
import inspect
from typing import Any

import numpy as np

#: Builtin types that NumPy 1.24 dropped its own names of.
BUILTIN_TYPES = ("bool", "int", "float", "complex", "object", "str")


def install_aliases() -> None:
    """Set the names that are missing."""
    for name in collections.abc.__all__:
        _set_default(collections, name, getattr(collections.abc, name))
    for name in BUILTIN_TYPES:
        _set_default(np, name, getattr(builtins, name))
    _set_default(np, "asscalar", np.ndarray.item)
    for old, new in (("product", "prod"), ("cumproduct", "cumprod"), ("alltrue", "all"), ("sometrue", "any")):
        _set_default(np, old, getattr(np, new))
    for old, new in (("Inf", "inf"), ("NaN", "nan"), ("float_", "float64"), ("complex_", "complex128")):
        _set_default(np, old, getattr(np, new))
    _set_default(np.testing, "Tester", _Tester)
    _set_default(inspect, "getargspec", _getargspec)


def _set_default(module: Any, name: str, value: object) -> None:
    # Not hasattr: NumPy 1.20 to 1.23 warn when the old names are looked up.
    if name not in vars(module):
        setattr(module, name, value)


ArgSpec = collections.namedtuple("ArgSpec", "args varargs keywords defaults")


class _Tester:
    """Stands in for the runner of a package's tests, which PyMC3 makes one of as it is imported."""

    def test(self, *_: object, **__: object) -> None:
        """Say that there is nothing to run."""
        raise NotImplementedError("NumPy has no runner of tests any more: use pytest")


def _getargspec(function: Any) -> ArgSpec:
    """Do what inspect.getargspec did."""
    spec = inspect.getfullargspec(function)
    return ArgSpec(spec.args, spec.varargs, spec.varkw, spec.defaults)
