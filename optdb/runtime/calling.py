"""The signature of a function: its arguments, their types, and the form of its results.

A :class:`Signature` follows Theano's casting rules, and needs only NumPy.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optdb.numpy_types import AnyDtype, HostArray
from optdb.runtime.records import Record, Where, array, choice, dtype, flag, flags, list_of, maybe, saved, text, texts

#: The forms of a function's result: a list, a single value, or nothing.
RESULTS = ("list", "single", "none")
#: The kinds of numeric dtypes.
_NUMERIC = "biufc"


@dataclass(frozen=True, eq=False)
class Argument(Record):
    """One argument of a function."""

    name: str | None = saved(maybe(text))
    dtype: str = saved(dtype)
    #: For each axis, whether its length must be 1.
    broadcastable: tuple[bool, ...] = saved(flags)
    #: Whether only arrays of exactly this dtype are accepted.
    strict: bool = saved(flag, default=False)
    #: Whether a conversion may lose precision. If this field is None, only Python floats may lose precision, provided
    #: that `floats` is set.
    allow_downcast: bool | None = saved(maybe(flag), default=None)
    #: The value that is used if the caller omits the argument; None if the argument is required.
    default: HostArray | None = saved(maybe(array), default=None)
    #: Whether `dtype` is the default dtype for Python floats.
    floats: bool = saved(flag, default=False)

    def check(self, where: Where) -> None:
        if self.default is None:
            return
        if self.default.dtype != self.dtype:
            raise where.at("default").wrong(f"an array of {self.dtype}", self.default.dtype.name)
        try:
            self.array(self.default)
        except TypeError as error:
            raise where.at("default").wrong(f"a value of the argument ({error})", self.default.shape) from None

    @property
    def spec(self) -> str:
        """A description of the required type, for messages."""
        axes = {(): "a number", (False,): "a vector", (False, False): "a matrix"}
        array_kind = axes.get(self.broadcastable, f"an array of {len(self.broadcastable)} dimensions")
        return f"{array_kind} of {self.dtype}"

    def array(self, value: Any) -> HostArray:
        """Convert a value to the array that the function takes; raise TypeError if the conversion is not allowed."""
        taken = self._cast(value)
        if taken.ndim != len(self.broadcastable):
            raise TypeError(f"expected {self.spec}, got an array of {taken.ndim} dimensions, of shape {taken.shape}")
        if any(broadcasts and length != 1 for broadcasts, length in zip(self.broadcastable, taken.shape)):
            lengths = tuple(1 if broadcasts else "any" for broadcasts in self.broadcastable)
            raise TypeError(f"expected {self.spec} with lengths {lengths}, got one of shape {taken.shape}")
        return taken

    def _cast(self, value: Any) -> HostArray:
        dtype = np.dtype(self.dtype)
        if isinstance(value, np.ndarray) and value.dtype == dtype and type(value) in (np.ndarray, np.memmap):
            return np.asarray(value)
        if self.strict:
            actual = f"one of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
            raise TypeError(f"expected an array of {self.dtype}, without conversion, got {actual}")
        if self.allow_downcast:
            return np.asarray(value).astype(dtype)
        if isinstance(value, np.ndarray):
            # Like Theano, accept any dtype that NumPy promotes to `dtype`, even if the conversion rounds some values.
            if value.dtype.kind not in _NUMERIC or np.promote_types(dtype, value.dtype) != dtype:
                raise self._loss(f"an array of {value.dtype}")
            return value.astype(dtype)
        if self.allow_downcast is None and type(value) is float and self.floats:
            return np.asarray(value, dtype)
        return self._without_loss(value, dtype)

    def _without_loss(self, value: Any, wanted: AnyDtype) -> HostArray:
        uncast = np.asarray(value)
        if uncast.dtype.kind not in _NUMERIC:
            raise TypeError(f"expected {self.spec}, got {_described(value)}")
        with np.errstate(all="ignore"):
            taken = uncast.astype(wanted)
            # NaN counts as equal to NaN.
            same = (uncast == taken) | ((uncast != uncast) & (taken != taken))
        if not np.all(same):
            raise self._loss(_described(value))
        return taken

    def _loss(self, what: str) -> TypeError:
        return TypeError(
            f"expected {self.spec}, which cannot hold {what} without loss.\n"
            "The cure: cast it first, if the loss is intended, or compile the function with "
            "allow_input_downcast=True"
        )


@dataclass(frozen=True, eq=False)
class Signature(Record):
    """The arguments of a function, and the form of its result."""

    arguments: tuple[Argument, ...] = saved(list_of(Argument.parse, "arguments"))
    #: The form of the result, one of `RESULTS`.
    returns: str = saved(choice(RESULTS), default="list")
    #: The keys of the results, if the function returns a dict.
    keys: tuple[str, ...] | None = saved(maybe(texts), default=None)

    @functools.cached_property
    def _positions(self) -> dict[str, int]:
        positions = reversed(range(len(self.arguments)))
        return {name: position for position in positions if (name := self.arguments[position].name) is not None}

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any], function: str = "the function") -> list[HostArray]:
        """Return the arrays for all arguments; raise TypeError if one is missing, unknown or of the wrong type."""
        if len(args) > len(self.arguments):
            raise TypeError(f"{function} takes {len(self.arguments)} arguments, {self}, but {len(args)} were given")
        inputs: dict[int, Any] = dict(enumerate(args))
        for name, value in kwargs.items():
            position = self._positions.get(name)
            if position is None:
                raise TypeError(f"{function} has no argument {name!r}; it takes {self}")
            if position in inputs:
                raise TypeError(f"{function} got {name} twice")
            inputs[position] = value
        return [self._array(position, inputs, function) for position in range(len(self.arguments))]

    def _array(self, position: int, given: Mapping[int, Any], function: str) -> HostArray:
        argument = self.arguments[position]
        if position not in given:
            if argument.default is None:
                raise TypeError(f"{function} is missing its argument {self.called(position)}, {argument.spec}")
            return argument.default
        try:
            return argument.array(given[position])
        except (TypeError, ValueError) as error:
            raise TypeError(f"{function}, argument {self.called(position)}: {error}") from None

    def called(self, position: int) -> str:
        """Return an argument's name, or its position if it has none."""
        name = self.arguments[position].name
        return f"{position} (unnamed)" if name is None else name

    def result(self, values: Sequence[Any]) -> Any:
        """Return computed values in the form of the function's result."""
        if self.returns == "none":
            return None
        if self.returns == "single" and len(values) == 1:
            return values[0]
        return list(values) if self.keys is None else dict(zip(self.keys, values, strict=True))

    def __str__(self) -> str:
        words = []
        for position, argument in enumerate(self.arguments):
            default = "" if argument.default is None else "=..."
            # Format the axis lengths like a shape.
            lengths = ", ".join("1" if broadcasts else ":" for broadcasts in argument.broadcastable)
            shape = f"[{lengths}]" if lengths else ""
            words.append(f"{argument.name or f'argument{position}'}{default}: {argument.dtype}{shape}")
        return f"({', '.join(words)})"


def _described(value: Any) -> str:
    text = repr(value)
    return f"a {type(value).__name__}" if len(text) > 60 else text
