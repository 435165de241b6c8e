"""Inverts truth values as C and NumPy do where a scalar op computes in Python.

A `Composite` without C code gets its elements as Python's objects, and ``~True`` is -2, which is as true as True.
Theano alone meets that where it fuses an inversion; the engine fuses more of them.
"""

from __future__ import annotations

from typing import Any

from theano.scalar.basic import Invert

from optdb.host.patching import Patch, PatchGroup

__all__ = ["install"]


def _invert(self: Invert, x: Any) -> Any:
    """Return the inverse of a truth value, or of the bits of an integer."""
    return not x if isinstance(x, bool) else ~x


_patches = PatchGroup(
    "Truth values in Python",
    "from the import of Theano on",
    "nothing",
    [Patch(Invert, "impl", _invert, "~True is -2 for Python, which is true")],
)


def install() -> None:
    """Invert truth values as NumPy does, from now on."""
    _patches.install()
