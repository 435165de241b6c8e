"""How a function is called: its arguments by place and by name, what each may be, and what it gives back.

A :class:`Signature` says what ``theano.function`` was told of inputs and outputs, and needs NumPy alone. `bind` turns a
call into arrays, by the host's own rules of what may be cast, and with errors that name the argument; `result` turns
computed values into what the caller gets.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

#: What a function gives back: a list, its one value, or nothing.
RESULTS = ("list", "single", "none")
#: The kinds of dtypes that are numbers.
_NUMERIC = "biufc"


@dataclass(frozen=True, eq=False)
class Argument:
    """One argument of a function."""

    #: By which it may be given.
    name: str | None
    #: Of the array that the function takes.
    dtype: str
    #: For each axis, whether its length is 1.
    broadcastable: tuple[bool, ...]
    #: Whether only an array of that dtype will do.
    strict: bool = False
    #: Whether precision may be lost; None allows it for Python's floats alone, where `floats` says so.
    allow_downcast: bool | None = None
    #: What it is if it is not given; without one, it has to be.
    default: np.ndarray | None = None
    #: Whether `dtype` is the one that Python's floats are taken for.
    floats: bool = False

    @property
    def kind(self) -> str:
        """What it has to be, in words."""
        axes = {(): "a number", (False,): "a vector", (False, False): "a matrix"}
        wanted = axes.get(self.broadcastable, f"an array of {len(self.broadcastable)} dimensions")
        return f"{wanted} of {self.dtype}"

    def array(self, value: Any) -> np.ndarray:
        """Return a value as the array that the function takes; raise TypeError if it must not be made one."""
        taken = self._cast(value)
        if taken.ndim != len(self.broadcastable):
            raise TypeError(f"expected {self.kind}, got an array of {taken.ndim} dimensions, of shape {taken.shape}")
        if any(one and length != 1 for one, length in zip(self.broadcastable, taken.shape)):
            lengths = tuple(1 if one else "any" for one in self.broadcastable)
            raise TypeError(f"expected {self.kind} with lengths {lengths}, got one of shape {taken.shape}")
        return taken

    def _cast(self, value: Any) -> np.ndarray:
        wanted = np.dtype(self.dtype)
        if isinstance(value, np.ndarray) and value.dtype == wanted and type(value) in (np.ndarray, np.memmap):
            return np.asarray(value)
        if self.strict:
            given = f"one of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
            raise TypeError(f"expected an array of {self.dtype}, and nothing else, got {given}")
        if self.allow_downcast:
            return np.asarray(value).astype(wanted)
        if isinstance(value, np.ndarray):
            # The host takes some dtypes for as good as those that hold all numbers.
            if value.dtype.kind not in _NUMERIC or np.promote_types(wanted, value.dtype) != wanted:
                raise self._loss(f"an array of {value.dtype}")
            return value.astype(wanted)
        if self.allow_downcast is None and type(value) is float and self.floats:
            return np.asarray(value, wanted)
        return self._without_loss(value, wanted)

    def _without_loss(self, value: Any, wanted: np.dtype) -> np.ndarray:
        given = np.asarray(value)
        if given.dtype.kind not in _NUMERIC:
            raise TypeError(f"expected {self.kind}, got {_described(value)}")
        with np.errstate(all="ignore"):
            taken = given.astype(wanted)
            # Nothing is equal to what is no number, except here.
            same = (given == taken) | ((given != given) & (taken != taken))
        if not np.all(same):
            raise self._loss(_described(value))
        return taken

    def _loss(self, what: str) -> TypeError:
        return TypeError(
            f"expected {self.kind}, which cannot hold {what} without loss.\nThe cure: cast it first, if you mean it, "
            "or have the function compiled with allow_input_downcast=True"
        )


@dataclass(frozen=True, eq=False)
class Signature:
    """The arguments of a function, and what it gives back."""

    #: By their places.
    arguments: tuple[Argument, ...]
    #: What is given back: 'list', 'single' or 'none'.
    returns: str = "list"
    #: Under which results are given back in a dict, if they are.
    keys: tuple[str, ...] | None = None

    @functools.cached_property
    def _places(self) -> dict[str, int]:
        """The place of each name, the first one if there are several."""
        places = reversed(range(len(self.arguments)))
        return {name: place for place in places if (name := self.arguments[place].name) is not None}

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any], function: str = "the function") -> list[np.ndarray]:
        """Return the array of each argument that is given by place or by name; `function` is called so in errors.

        Raises
        ------
        TypeError
            If there is too much or too little of it, or something that an argument cannot be.
        """
        if len(args) > len(self.arguments):
            raise TypeError(f"{function} takes {len(self.arguments)} arguments, {self}, and was given {len(args)}")
        given: dict[int, Any] = dict(enumerate(args))
        for name, value in kwargs.items():
            place = self._places.get(name)
            if place is None:
                raise TypeError(f"{function} has no argument {name!r}; it takes {self}")
            if place in given:
                raise TypeError(f"{function} was given {name} twice")
            given[place] = value
        return [self._array(place, given, function) for place in range(len(self.arguments))]

    def _array(self, place: int, given: Mapping[int, Any], function: str) -> np.ndarray:
        argument = self.arguments[place]
        if place not in given:
            if argument.default is None:
                raise TypeError(f"{function} misses its argument {self.called(place)}, {argument.kind}")
            return argument.default
        try:
            return argument.array(given[place])
        except (TypeError, ValueError) as error:
            raise TypeError(f"{function}, argument {self.called(place)}: {error}") from None

    def called(self, place: int) -> str:
        """Return what an argument is called."""
        name = self.arguments[place].name
        return f"{place} (without a name)" if name is None else name

    def result(self, values: Sequence[Any]) -> Any:
        """Return what the caller gets for computed values."""
        if self.returns == "none":
            return None
        if self.returns == "single" and len(values) == 1:
            return values[0]
        return list(values) if self.keys is None else dict(zip(self.keys, values, strict=True))

    def __str__(self) -> str:
        words = []
        for place, argument in enumerate(self.arguments):
            default = "" if argument.default is None else "=..."
            # Lengths are written as they are in a shape.
            lengths = ", ".join("1" if one else ":" for one in argument.broadcastable)
            shape = f"[{lengths}]" if lengths else ""
            words.append(f"{argument.name or f'argument{place}'}{default}: {argument.dtype}{shape}")
        return f"({', '.join(words)})"


def _described(value: Any) -> str:
    text = repr(value)
    return f"a {type(value).__name__}" if len(text) > 60 else text
