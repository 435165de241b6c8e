"""The key of an op: its class and its defining values, as one hashable value.

An op's definition comes from :mod:`optdb.host.api.definition`; values are converted
to keys by :mod:`optdb.cache.frozen`. A shared op that is part of another op's
definition, like the scalar op of an Elemwise, is compared by identity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from optdb.cache.frozen import Freezer, Same, Unhashable
from optdb.cache.inner import GraphKey, constant_key
from optdb.host.api.definition import (
    InnerGraph,
    carries_notes,
    declared,
    definition,
    has_inner_graph,
    hashes_itself,
    keeps_test_values,
)
from optdb.host.api.graph import Constant, PureOp


class Unshareable(Exception):
    """An op that cannot be shared; the message says why."""


@dataclass(frozen=True)
class Key:
    """The key of an op in the store.

    Parameters
    ----------
    declared : tuple
        The class and the values of its props.
    rest : tuple
        Names and values of all other defining attributes, sorted by name.
    label : str or None
        The name of the op.
    """

    declared: tuple[Any, ...]
    rest: tuple[tuple[str, Any], ...]
    label: str | None

    @property
    def whole(self) -> tuple[Any, ...]:
        """The whole key, for dictionaries."""
        return (self.declared, self.rest, self.label)

    @property
    def unnamed(self) -> tuple[Any, ...]:
        """The key without the label."""
        return (self.declared, self.rest, None)


class Keys:
    """Makes the keys of ops.

    Parameters
    ----------
    shared : callable
        Returns the shared op that is equal to an op; None if there is none.
    """

    def __init__(self, shared: Callable[[PureOp], PureOp | None]) -> None:
        self._shared = shared
        self._props = Freezer(special=self._special)
        self._rest = Freezer(changing=True, special=self._special)

    def of(self, op: PureOp) -> Key:
        """Return the key of `op`.

        Raises
        ------
        Unshareable
            If its class does not declare what defines its ops, or a defining value can change.
        """
        cls = type(op)
        names = declared(cls)
        if names is None:
            raise Unshareable("has no __props__")
        if has_inner_graph(cls) and keeps_test_values():
            raise Unshareable("carries test values in its inner graph")
        for name in names:
            if not hasattr(op, name):
                raise Unshareable(f"has no attribute {name!r}, which __props__ names")
        described = definition(op)
        if has_inner_graph(cls) and carries_notes(described.rest["graph"]):
            raise Unshareable("carries notes at variables of its inner graph")
        # Some classes have lists or dicts as props, with a hash of their own that supports them.
        freeze = self._rest if hashes_itself(cls) else self._props  # type: ignore[arg-type]  # the class's hash, not its ops'
        props = [_prop(freeze, name, value) for name, value in zip(names, described.props, strict=False)]
        rest = tuple([(name, self._rest(described.rest[name])) for name in sorted(described.rest)])
        return Key((cls, *props), rest, described.label)

    def _special(self, value: Any) -> Any:
        if isinstance(value, PureOp):
            shared = self._shared(value)
            return None if shared is None else Same(shared)
        if isinstance(value, InnerGraph):
            return GraphKey(value, self._rest)
        if isinstance(value, Constant):
            return constant_key(value, self._rest)
        return None


def _prop(freeze: Freezer, name: str, value: Any) -> Any:
    try:
        return freeze(value)
    except Unhashable as reason:
        raise Unshareable(f"prop {name!r} {reason}") from None
