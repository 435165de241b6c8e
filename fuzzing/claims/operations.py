"""The operations of random graphs: some violate the promises of types, others rely on these promises.

An :class:`Operation` builds a variable from the types of its arguments alone, because lengths are only known at run
time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import theano
import theano.tensor as tt
from theano.gof import Apply, Op

__all__ = ["OPERATIONS", "SLOW", "Operation"]


@dataclass(frozen=True)
class Operation:
    """An operation that computes a new variable from other variables.

    `build` takes the arguments, the vector of lengths (an input of the function), and one of `params`. `slots` has a
    predicate for each argument; a predicate takes the argument and the earlier arguments.
    """

    build: Callable[..., Any]
    slots: tuple[Callable[..., bool], ...] = ()
    params: tuple[Any, ...] = (None,)


class Resized(Op):
    """A user's op whose result has the lengths in an argument, even if the result's type promises other lengths."""

    __props__ = ("pattern",)

    def __init__(self, pattern: tuple[bool, ...]) -> None:
        self.pattern = pattern

    def make_node(self, x: Any, lengths: Any) -> Apply:
        """Return a node that resizes an array to the lengths in a vector."""
        return Apply(self, [x, lengths], [tt.TensorType("float32", self.pattern)()])

    def perform(self, node: Apply, inputs: Sequence[Any], outputs: Sequence[list[Any]], params: Any = None) -> None:
        x, lengths = inputs
        shape = tuple(abs(int(lengths[axis % len(lengths)])) for axis in range(len(self.pattern)))
        outputs[0][0] = np.resize(x, shape).astype("float32") if x.size else np.ones(shape, "float32")


def _any(_: Any, *__: Any) -> bool:
    return True


def _array(var: Any, *_: Any) -> bool:
    return var.ndim > 0


def _vector(var: Any, *_: Any) -> bool:
    return var.ndim == 1


def _matrix(var: Any, *_: Any) -> bool:
    return var.ndim == 2


def _promising(var: Any, *_: Any) -> bool:
    return any(var.broadcastable)


def _same_ndim(var: Any, first: Any, *_: Any) -> bool:
    return var.ndim == first.ndim


def _axis(var: Any) -> int:
    """Return the first broadcastable axis."""
    return var.broadcastable.index(True)


def _piece(var: Any, lengths: Any, number: int) -> Any:
    first = tt.clip(lengths[0], 0, 1)
    return tt.split(var, [first, 1 - first], 2, axis=_axis(var))[number]


def _backwards(var: Any) -> Any:
    """Return an empty slice, although its type promises one element."""
    return var[(*[slice(None)] * _axis(var), slice(None, 1, -1))]


def _dropped(var: Any) -> Any:
    return var.dimshuffle(*[axis for axis in range(var.ndim) if axis != _axis(var)])


def _of_axis(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, _, axis: tt.cast(function(a, axis=axis % a.ndim), "float32")


def _added(value: Any, part: Any) -> Any:
    return tt.inc_subtensor(value[:], part)


def _scan(a: Any) -> Any:
    return theano.scan(lambda x, total: tt.unbroadcast(total + x, *range(x.ndim)), a, _start(a))[0]


def _start(a: Any) -> Any:
    start = tt.zeros_like(a[0])
    return tt.unbroadcast(start, *range(start.ndim)) if start.ndim else start


def _pieces(a: Any, o: Any, lengths: Any) -> Any:
    return theano.scan(lambda x, part, sizes: _piece(part, sizes, 0) * x.sum(), a, non_sequences=[o, lengths])[0]


#: Operations by name.
OPERATIONS: dict[str, Operation] = {
    # Operations that violate, make and withdraw promises.
    "piece": Operation(_piece, (_promising,), (0, 1)),
    "constant_piece": Operation(lambda a, _, n: tt.split(a, [n, 1 - n], 2, axis=_axis(a))[0], (_promising,), (0, 1)),
    "backwards": Operation(lambda a, *_: _backwards(a), (_promising,)),
    "resized": Operation(
        lambda a, lengths, pattern: Resized(pattern)(a, lengths),
        (_any,),
        ((True,), (True, False), (False, True), (True, True), (False,)),
    ),
    "promised": Operation(lambda a, _, axis: tt.addbroadcast(a, axis % a.ndim), (_array,), (0, 1)),
    "taken_back": Operation(lambda a, *_: tt.unbroadcast(a, *range(a.ndim)), (_promising,)),
    "specified": Operation(lambda a, _, n: tt.specify_shape(a, (n,) * a.ndim), (_array,), (0, 1, 2)),
    "specified_late": Operation(lambda a, lengths, _: tt.specify_shape(a, lengths[: a.ndim]), (_array,)),
    "reshaped": Operation(lambda a, _, shape: a.reshape(shape), (_any,), ((1, -1), (-1, 1), (1,), (-1,))),
    "reshaped_late": Operation(lambda a, lengths, _: a.reshape((1, lengths[1])), (_any,)),
    "pieces_of_scan": Operation(lambda a, o, lengths, _: _pieces(a, o, lengths), (_array, _promising)),
    # Operations that rely on promises.
    "times": Operation(lambda a, *_: a * 2, (_any,)),
    "plus": Operation(lambda a, *_: a + 1, (_any,)),
    "clipped": Operation(lambda a, *_: tt.clip(a, -9, 9), (_any,)),
    "add": Operation(lambda a, b, *_: a + b, (_any, _any)),
    "multiply": Operation(lambda a, b, *_: tt.clip(a, -9, 9) * tt.clip(b, -9, 9), (_any, _any)),
    "switch": Operation(lambda a, b, *_: tt.switch(tt.gt(a, 0), a, b), (_any, _any)),
    "filled": Operation(lambda a, b, *_: tt.fill(a, b), (_any, _any)),
    "sum": Operation(lambda a, *_: a.sum(dtype="float32"), (_any,)),
    "sum_of": Operation(_of_axis(lambda a, axis: a.sum(axis, dtype="float32")), (_array,), (0, 1)),
    "kept_sum_of": Operation(_of_axis(lambda a, axis: a.sum(axis, keepdims=True)), (_array,), (0, 1)),
    "max_of": Operation(_of_axis(tt.max), (_array,), (0, 1)),
    "argmax_of": Operation(_of_axis(tt.argmax), (_array,), (0, 1)),
    "running_sum": Operation(_of_axis(tt.cumsum), (_array,), (0, 1)),
    "sorted": Operation(_of_axis(tt.sort), (_array,), (0, 1)),
    "sum_and_more": Operation(lambda a, b, *_: (tt.clip(a, -9, 9) * 2).sum(0) + b, (_matrix, _vector)),
    "dot": Operation(lambda a, b, *_: tt.clip(a, -3, 3).dot(tt.clip(b, -3, 3)), (_array, _array)),
    "gemm": Operation(
        lambda a, b, c, *_: c * 2 + 3 * tt.clip(a, -3, 3).dot(tt.clip(b, -3, 3)), (_matrix, _matrix, _matrix)
    ),
    "gemv": Operation(
        lambda a, b, c, *_: c + 2 * tt.clip(a, -3, 3).dot(tt.clip(b, -3, 3)), (_matrix, _vector, _vector)
    ),
    "ger": Operation(
        lambda a, b, c, *_: a + tt.outer(tt.clip(b, -3, 3), tt.clip(c, -3, 3)), (_matrix, _vector, _vector)
    ),
    "transposed": Operation(lambda a, *_: a.T, (_matrix,)),
    "dropped": Operation(lambda a, *_: _dropped(a), (_promising,)),
    "row_of": Operation(lambda a, *_: a.dimshuffle("x", 0), (_vector,)),
    "column_of": Operation(lambda a, *_: a.dimshuffle(0, "x"), (_vector,)),
    "flat": Operation(lambda a, *_: a.flatten(), (_matrix,)),
    "head": Operation(lambda a, lengths, _: a[: lengths[0]], (_array,)),
    "first": Operation(lambda a, *_: a[0], (_array,)),
    "last": Operation(lambda a, *_: a[..., -1], (_array,)),
    "joined": Operation(lambda a, b, _, axis: tt.concatenate([a, b], axis % a.ndim), (_array, _same_ndim), (0, 1)),
    "stacked": Operation(lambda a, b, *_: tt.stack([a, b]), (_vector, _vector)),
    "tiled": Operation(lambda a, *_: tt.tile(a, (2,) * a.ndim, ndim=a.ndim), (_array,)),
    "repeated": Operation(lambda a, *_: tt.repeat(a, 2, axis=0), (_array,)),
    "allocated": Operation(lambda a, lengths, _: tt.alloc(a, 2, *lengths[: a.ndim]), (_vector,)),
    "allocated_one": Operation(lambda a, lengths, _: tt.alloc(a, lengths[0], 1), (_vector,)),
    "increased": Operation(lambda a, b, *_: _added(a, b), (_array, lambda b, a: 0 < b.ndim <= a.ndim)),
    "set_first": Operation(lambda a, b, *_: tt.set_subtensor(a[:1], b[:1]), (_array, _same_ndim)),
    "taken": Operation(lambda a, *_: a[tt.constant([0, 0])], (_array,)),
    "increased_rows": Operation(lambda a, b, *_: tt.inc_subtensor(a[tt.constant([0, 0])], b), (_matrix, _vector)),
    "diagonal": Operation(lambda a, *_: tt.diagonal(a), (_matrix,)),
    "on_diagonal": Operation(lambda a, *_: tt.diag(a), (_vector,)),
    "softmax": Operation(lambda a, *_: tt.nnet.softmax(tt.clip(a, -3, 3)), (_matrix,)),
    "gradient": Operation(lambda a, b, *_: tt.grad((a * b).sum(), a), (_any, _any)),
    "scan": Operation(lambda a, *_: _scan(a), (_array,)),
    "to_int_and_back": Operation(lambda a, *_: tt.cast(tt.cast(a, "int32") + 1, "float32"), (_any,)),
}

#: Operations that quick tests leave out.
SLOW = frozenset({"scan", "pieces_of_scan"})
