"""Maps op classes to whole-array functions.

The modules in `_FAMILIES` register these functions, and are loaded on the first call to `function_of`.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from optdb.host.api.graph import Apply

#: Computes a node, given the inputs' values and the outputs' storage cells, as ``Op.perform`` does.
Compute = Callable[[Sequence[Any], Sequence[list[Any]]], None]
#: Makes the function for a node; returns None if ``perform`` is better.
Maker = Callable[[Apply], "Compute | None"]

_FAMILIES = (
    *("arranging", "classification", "convolutions", "draws", "elementwise", "pooling"),
    *("reductions", "structured_dots"),
)

_makers: dict[type | str, Maker] = {}


def computes(*op_types: type | str) -> Callable[[Maker], Maker]:
    """Register the decorated function as a maker: it returns the function that computes a node of these ops.

    The maker also applies to subclasses that inherit ``perform``. Each op is given as a class, or as the class's dotted
    name if importing its module is slow.
    """

    def register(make: Maker) -> Maker:
        _makers.update(dict.fromkeys(op_types, make))
        return make

    return register


def function_of(node: Apply) -> Compute | None:
    """Return the whole-array function for a node; None if it must use ``perform``."""
    _load_families()
    op_type = type(node.op)
    bases: tuple[Any, ...] = op_type.__mro__  # registered ones have ``perform``
    for base in bases:
        make = _makers.get(base) or _makers.get(f"{base.__module__}.{base.__qualname__}")
        if make is not None:
            inherits = op_type.perform is base.perform and "perform" not in vars(node.op)
            return make(node) if inherits else None
    return None


@functools.lru_cache(maxsize=1)
def _load_families() -> None:
    for family in _FAMILIES:
        importlib.import_module(f"optdb.host.theano.vectorized.{family}")


_IGNORE_ALL = [8192, 0, None]


def _by_errstate(compute: Callable[..., None]) -> Callable[..., None]:
    def compute_quietly(*args: Any) -> None:
        with np.errstate(all="ignore"):
            compute(*args)

    return compute_quietly


def _by_error_object(compute: Callable[..., None]) -> Callable[..., None]:
    get, put = np.geterrobj, np.seterrobj

    def compute_quietly(*args: Any) -> None:
        state = get()
        put(_IGNORE_ALL)
        try:
            compute(*args)
        finally:
            put(state)

    return compute_quietly


#: Ignores floating-point errors, as C does. In NumPy 1, setting the state directly takes 0.2 us, and ``np.errstate``
#: takes 2 us.
quiet = _by_error_object if hasattr(np, "seterrobj") else _by_errstate
