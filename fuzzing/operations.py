"""What a random graph is made of: operations on small integers, which are exact in every dtype.

An :class:`Operation` says which values it takes and what shape it gives. Lengths are symbolic (see `Length`), so that a
graph is valid for inputs of any size, and two values fit each other where their lengths are the same expression.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import theano
import theano.tensor as tt
from theano.ifelse import ifelse

__all__ = ["OPERATIONS", "Length", "Operation", "Value"]

#: A number, the name of a length that calls choose, or an expression: the operation and its operands.
Length = Any


@dataclass(frozen=True)
class Value:
    """A variable of a graph, with its lengths.

    Parameters
    ----------
    var : Variable
        Of Theano.
    shape : tuple of Length
        One for each dimension.
    """

    var: Any
    shape: tuple[Length, ...]

    @property
    def is_float(self) -> bool:
        """Whether it belongs on the device."""
        return self.var.dtype.startswith("float")

    @property
    def is_int(self) -> bool:
        """Whether it belongs on the host."""
        return not self.is_float

    @property
    def ndim(self) -> int:
        """The number of its dimensions."""
        return len(self.shape)

    def is_like(self, other: Value) -> bool:
        """Tell whether another value has the same type and lengths."""
        return self.var.type == other.var.type and self.shape == other.shape


@dataclass(frozen=True)
class Operation:
    """A way to make a value of others.

    Parameters
    ----------
    build : callable
        Returns the variable, from the variables of the arguments and the parameter.
    shape : callable
        Returns its lengths, from the values of the arguments.
    slots : tuple of callable
        For each argument, whether a value may be it; also told the arguments before it.
    params : tuple
        Of which the parameter is one.
    """

    build: Callable[..., Any]
    shape: Callable[..., tuple[Length, ...]]
    slots: tuple[Callable[..., bool], ...]
    params: tuple[Any, ...] = (None,)


def _any(_: Value) -> bool:
    return True


def _array(value: Value) -> bool:
    return value.ndim > 0


def _matrix(value: Value) -> bool:
    return value.ndim == 2


def _float(value: Value) -> bool:
    return value.is_float


def _int(value: Value) -> bool:
    return value.is_int


def _index(value: Value, _: Value | None = None) -> bool:
    return value.is_int and value.ndim == 0


def _indexes(value: Value, _: Value | None = None) -> bool:
    return value.is_int and value.ndim == 1


def _like(value: Value, first: Value, *_: Value) -> bool:
    return value.is_like(first)


def _same(value: Value, *_: Value) -> tuple[Length, ...]:
    return value.shape


def _small(var: Any) -> Any:
    return tt.clip(var, -9, 9)


def _exact(var: Any, of: Any) -> Any:
    return tt.cast(var, of.dtype)


def _part(first: Length) -> Callable[..., tuple[Length, ...]]:
    """Return a shape in which an expression of the first length takes its place."""
    return lambda value, *_: ((*first, value.shape[0]), *value.shape[1:])


def _row(var: Any, index: Any) -> Any:
    return var[tt.clip(index, 0, var.shape[0] - 1)]


def _scan(var: Any) -> Any:
    return theano.scan(lambda x, total: total + x, sequences=var, outputs_info=tt.zeros_like(var[0]))[0]


#: By name.
OPERATIONS: dict[str, Operation] = {
    "negative": Operation(lambda a, _: -a, _same, (_any,)),
    "plus": Operation(lambda a, k: _exact(a + k, a), _same, (_any,), (1, 2, -3)),
    "times": Operation(lambda a, k: _exact(_small(a) * k, a), _same, (_any,), (2, 3)),
    "halved": Operation(lambda a, _: _exact(a // 2, a), _same, (_any,)),
    "maximum_of": Operation(lambda a, k: _exact(tt.maximum(a, k), a), _same, (_any,), (0, 1)),
    "add": Operation(lambda a, b, _: a + b, _same, (_any, _like)),
    "subtract": Operation(lambda a, b, _: a - b, _same, (_any, _like)),
    "multiply": Operation(lambda a, b, _: _small(a) * _small(b), _same, (_any, _like)),
    "switch": Operation(lambda a, b, _: tt.switch(tt.gt(a, 0), a, b), _same, (_any, _like)),
    "scale": Operation(
        lambda a, i, _: a * _small(i).astype("float32"), _same, (_float, lambda value, _: _index(value))
    ),
    "transpose": Operation(lambda a, _: a.T, lambda value: value.shape[::-1], (_matrix,)),
    "column": Operation(
        lambda a, _: a.dimshuffle(0, "x"), lambda value: (*value.shape, 1), (lambda value: value.ndim == 1,)
    ),
    "flat": Operation(lambda a, _: a.flatten(), lambda value: (("product", *value.shape),), (_matrix,)),
    "reshape_to_own": Operation(lambda a, _: a.reshape(a.shape, ndim=a.ndim), _same, (_array,)),
    "reshape_like": Operation(
        lambda a, b, _: a.reshape(b.shape, ndim=b.ndim),
        lambda _, b: b.shape,
        (lambda value: value.ndim == 1, lambda b, a: b.ndim == 2 and a.shape == (("product", *b.shape),)),
    ),
    "reversed": Operation(lambda a, _: a[::-1], _same, (_array,)),
    "head": Operation(lambda a, k: a[:k], _part(("first", 2)), (_array,), (2,)),
    "tail": Operation(lambda a, _: a[1:], _part(("but", 1)), (_array,)),
    "every_second": Operation(lambda a, _: a[::2], _part(("half",)), (_array,)),
    "first": Operation(lambda a, _: a[0], lambda value: value.shape[1:], (_array,)),
    "last": Operation(lambda a, _: a[-1], lambda value: value.shape[1:], (_array,)),
    "row": Operation(lambda a, i, _: _row(a, i), lambda a, _: a.shape[1:], (_array, _index)),
    "rows": Operation(lambda a, i, _: _row(a, i), lambda a, i: (*i.shape, *a.shape[1:]), (_array, _indexes)),
    "take_first": Operation(lambda a, _: a[tt.constant([0])], lambda value: (("row",), *value.shape[1:]), (_array,)),
    "increment": Operation(lambda a, k: tt.inc_subtensor(a[:k], 1), _same, (_array,), (1, 2)),
    "increment_reversed": Operation(lambda a, _: tt.inc_subtensor(a[::-1][:2], 2), _same, (_array,)),
    "set_tail": Operation(lambda a, _: tt.set_subtensor(a[1:], 5), _same, (_array,)),
    "increment_all": Operation(lambda a, b, _: tt.inc_subtensor(a[:], b), _same, (_array, _like)),
    "increment_row": Operation(
        lambda a, i, _: tt.inc_subtensor(a[tt.clip(i, 0, a.shape[0] - 1)], 3), _same, (_array, _index)
    ),
    "increment_rows": Operation(
        lambda a, i, _: tt.inc_subtensor(a[tt.clip(i, 0, a.shape[0] - 1)], 1), _same, (_array, _indexes)
    ),
    "total": Operation(lambda a, _: _exact(_small(a).sum(), a), lambda _: (), (_array,)),
    "sum_of_rows": Operation(lambda a, _: _exact(_small(a).sum(axis=0), a), lambda a: a.shape[1:], (_array,)),
    "join": Operation(
        lambda a, b, _: tt.concatenate([a, b]),
        lambda a, _: (("twice", a.shape[0]), *a.shape[1:]),
        (_array, _like),
    ),
    "length": Operation(lambda a, _: a.shape[0], lambda _: (), (_array,)),
    "to_float": Operation(lambda a, _: _small(a).astype("float32"), _same, (_int,)),
    "to_int": Operation(lambda a, k: _small(a).astype(k), _same, (_float,), ("int32", "int64")),
    "product": Operation(
        lambda a, b, _: tt.dot(_small(a), _small(b)),
        lambda a, b: (a.shape[0], b.shape[1]),
        (
            lambda a: a.is_float and a.ndim == 2,
            lambda b, a: b.is_float and b.ndim == 2 and b.shape[0] == a.shape[1],
        ),
    ),
    "running_total": Operation(lambda a, _: _scan(_small(a)), _same, (lambda a: a.is_float and a.ndim == 2,)),
    "if_number": Operation(
        lambda a, b, c, _: ifelse(tt.gt(c, 0), a, b), _same, (_any, _like, lambda value, *_: _index(value))
    ),
    "if_device": Operation(
        lambda a, b, c, _: ifelse(tt.gt(c.sum(), 0), a, b), _same, (_any, _like, lambda value, *_: value.is_float)
    ),
}
