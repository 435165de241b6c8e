"""Faster op equality and hashes, which are computed once per op object.

While graphs are optimized, each op object gets a number on first use. Equal ops get the same number, so comparing and
hashing are look-ups. Immutable ops (`settled`) keep their hash permanently. `install` gives the op classes methods that
look up these numbers and hashes. A holder is a caller of `install`; the methods remain until every holder has called
`uninstall`.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable
from typing import Any

from theano.scan_module.scan_op import Scan
from theano.tensor.var import TensorConstant

from optdb.host.api.graph import MetaObject, PureOp, op_classes
from optdb.host.api.patching import Patch, PatchGroup, Wrapper

_originals_eq: dict[type, Callable[[Any, Any], Any]] = {}
_originals_hash: dict[type, Callable[[Any], int]] = {}


class OpNumbering:
    """Gives a number to each op object; equal ops have equal numbers.

    Attributes
    ----------
    of : dict
        Maps the id of an op to ``(op, hash, number)``; empty while no optimization runs.
    users : int
        The number of running optimizations.
    """

    def __init__(self) -> None:
        self.of: dict[int, tuple[Any, int, int]] = {}
        self.users = 0
        #: Maps a key, which equal ops share, to the distinct ops with this key.
        self._by_value: dict[Any, list[tuple[Any, int, int]]] = {}
        #: Maps class and props to hash and number, for ops with Theano's generated methods.
        self._by_props: dict[tuple[type, tuple[Any, ...]], tuple[int, int]] = {}
        self._count = 0

    def enter(self, op: Any) -> tuple[Any, int, int]:
        """Give `op` a number; ops that are equal according to their class's own ``__eq__`` get the same number.

        Raises
        ------
        TypeError
            If `op` is unhashable.
        """
        props = _props_of(type(op))  # type: ignore[arg-type]  # the hash of the class, not of its ops
        entry = self._enter_by_equality(op) if props is None else self._enter_by_props(op, props)
        self.of[id(op)] = entry
        return entry

    def _enter_by_props(self, op: Any, props: tuple[str, ...]) -> tuple[Any, int, int]:
        # Theano's generated methods hash and compare the class and the props, which this tuple contains.
        key = (type(op), tuple([getattr(op, name) for name in props]))
        known = self._by_props.get(key)
        if known is None:
            self._count += 1
            known = self._by_props[key] = (hash(key), self._count)
        return (op, *known)

    def _enter_by_equality(self, op: Any) -> tuple[Any, int, int]:
        value = _original(type(op), "__hash__", _originals_hash)(op)
        equal = _original(type(op), "__eq__", _originals_eq)
        # The hash of a Scan depends on the mode of its inner function. Equality does not, and Theano merges equal
        # Scans.
        candidates = self._by_value.setdefault(type(op) if isinstance(op, Scan) else value, [])
        for other, its_hash, its_number in candidates:
            if type(other) is type(op) and equal(op, other):
                return (op, its_hash, its_number)
        self._count += 1
        entry = (op, value, self._count)
        candidates.append(entry)
        return entry

    def clear(self) -> None:
        self.of.clear()
        self._by_value.clear()
        self._by_props.clear()
        _props_of.cache_clear()


def _original(cls: type, name: str, originals: dict[type, Any]) -> Any:
    for base in cls.__mro__:
        if base in originals:
            return originals[base]
        if name in vars(base):
            return vars(base)[name]
    raise AttributeError(name)


class _ByProps(metaclass=MetaObject):
    """A class with ``__props__``, for which Theano generates ``__eq__`` and ``__hash__``."""

    __props__ = ()


_HASH_BY_PROPS = _ByProps.__hash__.__code__
_EQ_BY_PROPS = _ByProps.__eq__.__code__


@functools.cache
def _props_of(cls: type) -> tuple[str, ...] | None:
    """Return the attributes that Theano's generated methods compare; None if the class has methods of its own."""
    hashed = _original(cls, "__hash__", _originals_hash)
    equal = _original(cls, "__eq__", _originals_eq)
    if getattr(hashed, "__code__", None) is not _HASH_BY_PROPS or getattr(equal, "__code__", None) is not _EQ_BY_PROPS:
        return None
    props = hashed.__closure__[0].cell_contents
    return props if equal.__closure__[0].cell_contents == props else None


def own_hash(cls: type) -> Callable[[Any], int] | None:
    """Return a class's own ``__hash__``; None if its ops are unhashable."""
    return _original(cls, "__hash__", _originals_hash)


numbers = OpNumbering()

#: Maps the id of an immutable op to its hash (None until the first look-up); the entry is removed before the op dies.
settled: dict[int, int | None] = {}


def _quick_eq(cls: type, original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    entries = numbers.of

    def __eq__(self: Any, other: Any) -> Any:  # noqa: N807  it becomes the class's own method
        if self is other:
            return True
        entry = entries.get(id(self))
        other_entry = entries.get(id(other))
        if entry is not None and other_entry is not None:
            return entry[2] == other_entry[2]
        # If a subclass's own __eq__ calls this method, return the result of the base class.
        own: Any = type(self).__eq__
        if type(self) is not type(other) or own is not __eq__:
            return original(self, other)
        if not numbers.users:
            return not _hashes_differ(self, other) and original(self, other)
        entry = entry or _entry(self)
        other_entry = other_entry or _entry(other)
        if entry is None or other_entry is None:
            return original(self, other)
        return entry[2] == other_entry[2]

    __eq__.quick = True  # type: ignore[attr-defined]  # a mark on a function
    return __eq__


def _hashes_differ(op: Any, other_op: Any) -> bool:
    """Return whether the cached hashes of two ops prove that the ops differ."""
    op_hash, other_hash = settled.get(id(op)), settled.get(id(other_op))
    if op_hash is None or other_hash is None or op_hash == other_hash:
        return False
    return not isinstance(op, Scan)  # equal Scans may have different hashes, see OpNumbering.enter


def _quick_hash(cls: type, original: Callable[[Any], int]) -> Callable[[Any], int]:
    entries = numbers.of

    def __hash__(self: Any) -> int:  # noqa: N807  it becomes the class's own method
        own: Any = type(self).__hash__
        if own is not __hash__:
            return original(self)
        if numbers.users:
            entry = entries.get(id(self)) or _entry(self)
            return original(self) if entry is None else entry[1]
        cached = settled.get(id(self))
        if cached is not None:
            return cached
        value = original(self)
        if id(self) in settled:
            settled[id(self)] = value
        return value

    __hash__.quick = True  # type: ignore[attr-defined]  # a mark on a function
    return __hash__


def _entry(op: Any) -> tuple[Any, int, int] | None:
    try:
        return numbers.enter(op)
    except TypeError:
        return None


def _same_or(equals: Callable[[TensorConstant, Any], bool]) -> Callable[[TensorConstant, Any], bool]:
    @functools.wraps(equals)
    def constant_equals(self: TensorConstant, other: Any) -> bool:
        return self is other or equals(self, other)

    return constant_equals


_lock = threading.Lock()
_holders: set[str] = set()
_seen: set[type] = set()
_group = PatchGroup(
    "Equality of ops",
    "from optdb.enable() or the first optimization by the engine on, and while the op cache is installed",
    "optdb.disable(); optdb.cache.uninstall()",
)
_patches = _group.patches


def install(holder: str) -> None:
    """Make all existing op classes use the stored numbers and hashes until the last holder calls `uninstall`."""
    with _lock:
        if holder in _holders:
            return
        _holders.add(holder)
        if not _patches:
            reason = "a constant is compared with itself without reading its data"
            _patches.extend(_installed([Wrapper(TensorConstant, "equals", _same_or, reason)]))
        _cover(op_classes())


def uninstall(holder: str) -> None:
    """Remove a holder; if no holder remains, restore Theano's methods."""
    with _lock:
        _holders.discard(holder)
        if _holders:
            return
        _group.uninstall()
        _patches.clear()
        _seen.clear()


def cover(cls: type) -> None:
    """Make an op class created after `install`, and its base classes, use the stored numbers and hashes."""
    with _lock:
        if _holders:
            _cover(base for base in cls.__mro__ if issubclass(base, PureOp))


def _cover(classes: Iterable[type]) -> None:
    for cls in classes:
        if cls not in _seen:
            _seen.add(cls)
            _patches.extend(_installed(_patches_of(cls)))


def quicken(cls: type) -> None:
    """Make one op class use the stored numbers and hashes permanently, even without holders."""
    for patch in _patches_of(cls):
        patch.install()


def _installed(patches: list[Patch]) -> list[Patch]:
    for patch in patches:
        patch.install()
    return patches


def _patches_of(cls: type) -> list[Patch]:
    attributes = vars(cls)
    equal, hashed = attributes.get("__eq__"), attributes.get("__hash__")
    if not callable(equal) or not callable(hashed) or hasattr(equal, "quick"):
        return []
    _originals_eq[cls] = equal
    _originals_hash[cls] = hashed
    reason = "ops are compared by a number that each op has"
    return [
        Patch(cls, "__eq__", _quick_eq(cls, equal), reason),
        Patch(cls, "__hash__", _quick_hash(cls, hashed), reason),
    ]
