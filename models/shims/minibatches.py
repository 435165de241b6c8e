"""Lets PyMC3's Minibatch index with the lists of slices that NumPy took for tuples before 1.23."""

from __future__ import annotations

from types import ModuleType
from typing import Any


def repair_minibatches(pymc3: ModuleType) -> None:
    """Make Minibatch build tuples where it builds lists."""
    minibatch = pymc3.data.Minibatch
    make_slices = minibatch.make_static_slices
    if getattr(make_slices, "repaired", False):
        return

    def make_tuple(user_size: Any) -> Any:
        slices = make_slices(user_size)
        return tuple(slices) if isinstance(slices, list) else slices

    make_tuple.repaired = True
    minibatch.make_static_slices = staticmethod(make_tuple)
