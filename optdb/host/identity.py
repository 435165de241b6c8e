"""Op equality and hashes, computed once per op object while graphs are optimized.

Theano compares and hashes ops by their ``__props__``, anew each time; an
optimization does so hundreds of thousands of times over a few hundred distinct
ops.  Here each op object gets a number the first time it is asked for, equal
ops the same one, by Theano's own ``__eq__`` and ``__hash__``; afterwards both
questions are a look-up.

The numbers live as long as :class:`Numbers` is in use, and hold the ops that
they stand for, so that no id is ever taken for another object's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from theano.scan_module.scan_op import Scan
from theano.tensor.var import TensorConstant

from optdb.host.graph import PureOp
from optdb.host.patching import Patch

_originals_eq: dict[type, Callable[[Any, Any], Any]] = {}
_originals_hash: dict[type, Callable[[Any], int]] = {}


class Numbers:
    """Numbers of op objects: equal ops have equal numbers.

    Attributes
    ----------
    of : dict
        Op's id to ``(op, hash, number)``. Empty while nobody optimizes, and
        then Theano's own methods answer.
    users : int
        How many optimizations are going on.
    """

    def __init__(self) -> None:
        self.of: dict[int, tuple[Any, int, int]] = {}
        self.users = 0
        #: Distinct ops, by what equal ones have in common.
        self._alike: dict[Any, list[tuple[Any, int, int]]] = {}
        self._count = 0

    def enter(self, op: Any) -> tuple[Any, int, int]:
        """Number `op` by its class's own equality.

        Raises
        ------
        TypeError
            If it is unhashable.
        """
        value = _original(type(op), "__hash__", _originals_hash)(op)
        equal = _original(type(op), "__eq__", _originals_eq)
        # Equal scans may have different hashes: a scan's hash counts the mode of its
        # inner function, its equality does not. Equality is what Theano merges by.
        alike = self._alike.setdefault(type(op) if isinstance(op, Scan) else value, [])
        for other, its_hash, its_number in alike:
            if type(other) is type(op) and equal(op, other):
                entry = (op, its_hash, its_number)
                break
        else:
            self._count += 1
            entry = (op, value, self._count)
            alike.append(entry)
        self.of[id(op)] = entry
        return entry

    def clear(self) -> None:
        """Forget all ops."""
        self.of.clear()
        self._alike.clear()


def _original(cls: type, name: str, originals: dict[type, Any]) -> Any:
    """Return the method that `cls` would use if nothing were patched."""
    for base in cls.__mro__:
        if base in originals:
            return originals[base]
        if name in vars(base):
            return vars(base)[name]
    raise AttributeError(name)


numbers = Numbers()


def _quick_eq(cls: type, original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    entries = numbers.of

    def __eq__(self: Any, other: Any) -> Any:  # noqa: N807  it becomes the class's own
        if self is other:
            return True
        mine = entries.get(id(self))
        theirs = entries.get(id(other))
        if mine is not None and theirs is not None:
            return mine[2] == theirs[2]
        # A subclass's own __eq__ may ask its parent's: then the parent's answer is wanted.
        if not numbers.users or type(self) is not type(other) or type(self).__eq__ is not __eq__:
            return original(self, other)
        mine = mine or _entry(self)
        theirs = theirs or _entry(other)
        if mine is None or theirs is None:
            return original(self, other)
        return mine[2] == theirs[2]

    return __eq__


def _quick_hash(cls: type, original: Callable[[Any], int]) -> Callable[[Any], int]:
    entries = numbers.of

    def __hash__(self: Any) -> int:  # noqa: N807  it becomes the class's own
        if not numbers.users or type(self).__hash__ is not __hash__:
            return original(self)
        entry = entries.get(id(self)) or _entry(self)
        return original(self) if entry is None else entry[1]

    return __hash__


def _entry(op: Any) -> tuple[Any, int, int] | None:
    try:
        return numbers.enter(op)
    except TypeError:
        return None


def _classes(base: type) -> Iterator[type]:
    seen = {base}
    todo = [base]
    while todo:
        cls = todo.pop()
        yield cls
        for sub in type.__subclasses__(cls):
            if sub not in seen:
                seen.add(sub)
                todo.append(sub)


_stock_equals = TensorConstant.equals


def constant_equals(self: TensorConstant, other: Any) -> bool:
    """Tell whether two constants hold the same; one and the same does, whatever its size."""
    return self is other or _stock_equals(self, other)


def patches() -> list[Patch]:
    """Return the patches of constants, and of all op classes that there are now and define equality."""
    found = [Patch(TensorConstant, "equals", constant_equals)]
    for cls in _classes(PureOp):
        own = vars(cls)
        equal, hashed = own.get("__eq__"), own.get("__hash__")
        if not callable(equal) or not callable(hashed):
            continue
        _originals_eq[cls] = equal
        _originals_hash[cls] = hashed
        found.append(Patch(cls, "__eq__", _quick_eq(cls, equal)))
        found.append(Patch(cls, "__hash__", _quick_hash(cls, hashed)))
    return found
