"""``arviz`` for PyMC3 3.9, which uses it for statistics and plots.

PyMC3 3.9 was written for arviz 0.9 to 0.11, which convert PyMC3's traces. With later versions, `from_trace` converts
them. Names that arviz lacks become functions that raise when called.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np

from optdb.host.theano.importing.compat.modules._falling_back import Optional

CURE = 'pip install "arviz<0.12" where it supports this NumPy, "arviz<1" elsewhere'

with warnings.catch_warnings():
    # Suppress messages on import: arviz 0.23 announces version 1, and version 1 announces its new classes.
    warnings.simplefilter("ignore", FutureWarning)
    _package = Optional("arviz", CURE)
    InferenceData = _package.make_class("InferenceData")


def __getattr__(name: str) -> Any:
    if name == "from_pymc3" and not _package.has(name):
        return from_trace
    if _package.has("from_pymc3") or not _package.has(name):
        return _package.get(name)
    return _converting(_package.get(name))


def from_trace(trace: Any, *, model: Any = None, save_warmup: bool = False, **options: Any) -> Any:
    """Convert a PyMC3 trace to arviz's group ``posterior``, without statistics and likelihoods.

    If arviz is missing, warn and return no groups.

    Raises
    ------
    NotImplementedError
        For ``save_warmup``, and options other than ``coords`` and ``dims``.
    """
    if save_warmup or not options.keys() <= {"coords", "dims"}:
        raise NotImplementedError(_package.describe_missing("from_pymc3"))
    if not _package.has("from_dict"):
        warnings.warn(
            f"PyMC3's convergence checks are skipped: {_package.describe_missing('from_pymc3')}\n"
            "To skip them without this warning: pymc3.sample(..., compute_convergence_checks=False)",
            stacklevel=3,
        )
        return InferenceData()
    from pymc3.util import get_default_varnames

    names = get_default_varnames(trace.varnames, include_transformed=False)
    draws = {name: np.stack(trace.get_values(name, combine=False, squeeze=False)) for name in names}
    # Version 1 takes all groups as its first argument.
    groups = {"posterior": draws} if _major_version() >= 1 else draws
    return _package.get("from_dict")(groups, **options)


def _converting(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make an arviz function accept PyMC3's traces; return objects other than functions unchanged."""
    if not isinstance(function, FunctionType):
        return function

    @functools.wraps(function)
    def convert_and_call(*args: Any, **options: Any) -> Any:
        return function(
            *(_converted(value) for value in args), **{name: _converted(value) for name, value in options.items()}
        )

    return convert_and_call


def _converted(value: Any) -> Any:
    traces = sys.modules.get("pymc3.backends.base")
    return from_trace(value) if traces is not None and isinstance(value, traces.MultiTrace) else value


def _major_version() -> int:
    return int(_package.get("__version__").partition(".")[0])


def _plots() -> SimpleNamespace:
    """Return a namespace of arviz's plot functions; it is empty if arviz does not list them."""
    module = getattr(_package.module, "plots", None)
    names = getattr(module, "__all__", ())
    return SimpleNamespace(__all__=list(names), **{name: __getattr__(name) for name in names})


plots = _plots()
