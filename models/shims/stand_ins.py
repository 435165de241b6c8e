"""Stand-ins for arviz and xarray, which PyMC3 imports for its plots and statistics.

The arviz of its time does not install beside today's xarray, and no model here plots. The stand-ins have every name
that is asked for; what is called says that it is not there.
"""

from __future__ import annotations

import importlib.util
import sys
import types
from collections.abc import Callable


class InferenceData:
    """Stands in for arviz.InferenceData in annotations and instance checks."""


class Dataset:
    """Stands in for xarray.Dataset in annotations and instance checks."""


class StandIn(types.ModuleType):
    """A module that has every public name: functions that raise when they are called."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("_"):
            raise AttributeError(name)
        return _missing(f"{self.__name__}.{name}")


def install_stand_ins() -> None:
    """Make arviz and xarray importable, where they are not installed."""
    if not _is_importable("arviz"):
        arviz, plots = StandIn("arviz"), StandIn("arviz.plots")
        arviz.InferenceData, arviz.plots, plots.__all__ = InferenceData, plots, []
        sys.modules["arviz"], sys.modules["arviz.plots"] = arviz, plots
    if not _is_importable("xarray"):
        xarray = StandIn("xarray")
        xarray.Dataset = Dataset
        sys.modules["xarray"] = xarray


def _is_importable(name: str) -> bool:
    return name in sys.modules or importlib.util.find_spec(name) is not None


def _missing(name: str) -> Callable[..., None]:
    def missing(*args: object, **kwargs: object) -> None:
        raise NotImplementedError(f"{name} is not here: models/shims stands in for its package, for imports alone")

    missing.__name__ = name.rpartition(".")[2]
    return missing
