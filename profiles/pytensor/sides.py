"""The configurations (sides) that are compared: PyTensor's default mode, OpenCL, JAX, and other modes."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

__all__ = ["DEFAULT", "OPENCL", "SIDES", "Side", "available", "load", "missing"]

DEFAULT = "default"
OPENCL = "opencl"


@dataclass(frozen=True)
class Side:
    """A configuration: a mode of PyTensor (None for the default), and modules to import before it is used."""

    name: str
    mode: str | None
    modules: tuple[str, ...]


SIDES: dict[str, Side] = {
    side.name: side
    for side in (
        Side(DEFAULT, None, ("pytensor.link.numba.dispatch",)),
        Side(OPENCL, "OPENCL", ("optdb.pytensor",)),
        Side("jax", "JAX", ("jax", "pytensor.link.jax.dispatch")),
        Side("c", "CVM", ()),
        Side("python", "FAST_COMPILE", ()),
    )
}


def available(name: str) -> bool:
    """Return whether the modules that a configuration needs are installed."""
    return not missing(name)


def missing(name: str) -> list[str]:
    """Return the modules that a configuration needs and that are not installed."""
    return [module for module in SIDES[name].modules if not _is_installed(module)]


def _is_installed(module: str) -> bool:
    # Check the package first, because finding a submodule imports the package.
    return find_spec(module.partition(".")[0]) is not None and find_spec(module) is not None


def load(name: str) -> Any:
    """Import the modules that a configuration needs, and return the mode."""
    for module in SIDES[name].modules:
        importlib.import_module(module)
    return SIDES[name].mode
