"""Symbolic integers: lengths that a trace computes from the shapes in a call.

While a function is traced, each axis length of its inputs is a :class:`SymInt`: a value in the example call, and an
expression for other calls. A comparison returns its result in the example call and records a *guard*: the trace is
valid only for calls in which the comparison has this result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optdb.numpy_types import AnyDtype, HostArray
from optdb.runtime.expressions import ARITHMETIC, COMPARISONS, Arithmetic, Entry, Guard, Ref

_OPPOSITE = {"==": "!=", "!=": "==", "<": "<=", "<=": "<"}


class ShapeEnv:
    """A trace's symbolic sizes, and the guards under which the trace is valid.

    After the trace, `is_closed` is set: further sizes and guards would be missing where calls evaluate them.
    """

    def __init__(self) -> None:
        self.is_closed = False
        #: The expressions that compute the symbolic sizes, indexed by `SymInt.number`.
        self.entries: list[Entry] = []
        self.guards: dict[Guard, None] = {}
        self._known: dict[Entry, int] = {}
        #: Maps the number of a size to the size's value, if the guards restrict the size to one value.
        self.resolved: dict[int, int] = {}

    def symbol(self, value: Any, entry: Entry) -> SymInt:
        """Return the size that an entry computes; `value` is the size in the example call."""
        number = self._known.setdefault(entry, len(self.entries))
        if number == len(self.entries):
            assert not self.is_closed, f"{entry} is not in the trace"
            self.entries.append(entry)
        return SymInt(self, number, value)

    def guard(self, word: str, one: Any, other: Any) -> bool:
        """Compare two operands in the example call, and record the result as a guard."""
        answer = bool(COMPARISONS[word](example_value(one), example_value(other)))
        if not answer:
            word = _OPPOSITE[word]
            if word in ("<", "<="):
                one, other = other, one
        guard = Guard(word, operand(one), operand(other))
        assert not self.is_closed or guard in self.guards, f"{guard} is not in the trace"
        self.guards[guard] = None
        if word == "==" and isinstance(one, SymInt) and isinstance(other, int):
            self.resolved[one.number] = other
        return answer


_Method = Callable[["SymInt", Any], Any]


def _arithmetic(word: str) -> tuple[_Method, _Method]:
    """Return two methods of SymInt for an operator in `ARITHMETIC`: with the SymInt on the left, and on the right."""
    return (lambda self, other: _combined(word, self, other)), (lambda self, other: _combined(word, other, self))


def _comparison(word: str) -> tuple[_Method, _Method]:
    return (lambda self, other: _compared(word, self, other)), (lambda self, other: _compared(word, other, self))


class SymInt:
    """A number's value in the example call, and the index of the entry that computes the number in other calls.

    An integer value is a Python int; other values have a dtype, and can only be compared and uploaded.
    """

    __slots__ = ("number", "rules", "value")

    # If `__array_ufunc__` is None, NumPy scalars leave arithmetic with a SymInt to this class.
    __array_ufunc__ = None

    def __init__(self, rules: ShapeEnv, number: int, value: Any) -> None:
        self.rules = rules
        self.number = number
        self.value = value

    __add__, __radd__ = _arithmetic("+")
    __sub__, __rsub__ = _arithmetic("-")
    __mul__, __rmul__ = _arithmetic("*")
    __floordiv__, __rfloordiv__ = _arithmetic("//")
    __mod__, __rmod__ = _arithmetic("%")
    __lt__, __gt__ = _comparison("<")
    __le__, __ge__ = _comparison("<=")

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Any, Any]:
        return other // self, other % self

    def __eq__(self, other: object) -> bool:
        answer: bool = _compared("==", self, other)
        return answer

    def __truediv__(self, other: Any) -> float:
        quotient: float = self._specialize() / specialize(other)
        return quotient

    def __rtruediv__(self, other: Any) -> float:
        quotient: float = specialize(other) / self._specialize()
        return quotient

    def __neg__(self) -> Any:
        return self * -1

    def __pos__(self) -> SymInt:
        return self

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __bool__(self) -> bool:
        return self != 0

    def __hash__(self) -> int:
        # The result differs from the hash of the value, so that symbolic sizes do not match entries in caches keyed by
        # plain shapes.
        return hash((id(self.rules), self.number))

    def __int__(self) -> int:
        return int(self._specialize())

    __index__ = __int__

    def __float__(self) -> float:
        return float(self._specialize())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> HostArray:
        return np.asarray(self._specialize(), dtype)

    def __repr__(self) -> str:
        return repr(self.value)  # error messages show lengths

    def _specialize(self) -> Any:
        """Return the value in the example call, and record a guard that requires it in every call."""
        self.rules.guard("==", self, self.value)
        return self.value


class SymIntVector(tuple[Any, ...]):
    """A vector of host numbers, some of which may be symbolic; by default, the numbers are integers."""

    dtype = np.dtype("int64")
    ndim = 1

    @classmethod
    def of(cls, values: Iterable[Any], dtype: str) -> SymIntVector:
        """Return a vector of values that have the given dtype."""
        result = cls(values)
        result.dtype = np.dtype(dtype)
        return result

    @property
    def shape(self) -> tuple[int]:
        return (len(self),)

    @property
    def size(self) -> int:
        return len(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> HostArray:
        return np.array([specialize(number) for number in self], dtype or self.dtype)


@dataclass(frozen=True)
class SymbolicArgument:
    """A kernel argument whose value is unknown before a call: a scalar, or a vector of sixteen numbers."""

    dtype: AnyDtype
    values: tuple[Any, ...]


def example_value(x: Any) -> Any:
    """Return the value in the example call without recording a guard, for uses that only affect this call."""
    return x.value if isinstance(x, SymInt) else x


def specialize(x: Any) -> Any:
    """Return a plain number, and record a guard that requires it in every call."""
    return x._specialize() if isinstance(x, SymInt) else x


def resolve(x: Any) -> Any:
    """Return a size as a plain number if the guards restrict it to one value; return anything else unchanged."""
    return x.rules.resolved.get(x.number, x) if isinstance(x, SymInt) else x


def as_int(x: Any) -> Any:
    """Convert a number with ``int``; pass a SymInt to `resolve` instead."""
    return resolve(x) if isinstance(x, SymInt) else int(x)


def as_float(x: Any) -> Any:
    """Convert a number with ``float``; pass a SymInt to `resolve` instead."""
    return resolve(x) if isinstance(x, SymInt) else float(x)


def lengths_of(values: Any) -> list[Any]:
    """Return the integers in a host number or vector as a list."""
    if isinstance(values, SymInt):
        return [values]
    return [as_int(value) for value in (values if isinstance(values, SymIntVector) else np.atleast_1d(values))]


def largest(one: Any, other: Any) -> Any:
    """Return the larger of two integers, like ``max``, without recording a guard."""
    return _combined("max", one, other) if isinstance(one, SymInt) or isinstance(other, SymInt) else max(one, other)


def smallest(one: Any, other: Any) -> Any:
    """Return the smaller of two integers, like ``min``, without recording a guard."""
    return _combined("min", one, other) if isinstance(one, SymInt) or isinstance(other, SymInt) else min(one, other)


def is_same(one: Any, other: Any) -> bool:
    """Return whether two integers are equal in all calls, without recording a guard; False if that is unknown."""
    one, other = resolve(one), resolve(other)
    if isinstance(one, SymInt) or isinstance(other, SymInt):
        return isinstance(one, SymInt) and isinstance(other, SymInt) and one.number == other.number
    return bool(one == other)


def is_at_most(size: Any, most: int) -> bool:
    """Return whether a size is at most `most` in all calls, without recording a guard; False if that is unknown."""
    size = resolve(size)
    return not isinstance(size, SymInt) and size <= most


def exact_quotient(size: Any, divisor: Any) -> Any:
    """Return the quotient of two integers; None if the remainder is not 0 in all calls, or if that is unknown."""
    if is_same(size, divisor):
        return 1
    if isinstance(divisor, SymInt) or is_same(divisor, 0):
        return None
    quotient = size // divisor
    return quotient if is_same(quotient * divisor, size) else None


def broadcast_shapes(*shapes: Sequence[Any]) -> tuple[Any, ...]:
    """Return the shape to which arrays of the given shapes broadcast; raise ValueError if they do not broadcast.

    An axis of a symbolic length is not broadcast, even if the length is 1 in some calls.
    """
    ndim = max(map(len, shapes), default=0)
    result: list[Any] = [1] * ndim
    for shape in shapes:
        for axis, length in enumerate(shape, ndim - len(shape)):
            if result[axis] is length or is_same(length, 1):
                continue
            if is_same(result[axis], 1):
                result[axis] = length
            elif result[axis] != length:
                raise ValueError(f"arrays of shapes {', '.join(map(str, shapes))} do not broadcast")
    return tuple(result)


def power_of_two(least: Any, most: int) -> int:
    """Return the smallest power of two that is at least `least`, or `most` if the power is larger than `most`."""
    power = 1
    while power < most and power < least:
        power *= 2
    return min(power, most)


def starts(length: Any, step: Any) -> Sequence[Any]:
    """Return ``range(0, length, step)`` as a sequence."""
    if isinstance(length, SymInt) or isinstance(step, SymInt):
        if 0 < length <= step:
            return (0,)
        length, step = specialize(length), specialize(step)
    return range(0, length, step)


def part_of(length: Any, part: slice) -> tuple[Any, Any, Any]:
    """Return the start, length and step of the part that a slice selects on an axis."""
    bounds = [None if bound is None else as_int(bound) for bound in (part.start, part.stop, part.step)]
    if not any(isinstance(x, SymInt) for x in (length, *bounds)):
        taken = range(*slice(*bounds).indices(length))
        return taken.start, len(taken), taken.step
    start, stop, step = bounds
    step = 1 if step is None else step
    if step == 0:
        raise ValueError("slice step cannot be zero")
    forward = step > 0
    first, beyond = (0, length) if forward else (length - 1, -1)
    start = first if start is None else _within(start, length, forward)
    stop = beyond if stop is None else _within(stop, length, forward)
    span = stop - start if forward else start - stop
    if span <= 0:
        return start, 0, step
    return start, -(-span // (step if forward else -step)), step


def _within(bound: Any, length: Any, forward: bool) -> Any:
    lowest, highest = (0, length) if forward else (-1, length - 1)
    if bound < 0:
        bound = bound + length
        return lowest if bound < lowest else bound
    return highest if bound > highest else bound


def operand(x: Any) -> Any:
    """Return a number as an operand: a plain number, or a reference to an entry."""
    if isinstance(x, SymInt):
        return Ref(x.number)
    return x.item() if isinstance(x, np.generic) else x


def _rules(operands: Sequence[Any]) -> ShapeEnv:
    return next(x.rules for x in operands if isinstance(x, SymInt))


def _compared(word: str, one: Any, other: Any) -> Any:
    one, other = _unpacked(one), _unpacked(other)
    if not (_is_number(one) and _is_number(other)):
        return NotImplemented
    one, other = resolve(one), resolve(other)
    if not (isinstance(one, SymInt) or isinstance(other, SymInt)):
        return COMPARISONS[word](one, other)
    if (
        isinstance(one, SymInt)
        and isinstance(other, SymInt)
        and one.number == other.number
        and one.rules is other.rules
    ):
        return word in ("==", "<=")
    return _rules((one, other)).guard(word, one, other)


def _combined(word: str, one: Any, other: Any) -> Any:
    one, other = _unpacked(one), _unpacked(other)
    if not (_is_whole(one) and _is_whole(other)):
        if _is_number(one) and _is_number(other) and word in "+-*//%":
            return ARITHMETIC[word](specialize(one), specialize(other))
        return NotImplemented
    one, other = (x if isinstance(x, SymInt) else int(x) for x in map(resolve, (one, other)))
    if isinstance(one, int) and isinstance(other, int):
        return ARITHMETIC[word](one, other)
    simple = _simplified(word, one, other)
    if simple is not None:
        return simple
    # Callers check beforehand that the divisor is not 0.
    if word in ("//", "%") and other == 0:
        raise ZeroDivisionError("division of a size by zero")
    if word in ("+", "*", "max", "min") and _order(one) > _order(other):
        one, other = other, one
    value = ARITHMETIC[word](example_value(one), example_value(other))
    return _rules((one, other)).symbol(value, Arithmetic(word, operand(one), operand(other)))


def _order(x: Any) -> int:
    return x.number if isinstance(x, SymInt) else 1 << 60


def _simplified(word: str, one: Any, other: Any) -> Any:
    """Simplify an expression, so that equal lengths are recognized; return None if no rule applies."""
    if isinstance(one, int) and word in ("+", "*", "max", "min"):
        one, other = other, one
    if isinstance(other, SymInt):
        if one.__class__ is SymInt and one.number == other.number:
            return {"-": 0, "%": 0, "max": one, "min": one}.get(word)
        return 0 if word in ("//", "%") and isinstance(one, int) and one == 0 else None
    if (word in ("+", "-") and other == 0) or (word in ("*", "//") and other == 1):
        return one
    if (word == "*" and other == 0) or (word == "%" and other in (1, -1)):
        return 0
    return _with_factor(word, one, other) if word in ("*", "//", "%") else _with_term(word, one, other)


def _with_factor(word: str, one: SymInt, number: int) -> Any:
    """Simplify the product, quotient or remainder of a size and a number; return None if no rule applies."""
    entry = one.rules.entries[one.number]
    if not isinstance(entry, Arithmetic):
        return None
    if word == "*" and number == -1 and entry.op == "//":
        return _rounded_up(one, entry)
    if entry.op != "*" or not isinstance(entry.right, int):
        return None
    inner, factor = _left(one, entry, one.value // entry.right), entry.right
    if word == "*":
        return inner * (factor * number)
    if number == 0 or factor % number:
        return None
    return 0 if word == "%" else inner * (factor // number)


def _rounded_up(one: SymInt, quotient: Arithmetic) -> Any:
    """Simplify ``-(-a // b)`` to one ceiling division; return None for other forms."""
    rules = one.rules
    inner = rules.entries[quotient.left.number] if isinstance(quotient.left, Ref) else None
    if not isinstance(inner, Arithmetic) or inner.op != "*" or inner.right != -1:
        return None
    if inner.left == quotient.right:
        return 1
    return rules.symbol(-one.value, Arithmetic("ceil", inner.left, quotient.right))


def _with_term(word: str, one: SymInt, number: int) -> Any:
    """Simplify the sum or difference of a size and a number; return None if no rule applies."""
    if word not in ("+", "-"):
        return None
    if word == "-":
        return one + -number
    entry = one.rules.entries[one.number]
    if not isinstance(entry, Arithmetic) or entry.op != "+" or not isinstance(entry.right, int):
        return None
    return _left(one, entry, one.value - entry.right) + (entry.right + number)


def _left(one: SymInt, entry: Arithmetic, value: int) -> SymInt:
    assert isinstance(entry.left, Ref)
    return SymInt(one.rules, entry.left.number, value)


def _unpacked(x: Any) -> Any:
    return x[()] if isinstance(x, np.ndarray) and not x.ndim else x


def _is_whole(x: Any) -> bool:
    return isinstance(example_value(x), int | np.integer) and not isinstance(x, bool | np.bool_)


def _is_number(x: Any) -> bool:
    return isinstance(x, SymInt | int | float | np.number | np.bool_)
