"""Finds the whole-array function that computes an Apply node, by the class of its op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from optdb.host.api.graph import Apply

__all__ = ["Compute", "Maker", "computes", "function_of"]

#: Computes a node: takes the values of its inputs and the storage cells of its outputs, like ``Op.perform``.
Compute = Callable[[Sequence[Any], Sequence[list[Any]]], None]
#: Makes the function of a node; returns None if ``perform`` is the better choice.
Maker = Callable[[Apply], "Compute | None"]

_makers: dict[type | str, Maker] = {}


def computes(*op_types: type | str) -> Callable[[Maker], Maker]:
    """Register the decorated function as the maker of functions for nodes of these ops.

    Subclasses that inherit ``perform`` share it; those with their own ``perform`` do not. An op is a class, or
    its module and name if importing the module takes long.
    """

    def register(make: Maker) -> Maker:
        _makers.update(dict.fromkeys(op_types, make))
        return make

    return register


def function_of(node: Apply) -> Compute | None:
    """Return the whole-array function that computes `node`; None if ``perform`` must be used."""
    op_type = type(node.op)
    bases: tuple[Any, ...] = op_type.__mro__  # registered ones have ``perform``
    for base in bases:
        make = _makers.get(base) or _makers.get(f"{base.__module__}.{base.__qualname__}")
        if make is not None:
            inherits = op_type.perform is base.perform and "perform" not in vars(node.op)
            return make(node) if inherits else None
    return None
