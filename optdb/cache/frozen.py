"""Converts values to keys that are equal if the values are equal in type and in content.

The values themselves cannot be keys, because in Python, ``1 == 1.0 == True``, ``0.0 == -0.0``, a NaN differs from
itself, a dtype equals its name, and a list has no hash. Functions have equal keys if they have the same code, globals
and defaults, and have no closures or attributes. Values whose class does not define equality are compared by identity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np

from optdb.numpy_types import AnyDtype, HostArray

#: Larger arrays are compared by identity, so that keys do not hold their contents.
LARGEST_ARRAY = 4096  # bytes

_ITSELF = frozenset({str, bytes, type(None), type(Ellipsis), type(NotImplemented)})
_CHANGING = (list, dict, set, bytearray, np.ndarray)


class Unhashable(TypeError):
    """Raised for a mutable value, because keys must be immutable."""


class Same:
    """A key that compares an object by identity."""

    __slots__ = ("of",)

    def __init__(self, of: Any) -> None:
        self.of = of

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.of is other.of

    def __hash__(self) -> int:
        return id(self.of)

    def __repr__(self) -> str:
        return repr(self.of)


class Freezer:
    """Makes keys of values.

    Parameters
    ----------
    changing : bool
        Whether lists, dicts, sets and small arrays are accepted, and compared by their current contents. Otherwise they
        raise Unhashable.
    special : callable, optional
        Called with each value that is not plain. Returns the value's key, or None to use the Freezer's own key.
    """

    def __init__(self, changing: bool = False, special: Callable[[Any], Any] | None = None) -> None:
        self.changing = changing
        self.special = special

    def __call__(self, value: Any) -> Any:
        """Return a hashable key for `value`, or raise Unhashable."""
        cls = type(value)
        if cls in _ITSELF:
            return value
        if cls is int or cls is bool:
            return (cls, value)
        if cls is tuple:
            return (tuple, *[self(item) for item in value])
        make = _maker_of.get(cls)
        if make is None:
            make = _maker_of[cls] = _maker(cls)
        return make(self, value)

    def _object(self, value: Any) -> Any:
        special_key = self.special(value) if self.special else None
        if special_key is not None:
            return special_key
        cls = type(value)
        own_hash: Any = cls.__hash__
        if own_hash is object.__hash__ or issubclass(cls, type):
            return Same(value)
        return self._by_own_equality(value)

    def _function(self, value: FunctionType) -> Any:
        if value.__closure__ is not None or vars(value):
            return Same(value)
        bound = (self(value.__defaults__), self(tuple((value.__kwdefaults__ or {}).items())))
        return (FunctionType, value.__code__, Same(value.__globals__), bound)

    def _partial(self, value: partial[Any]) -> Any:
        return (type(value), self(value.func), self(value.args), self(tuple(value.keywords.items())))

    def _float(self, value: float) -> Any:
        return (type(value), value.hex())

    def _complex(self, value: complex) -> Any:
        return (type(value), value.real.hex(), value.imag.hex())

    def _numpy_scalar(self, value: np.generic) -> Any:
        return (type(value), value.dtype, value.tobytes())

    def _dtype(self, value: AnyDtype) -> Any:
        return (np.dtype, value)

    def _slice(self, value: slice) -> Any:
        return (slice, self(value.start), self(value.stop), self(value.step))

    def _items(self, value: Any) -> Any:
        return (type(value), *map(self, value))

    def _members(self, value: Any) -> Any:
        return (type(value), frozenset(map(self, value)))

    def _mapping(self, value: Mapping[Any, Any]) -> Any:
        if type(value).__hash__ is None:
            self._refuse_unless_changing(value)
        return (type(value), frozenset((self(key), self(item)) for key, item in value.items()))

    def _contents(self, value: Any) -> Any:
        self._refuse_unless_changing(value)
        if isinstance(value, np.ndarray):
            return self._array(value)
        if isinstance(value, bytearray):
            return (type(value), bytes(value))
        return self._members(value) if isinstance(value, set) else self._items(value)

    def _array(self, value: HostArray) -> Any:
        if value.nbytes > LARGEST_ARRAY or value.dtype.hasobject:
            return Same(value)
        return (type(value), value.dtype, value.shape, value.tobytes())

    def _by_own_equality(self, value: Any) -> Any:
        try:
            hash(value)
        except TypeError:
            self._refuse_unless_changing(value)
            return Same(value)
        return (type(value), value)

    def _refuse_unless_changing(self, value: Any) -> None:
        if not self.changing:
            raise Unhashable(f"is a {type(value).__name__}, which can change")


_MAKERS: tuple[tuple[Any, Callable[[Freezer, Any], Any]], ...] = (
    # Check NumPy scalars first: some are also Python floats or complex numbers.
    (np.generic, Freezer._numpy_scalar),
    (float, Freezer._float),
    (complex, Freezer._complex),
    (tuple, Freezer._items),
    (frozenset, Freezer._members),
    (slice, Freezer._slice),
    (np.dtype, Freezer._dtype),
    (Mapping, Freezer._mapping),
    (_CHANGING, Freezer._contents),
    (FunctionType, Freezer._function),
    (partial, Freezer._partial),
    (object, Freezer._object),
)

_maker_of: dict[type, Callable[[Freezer, Any], Any]] = {}


def _maker(cls: type) -> Callable[[Freezer, Any], Any]:
    return next(make for kinds, make in _MAKERS if issubclass(cls, kinds))
