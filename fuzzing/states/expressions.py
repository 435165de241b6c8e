"""The operations of random functions, each of which is implemented in Theano and in NumPy.

An operation takes a value, and the argument and the index that the function is called with. The result has the dtype
and the rank of the value. All numbers are small integers, so that every operation is exact, or wraps around as it does
in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import theano
import theano.tensor as tt
from theano.ifelse import ifelse

__all__ = ["OPERATIONS", "Kind", "Operation", "TroubleOp", "Undefined", "apply_numpy", "apply_theano", "trouble"]


@dataclass(frozen=True)
class Kind:
    """The dtype and rank of a variable."""

    dtype: str
    rank: int

    @property
    def is_bool(self) -> bool:
        """Whether the dtype is bool; elements of this dtype cannot be incremented."""
        return self.dtype == "bool"

    def symbolic(self, name: str) -> Any:
        """Return a new input variable of this kind."""
        return tt.TensorType(self.dtype, (False,) * self.rank)(name)

    def number(self, value: int) -> np.ndarray:
        """Return a scalar array of this dtype."""
        return np.asarray(value, self.dtype)


class Undefined(Exception):
    """Raised if the lengths 1 and 0 meet: NumPy broadcasts 1 to 0, but Theano's types promise equal lengths."""


class Trouble:
    """Holds the error that nodes of `TroubleOp` raise when they are computed; with None, they copy their input."""

    error: type[BaseException] | None = None


trouble = Trouble()


class TroubleOp(theano.Op):
    """Copies its input on the host, or raises the error in `trouble`."""

    __props__ = ()

    def make_node(self, x: Any) -> theano.Apply:
        """Return a node that copies a variable."""
        return theano.Apply(self, [x], [x.type()])

    def perform(
        self, node: theano.Apply, inputs: Sequence[Any], outputs: Sequence[list[Any]], params: Any = None
    ) -> None:
        """Copy the value, or raise the error in `trouble`."""
        if trouble.error is not None:
            raise trouble.error("no luck")
        outputs[0][0] = inputs[0].copy()

    def infer_shape(self, node: theano.Apply, shapes: Sequence[Any]) -> Sequence[Any]:
        """Return the shape of the input."""
        return shapes


@dataclass(frozen=True)
class Operation:
    """An operation on a variable, in Theano and in NumPy.

    `symbolic` takes a variable, its kind, the argument and the index. `numeric` takes the values of these, and may
    overwrite the first value or return it. `admits` returns whether the operation accepts values of a kind.
    """

    symbolic: Callable[[Any, Kind, Any, Any], Any]
    numeric: Callable[[np.ndarray, Kind, np.ndarray, int], np.ndarray]
    admits: Callable[[Kind], bool]


def _always(kind: Kind) -> bool:
    return True


def _has_axis(kind: Kind) -> bool:
    return kind.rank > 0


def _has_axis_of_numbers(kind: Kind) -> bool:
    return kind.rank > 0 and not kind.is_bool


def _plus_one(x: Any, kind: Kind, a: Any, i: Any) -> Any:
    return tt.neq(x, kind.number(1)) if kind.is_bool else x + kind.number(1)


def _plus_one_numeric(x: np.ndarray, kind: Kind, a: np.ndarray, i: int) -> np.ndarray:
    return x != kind.number(1) if kind.is_bool else x + kind.number(1)


def _with_argument(x: Any, kind: Kind, a: Any, i: Any) -> Any:
    return tt.neq(x, a) if kind.is_bool else x + a


def _with_argument_numeric(x: np.ndarray, kind: Kind, a: np.ndarray, i: int) -> np.ndarray:
    differing = [{one, other} for one, other in zip(x.shape, a.shape, strict=True) if one != other]
    if any(lengths != {0, 1} for lengths in differing):
        raise ValueError("shapes differ")
    if differing:
        raise Undefined(f"shapes {x.shape} and {a.shape}")
    return x != a if kind.is_bool else x + a


def _increased(index: Any) -> Callable[[np.ndarray, Kind, np.ndarray, int], np.ndarray]:
    def numeric(x: np.ndarray, kind: Kind, a: np.ndarray, i: int) -> np.ndarray:
        x = x.copy()
        x[index if index is not None else i] += kind.number(1)
        return x

    return numeric


def _set(index: Any, number: int) -> Callable[[np.ndarray, Kind, np.ndarray, int], np.ndarray]:
    def numeric(x: np.ndarray, kind: Kind, a: np.ndarray, i: int) -> np.ndarray:
        x = x.copy()
        x[index if index is not None else i] = kind.number(number)
        return x

    return numeric


def _twice_at_zero(x: np.ndarray, kind: Kind, a: np.ndarray, i: int) -> np.ndarray:
    x = x.copy()
    np.add.at(x, [0, 0], kind.number(1))
    return x


def _if_positive(x: Any, kind: Kind, a: Any, i: Any) -> Any:
    return ifelse(tt.gt(i, 0), _plus_one(x, kind, a, i), x)


def _if_positive_numeric(x: np.ndarray, kind: Kind, a: np.ndarray, i: int) -> np.ndarray:
    return _plus_one_numeric(x, kind, a, i) if i > 0 else x


def _twice(x: Any, kind: Kind, a: Any, i: Any) -> Any:
    return theano.scan(lambda last: _plus_one(last, kind, a, i), outputs_info=x, n_steps=2)[0][-1]


def _twice_numeric(x: np.ndarray, kind: Kind, a: np.ndarray, i: int) -> np.ndarray:
    return _plus_one_numeric(_plus_one_numeric(x, kind, a, i), kind, a, i)


_HEAD = slice(None, 2)

OPERATIONS: dict[str, Operation] = {
    "plus_one": Operation(_plus_one, _plus_one_numeric, _always),
    "with_argument": Operation(_with_argument, _with_argument_numeric, _always),
    "reverse": Operation(lambda x, kind, a, i: x[::-1], lambda x, kind, a, i: x[::-1], _has_axis),
    "set_head": Operation(lambda x, kind, a, i: tt.set_subtensor(x[:2], kind.number(1)), _set(_HEAD, 1), _has_axis),
    "inc_head": Operation(
        lambda x, kind, a, i: tt.inc_subtensor(x[:2], kind.number(1)), _increased(_HEAD), _has_axis_of_numbers
    ),
    "set_at": Operation(lambda x, kind, a, i: tt.set_subtensor(x[i], kind.number(0)), _set(None, 0), _has_axis),
    "inc_at": Operation(
        lambda x, kind, a, i: tt.inc_subtensor(x[i], kind.number(1)), _increased(None), _has_axis_of_numbers
    ),
    "inc_twice": Operation(
        lambda x, kind, a, i: tt.inc_subtensor(x[np.array([0, 0])], kind.number(1)),
        _twice_at_zero,
        _has_axis_of_numbers,
    ),
    "if_positive": Operation(_if_positive, _if_positive_numeric, _always),
    "loop": Operation(_twice, _twice_numeric, _always),
    "trouble": Operation(lambda x, kind, a, i: TroubleOp()(x), lambda x, kind, a, i: x, _always),
}


def apply_theano(names: tuple[str, ...], x: Any, kind: Kind, a: Any, i: Any) -> Any:
    """Apply operations to a variable; return the resulting variable."""
    for name in names:
        x = OPERATIONS[name].symbolic(x, kind, a, i)
    return x


def apply_numpy(names: tuple[str, ...], x: np.ndarray, kind: Kind, a: np.ndarray, i: int) -> np.ndarray:
    """Apply operations to a value; return the result as a new array, or raise NumPy's errors."""
    for name in names:
        x = OPERATIONS[name].numeric(x, kind, a, i)
    return np.array(x, kind.dtype)
