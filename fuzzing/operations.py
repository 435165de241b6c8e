"""The operations of random graphs; they compute with small integers, which are exact in every dtype.

An :class:`Operation` defines which values it accepts, and which shape its result has. Lengths are symbolic (see
`Length`), so that a graph is valid for inputs of any size. Two lengths are equal if they are the same expression.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import theano
import theano.tensor as tt
from theano.ifelse import ifelse
from theano.tensor import slinalg
from theano.tensor.signal.pool import pool_2d

__all__ = ["OPERATIONS", "Length", "Operation", "Value"]

#: The length of an axis. It is a number, the name of a length that each call sets, or a tuple of an operation and
#: operands.
Length = Any


@dataclass(frozen=True)
class Value:
    """A variable of a graph, with a length for each dimension."""

    var: Any
    shape: tuple[Length, ...]

    @property
    def is_float(self) -> bool:
        """Whether the value consists of floats, which are computed on the device."""
        return self.var.dtype.startswith("float")

    @property
    def is_int(self) -> bool:
        """Whether the value consists of integers, which are computed on the host and may be indexes."""
        return "int" in self.var.dtype

    @property
    def is_real(self) -> bool:
        """Whether the elements are integers or floats."""
        return self.is_float or self.is_int

    @property
    def is_number(self) -> bool:
        """Whether the elements are numbers, that is, not bool."""
        return self.var.dtype != "bool"

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def is_like(self, other: Value) -> bool:
        """Return whether another value has the same type and the same lengths."""
        return self.var.type == other.var.type and self.shape == other.shape


@dataclass(frozen=True)
class Operation:
    """An operation that computes a new value from other values.

    `build` takes the arguments' variables and one of `params`, and returns the new variable; `shape` takes the
    arguments, and returns the new variable's lengths. `slots` has a predicate for each argument; a predicate takes the
    argument and the earlier arguments.
    """

    build: Callable[..., Any]
    shape: Callable[..., tuple[Length, ...]]
    slots: tuple[Callable[..., bool], ...]
    params: tuple[Any, ...] = (None,)


def _any(_: Value) -> bool:
    return True


def _real(value: Value, *_: Value) -> bool:
    return value.is_real


def _number(value: Value, *_: Value) -> bool:
    return value.is_number


def _signed(value: Value, *_: Value) -> bool:
    return value.is_number and not value.var.dtype.startswith("uint")


def _bool(value: Value) -> bool:
    return not value.is_number


def _array(value: Value, *_: Value) -> bool:
    return value.ndim > 0


def _real_array(value: Value) -> bool:
    return value.is_real and value.ndim > 0


def _accumulated(value: Value) -> bool:
    """Return whether NumPy's cumsum keeps a dtype, as Theano's CumOp promises; NumPy widens small integers."""
    return _real_array(value) and (value.is_float or value.var.dtype in ("int64", "uint64"))


def _masked(value: Value) -> bool:
    """Return whether a mask of the same shape can select elements; in Theano, a mask cannot be broadcastable."""
    return _real_array(value) and not any(value.var.broadcastable)


def _number_array(value: Value) -> bool:
    return value.is_number and value.ndim > 0


def _real_vector(value: Value) -> bool:
    return value.is_real and value.ndim == 1


def _float_matrix(value: Value) -> bool:
    return value.is_float and value.ndim == 2


def _wide_array(value: Value) -> bool:
    """Return whether a value is a vector or a matrix with a dtype that SciPy supports."""
    return value.var.dtype in ("float32", "float64") and value.ndim in (1, 2)


def _wide_matrix(value: Value) -> bool:
    return _wide_array(value) and value.ndim == 2


def _matrix(value: Value) -> bool:
    return value.ndim == 2


def _float(value: Value) -> bool:
    return value.is_float


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


def _bounded(var: Any) -> Any:
    """Return a variable, clipped if it is float16, so that sums and small multiples of it stay exact."""
    return _small(var) if var.dtype == "float16" else var


def _exact(var: Any, of: Any) -> Any:
    return tt.cast(var, of.dtype)


def _part(first: Length) -> Callable[..., tuple[Length, ...]]:
    """Return a `shape` function that replaces the first length by an expression with this length as the operand."""
    return lambda value, *_: ((*first, value.shape[0]), *value.shape[1:])


def _without_first(value: Value, *_: Value) -> tuple[Length, ...]:
    return value.shape[1:]


def _row(var: Any, index: Any) -> Any:
    return var[tt.clip(index, 0, var.shape[0] - 1)]


def _total(var: Any) -> Any:
    return _exact((var if var.dtype.startswith("complex") else _small(var)).sum(), var)


def _scan(var: Any) -> Any:
    return theano.scan(lambda x, total: total + x, sequences=var, outputs_info=tt.zeros_like(var[0]))[0]


def _split(var: Any, part: int) -> Any:
    head = tt.minimum(var.shape[0], 1)
    return tt.split(var, [head, var.shape[0] - head], 2)[part]


def _pooled(var: Any, mode: str) -> Any:
    scale = 4 if mode.startswith("average") else 1
    return _exact(
        pool_2d(_small(var).dimshuffle("x", "x", 0, 1), (2, 2), ignore_border=True, mode=mode)[0, 0] * scale, var
    )


def _class_is_certain(var: Any, index: Any) -> Any:
    """Return 1 for each row that is positive in column `index`: its cross entropy is 0, and not infinite."""
    entropies = tt.nnet.crossentropy_categorical_1hot(_exact(tt.gt(var, 0), var), tt.clip(index, 0, var.shape[1] - 1))
    return _exact(tt.eq(entropies, 0), var)


def _loss_of_classes(var: Any, index: Any) -> Any:
    """Return 1 where the gradient of a cross entropy is far above 0, -1 where it is far below 0, and 0 elsewhere.

    The softmax of a row is near 0, except at the row's n equal largest elements, where it is near 1/n. If the loss of a
    row is large, because its class is not among its largest elements, the returned numbers are doubled. The scores are
    so small that no exponential underflows to 0 in float32.
    """
    scores = 8 * tt.clip(var, -4, 4)
    losses = tt.nnet.categorical_crossentropy(tt.nnet.softmax(scores), tt.clip(index, 0, var.shape[1] - 1))
    of_scores = tt.grad(losses.sum(), scores)
    is_lost = tt.gt(losses, 6).dimshuffle(0, "x")
    return _exact((tt.cast(tt.gt(of_scores, 0.4), "int8") - tt.lt(of_scores, -0.4)) * (1 + is_lost), var)


def _softmax_winner(var: Any) -> Any:
    """Return 1 where an element is the largest of its row, even if one other element equals it."""
    return _exact(tt.gt(tt.nnet.softmax(64 * _small(var)), 0.4), var)


def _gradient(var: Any) -> Any:
    # Multiply instead of computing a power, because devices compute powers with rounding errors.
    return tt.grad(tt.sqr(_small(var)).sum(), var)


def _narrow(var: Any) -> Any:
    return tt.clip(var, -1, 1)


#: Number of products in a sum; it is large enough for optdb to compute the sum as a single product.
_PRODUCTS = 9


def _sum_of_products(a: Any, b: Any, turned: str) -> Any:
    """Return a sum of products, like a weight's gradient in an unrolled loop; some factors may be transposed."""
    terms = []
    for number in range(_PRODUCTS):
        one, other = _narrow(a + number % 5 - 2), _narrow(b - number % 3)
        if turned != "no":
            one = _narrow(a.T + number % 5 - 2).T
        if turned == "all":
            other = _narrow(b.T - number % 3).T
        terms.append(tt.dot(one, other))
    return sum(terms[1:], terms[0]) + tt.dot(_narrow(a), _narrow(b)) * 2


def _steps(a: Any, b: Any) -> Any:
    """Return the last state of an unrolled loop; each step multiplies another matrix by the same matrix."""
    numbers = tt.arange(_PRODUCTS, dtype="int8").dimshuffle(0, "x", "x") - 4
    parts, total = _narrow(a.dimshuffle("x", 0, 1) + tt.cast(numbers, a.dtype)), tt.zeros_like(a)
    for number in range(_PRODUCTS):
        total = _narrow(total + tt.dot(parts[number], _narrow(b)))
    return total


def _recurrence(a: Any, b: Any, backwards: bool) -> Any:
    """Return a matrix computed from the states of a loop and from gradients, which also depend on the states."""
    # Add a row and a column, because BLAS accepts no empty matrix.
    ones = tt.ones((a.shape[0] + 1, a.shape[1] + 1), a.dtype)
    part = tt.set_subtensor(ones[1:, 1:], _narrow(a))
    weights = tt.set_subtensor(tt.eye(a.shape[1] + 1, dtype=a.dtype)[1:, 1:], _narrow(b))
    states, _ = theano.scan(
        lambda part, state, weights: tt.clip(part + tt.dot(state, weights), -2, 2),
        sequences=tt.stack([part, -part, part + part]),
        outputs_info=tt.zeros_like(part),
        non_sequences=weights,
        go_backwards=backwards,
    )
    of_part, of_weights = tt.grad(states.sum(), [part, weights])
    return _exact(states[-1] + of_part + tt.dot(part, of_weights), a)[1:, 1:]


def _in_fours(var: Any) -> Any:
    """Append zeros to a matrix, so that its number of rows and its number of columns are multiples of four."""
    rows, columns = (var.shape[axis] // 4 * 4 + 4 for axis in range(2))
    return tt.set_subtensor(tt.zeros((rows, columns), var.dtype)[: var.shape[0], : var.shape[1]], var)


def _product_of_fours(a: Any, turned: str) -> Any:
    """Return a product of matrices plus a bias; rows are so long that a GPU may read four elements at a time."""
    left, right = _narrow(a), _narrow(a.T - 1)
    turns_left, turns_right = turned in ("left", "both"), turned in ("right", "both")
    parts = [_in_fours(left.T if turns_left else left)] * _PRODUCTS
    one = tt.concatenate(parts, axis=0).T if turns_left else tt.concatenate(parts, axis=1)
    parts = [_in_fours(right.T if turns_right else right)] * _PRODUCTS
    other = tt.concatenate(parts, axis=1).T if turns_right else tt.concatenate(parts, axis=0)
    return (tt.dot(one, other) + other[0])[: a.shape[0], : a.shape[0]]


#: Number of columns, and the bounds of slices of columns. Some slices have gaps between them or are out of order.
_COLUMNS = 8
_SLICES = (
    ((0, 2), (2, 4), (4, 6), (6, 8)),
    ((1, 3), (4, 6)),
    ((1, 4), (4, 7)),
    ((5, 8), (0, 3)),
    ((0, 4), (4, 8)),
)


def _gradient_of_slices(var: Any, slices: tuple[tuple[int, int], ...]) -> Any:
    """Return the gradient of a product of slices with respect to the sliced array."""
    columns = _exact(tt.outer(_narrow(var).flatten(), tt.arange(1, _COLUMNS + 1, dtype="int8") % 3 - 1), var)
    product: Any = 1
    for start, stop in slices:
        product = product * (columns[:, start:stop] + 1)
    return tt.grad(product.sum(), columns)


def _convolved(var: Any, flipped: bool) -> Any:
    """Return the last feature of a convolution; it has too many features for a GPU's kernels for few features."""
    taps = tt.arange(5 * 3 * 3, dtype="int8").reshape((5, 1, 3, 3)) % 4 - 1
    image = _narrow(var).dimshuffle("x", "x", 0, 1)
    return tt.nnet.conv2d(image, _exact(taps, var), border_mode="half", filter_flip=flipped)[0, 4]


def _bidiagonal(var: Any) -> Any:
    """Return a matrix of twos and signs; its condition number is so small that rounding makes results exact."""
    signs = tt.sgn(var if var.ndim == 1 else _small(var).sum(axis=1)).astype(var.dtype)
    n = var.shape[0]
    return 2 * tt.eye(n, dtype=var.dtype) + tt.eye(n, n, -1, dtype=var.dtype) * signs.dimshuffle(0, "x")


def _factor(var: Any, lower: bool) -> Any:
    triangle = _bidiagonal(var)
    return _exact(tt.round(slinalg.Cholesky(lower=lower)(tt.dot(triangle, triangle.T))), var)


def _solution(var: Any, structure: str) -> Any:
    # SciPy rejects systems without rows.
    right = tt.concatenate([tt.zeros_like(_small(var).sum(axis=0, keepdims=True)), _small(var)])
    lower = _bidiagonal(right)
    triangle = lower if structure == "lower_triangular" else lower.T
    return _exact(tt.round(slinalg.Solve(structure)(triangle, tt.dot(triangle, right)))[1:], var)


def _of_float_matrices(first: Value, second: Value) -> bool:
    """Return whether floats `first` and `second` can be multiplied as matrices; Theano has no float16 outer product."""
    is_outer = any(first.var.broadcastable) or any(second.var.broadcastable)
    halves = "float16" in (first.var.dtype, second.var.dtype)
    return second.is_float and second.shape[0] == first.shape[1] and not (is_outer and halves)


def _square(b: Value, a: Value) -> bool:
    """Return whether `b` is a matrix such that the product of `a` and `b` has the shape and the dtype of `a`."""
    return b.var.dtype == a.var.dtype and b.shape == (a.shape[1], a.shape[1]) and _of_float_matrices(a, b)


#: Operations by name.
OPERATIONS: dict[str, Operation] = {
    # Only signed numbers: Theano's own rewriters move the sign of an unsigned number out of a wider product.
    "negative": Operation(lambda a, _: -a, _same, (_signed,)),
    "plus": Operation(lambda a, k: _exact(_bounded(a) + k, a), _same, (_number,), (1, 2, -3)),
    "times": Operation(lambda a, k: _exact(_small(a) * k, a), _same, (_real,), (2, 3)),
    "halved": Operation(lambda a, _: _exact(a // 2, a), _same, (_real,)),
    "remainder": Operation(lambda a, k: _exact(a % k, a), _same, (_real,), (2, 3)),
    "magnitude": Operation(lambda a, _: abs(a), _same, (_real,)),
    "sign": Operation(lambda a, _: tt.sgn(a), _same, (_real,)),
    "square": Operation(lambda a, _: tt.sqr(_small(a)), _same, (_real,)),
    "maximum_of": Operation(lambda a, k: _exact(tt.maximum(a, k), a), _same, (_real,), (0, 1)),
    "minimum_of": Operation(lambda a, k: _exact(tt.minimum(a, k), a), _same, (_real,), (0, 1)),
    "positive": Operation(lambda a, _: tt.gt(a, 0), _same, (_real,)),
    "equal": Operation(lambda a, b, _: tt.eq(a, b), _same, (_any, _like)),
    "not": Operation(lambda a, _: tt.invert(a), _same, (_bool,)),
    "both": Operation(lambda a, b, _: tt.and_(a, b), _same, (_bool, _like)),
    "either": Operation(lambda a, b, _: tt.or_(a, b), _same, (_bool, _like)),
    "add": Operation(lambda a, b, _: _bounded(a) + _bounded(b), _same, (_number, _like)),
    "subtract": Operation(lambda a, b, _: _bounded(a) - _bounded(b), _same, (_number, _like)),
    "multiply": Operation(lambda a, b, _: _small(a) * _small(b), _same, (_real, _like)),
    "switch": Operation(lambda a, b, _: tt.switch(tt.gt(a, 0), a, b), _same, (_real, _like)),
    "choose": Operation(
        lambda c, a, _: tt.switch(c, a, tt.zeros_like(a)),
        lambda _, a: a.shape,
        (_bool, lambda a, c: a.is_number and a.shape == c.shape),
    ),
    "scale": Operation(
        lambda a, i, _: _bounded(a) * _small(i).astype(a.dtype), _same, (_float, lambda value, _: _index(value))
    ),
    "add_to_rows": Operation(
        lambda a, b, _: _bounded(a) + _bounded(b),
        _same,
        (
            lambda a: a.is_number and a.ndim == 2,
            lambda b, a: b.ndim == 1 and b.var.dtype == a.var.dtype and b.shape == a.shape[1:],
        ),
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
    # Theano's Python code divides by the length, so the length must not be 0.
    "rolled": Operation(
        lambda a, k: tt.roll(a, k, axis=0), _same, (lambda a: a.ndim > 0 and isinstance(a.shape[0], int),), (1, -1)
    ),
    "head": Operation(lambda a, k: a[:k], _part(("first", 2)), (_array,), (2,)),
    "tail": Operation(lambda a, _: a[1:], _part(("but", 1)), (_array,)),
    "every_second": Operation(lambda a, _: a[::2], _part(("half",)), (_array,)),
    "first": Operation(lambda a, _: a[0], _without_first, (_array,)),
    "last": Operation(lambda a, _: a[-1], _without_first, (_array,)),
    "row": Operation(lambda a, i, _: _row(a, i), _without_first, (_array, _index)),
    "rows": Operation(lambda a, i, _: _row(a, i), lambda a, i: (*i.shape, *a.shape[1:]), (_array, _indexes)),
    "elements": Operation(
        lambda a, i, j, _: a[tt.clip(i, 0, a.shape[0] - 1), tt.clip(j, 0, a.shape[1] - 1)],
        lambda a, i, j: i.shape,
        (_matrix, _indexes, lambda j, _, i: _indexes(j) and j.shape == i.shape),
    ),
    "take_first": Operation(lambda a, _: a[tt.constant([0])], lambda value: (("row",), *value.shape[1:]), (_array,)),
    "split": Operation(_split, lambda a: (("split", a.shape[0]), *a.shape[1:]), (_array,), (0,)),
    "split_rest": Operation(_split, lambda a: (("but", 1, a.shape[0]), *a.shape[1:]), (_array,), (1,)),
    "increment": Operation(lambda a, k: tt.inc_subtensor(a[:k], 1), _same, (_number_array,), (1, 2)),
    "increment_reversed": Operation(lambda a, _: tt.inc_subtensor(a[::-1][:2], 2), _same, (_number_array,)),
    "set_tail": Operation(lambda a, _: tt.set_subtensor(a[1:], 5), _same, (_number_array,)),
    "set_first": Operation(
        lambda a, b, _: tt.set_subtensor(a[0], b),
        _same,
        (_array, lambda b, a: b.var.dtype == a.var.dtype and b.shape == a.shape[1:]),
    ),
    "increment_all": Operation(lambda a, b, _: tt.inc_subtensor(_bounded(a)[:], b), _same, (_number_array, _like)),
    "increment_row": Operation(lambda a, i, _: tt.inc_subtensor(_row(a, i), 3), _same, (_number_array, _index)),
    "increment_rows": Operation(lambda a, i, _: tt.inc_subtensor(_row(a, i), 1), _same, (_number_array, _indexes)),
    "set_rows": Operation(lambda a, i, _: tt.set_subtensor(_row(a, i), 7), _same, (_number_array, _indexes)),
    "set_elements": Operation(
        lambda a, i, _: tt.set_subtensor(a[tt.clip(i, 0, a.shape[0] - 1), tt.zeros_like(i)], 4),
        _same,
        (lambda a: a.is_number and a.ndim == 2, _indexes),
    ),
    "set_where": Operation(lambda a, k: tt.set_subtensor(a[tt.gt(a, k)], k), _same, (_masked,), (0, 1)),
    "total_where": Operation(lambda a, k: _total(a[tt.gt(a, k)]), lambda _: (), (_masked,), (0, 1)),
    "total": Operation(lambda a, _: _total(a), lambda _: (), (_number_array,)),
    "sum_of_rows": Operation(lambda a, _: _exact(_small(a).sum(axis=0), a), _without_first, (_real_array,)),
    "product_of_rows": Operation(
        lambda a, _: _exact(tt.clip(a, -2, 2).prod(axis=0), a), _without_first, (_real_array,)
    ),
    "largest": Operation(lambda a, _: a.max(axis=0), _without_first, (_real_array,)),
    "smallest": Operation(lambda a, _: a.min(axis=-1), lambda a: a.shape[:-1], (_real_array,)),
    "where_largest": Operation(lambda a, _: a.argmax(axis=-1), lambda a: a.shape[:-1], (_real_array,)),
    "all": Operation(lambda a, _: a.all(axis=0), _without_first, (lambda a: not a.is_number and a.ndim > 0,)),
    "any": Operation(lambda a, _: a.any(axis=-1), lambda a: a.shape[:-1], (lambda a: not a.is_number and a.ndim > 0,)),
    "sums_so_far": Operation(lambda a, _: tt.cumsum(_small(a), axis=0), _same, (_accumulated,)),
    "products_so_far": Operation(lambda a, _: tt.cumprod(tt.clip(a, -2, 2), axis=-1), _same, (_accumulated,)),
    "sorted": Operation(lambda a, k: tt.sort(a, axis=k), _same, (_real_array,), (0, -1)),
    "order": Operation(lambda a, _: tt.argsort(a, axis=-1, kind="mergesort"), _same, (_real_array,)),
    "join": Operation(
        lambda a, b, _: tt.concatenate([a, b]),
        lambda a, _: (("twice", a.shape[0]), *a.shape[1:]),
        (_array, _like),
    ),
    "tiled": Operation(lambda a, _: tt.tile(a, (2,) + (1,) * (a.ndim - 1)), _part(("twice",)), (_array,)),
    "repeated": Operation(lambda a, _: tt.repeat(a, 2, axis=0), _part(("twice",)), (_array,)),
    "length": Operation(lambda a, _: a.shape[0], lambda _: (), (_array,)),
    "numbers": Operation(lambda a, _: tt.arange(a.shape[0]), lambda a: a.shape[:1], (_array,)),
    "identity": Operation(
        lambda a, k: tt.eye(a.shape[0], a.shape[1], k, dtype=a.dtype), _same, (_float_matrix,), (0, 1)
    ),
    "filled": Operation(
        lambda a, b, _: tt.alloc(a, b.shape[0], 2), lambda _, b: (b.shape[0], 2), (lambda a: a.ndim == 0, _array)
    ),
    "diagonal": Operation(lambda a, k: a.diagonal(k), lambda a: (("diagonal", *a.shape),), (_matrix,), (0,)),
    "upper_diagonal": Operation(lambda a, _: a.diagonal(1), lambda a: (("upper", *a.shape),), (_matrix,)),
    "on_diagonal": Operation(
        lambda a, _: tt.diag(a), lambda a: (a.shape[0], a.shape[0]), (lambda a: a.is_number and a.ndim == 1,)
    ),
    "set_diagonal": Operation(lambda a, _: tt.fill_diagonal(a, 6), _same, (_float_matrix,)),
    "to_float": Operation(
        lambda a, k: _small(a).astype(k), _same, (_real,), ("floatX", "float32", "float64", "float16")
    ),
    "to_int": Operation(lambda a, k: _small(a).astype(k), _same, (_float,), ("int32", "int64", "int8", "int16")),
    "to_complex": Operation(lambda a, _: _small(a).astype("complex64"), _same, (_float,)),
    "real_part": Operation(lambda a, _: a.real, _same, (lambda a: a.var.dtype.startswith("complex"),)),
    "product": Operation(
        lambda a, b, _: tt.dot(_small(a), _small(b)),
        lambda a, b: (a.shape[0], *b.shape[1:]),
        (_float_matrix, lambda b, a: b.ndim > 0 and _of_float_matrices(a, b)),
    ),
    "product_added": Operation(
        lambda a, b, c, _: _exact(_small(c) + 2 * tt.dot(_small(a), _small(b)), c),
        lambda a, b, c: c.shape,
        (
            _float_matrix,
            lambda b, a: b.ndim > 0 and _of_float_matrices(a, b),
            lambda c, a, b: c.is_float and c.shape == (a.shape[0], *b.shape[1:]),
        ),
    ),
    "sum_of_products": Operation(
        _sum_of_products,
        lambda a, b: (a.shape[0], b.shape[1]),
        (_float_matrix, lambda b, a: _float_matrix(b) and b.var.dtype == a.var.dtype and _of_float_matrices(a, b)),
        ("no", "some", "all"),
    ),
    "product_of_fours": Operation(
        _product_of_fours,
        lambda a: (a.shape[0], a.shape[0]),
        (lambda a: _wide_matrix(a) and not any(a.var.broadcastable),),
        ("none", "left", "right", "both"),
    ),
    "steps": Operation(lambda a, b, _: _steps(a, b), _same, (_float_matrix, _square)),
    "recurrence": Operation(
        _recurrence,
        _same,
        (
            lambda a: _wide_matrix(a) and not any(a.var.broadcastable),
            lambda b, a: _square(b, a) and not any(b.var.broadcastable),
        ),
        (False, True),
    ),
    "gradient_of_slices": Operation(
        _gradient_of_slices, lambda a: (("product", *a.shape), _COLUMNS), (_float_matrix,), _SLICES
    ),
    "convolved": Operation(_convolved, _same, (_wide_matrix,), (False, True)),
    "outer": Operation(
        lambda a, b, _: tt.outer(_small(a), _small(b)),
        lambda a, b: (*a.shape, *b.shape),
        (
            lambda a: _real_vector(a) and a.var.dtype != "float16",
            lambda b, a: _real_vector(b) and b.var.dtype != "float16",
        ),
    ),
    "inner": Operation(lambda a, b, _: tt.dot(_small(a), _small(b)), lambda *_: (), (_real_vector, _like)),
    "factor": Operation(_factor, lambda a: (a.shape[0], a.shape[0]), (_wide_matrix,), (True, False)),
    "solution": Operation(_solution, _same, (_wide_array,), ("lower_triangular", "upper_triangular")),
    "pooled": Operation(
        _pooled,
        lambda a: tuple(("pooled", length) for length in a.shape),
        (_float_matrix,),
        ("max", "sum", "average_exc_pad", "average_inc_pad"),
    ),
    "class_is_certain": Operation(
        lambda a, i, _: _class_is_certain(a, i),
        lambda a, i: i.shape,
        (_float_matrix, lambda i, a: _indexes(i) and i.shape == a.shape[:1]),
    ),
    "loss_of_classes": Operation(
        lambda a, i, _: _loss_of_classes(a, i),
        _same,
        (
            lambda a: _float_matrix(a) and a.var.dtype != "float16",
            lambda i, a: _indexes(i) and i.shape == a.shape[:1],
        ),
    ),
    "softmax_winner": Operation(lambda a, _: _softmax_winner(a), _same, (_float_matrix,)),
    "gradient": Operation(lambda a, _: _gradient(a), _same, (_float,)),
    "found": Operation(
        lambda a, b, _: tt.extra_ops.searchsorted(tt.sort(a), b),
        lambda _, b: b.shape,
        (_real_vector, lambda b, _: b.is_real and b.ndim > 0),
    ),
    "running_total": Operation(lambda a, _: _scan(_small(a)), _same, (lambda a: a.is_real and a.ndim > 0,)),
    "if_number": Operation(
        lambda a, b, c, _: ifelse(tt.gt(c, 0), a, b), _same, (_any, _like, lambda value, *_: _index(value))
    ),
    "if_device": Operation(
        lambda a, b, c, _: ifelse(tt.gt(c.sum(), 0), a, b), _same, (_any, _like, lambda value, *_: value.is_float)
    ),
}
