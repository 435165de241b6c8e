"""Random graphs have the same values with the engine as without it, including every NaN."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import optdb
from tests.effort import examples
from tests.topo.graphs import PLAIN, STOCK

DTYPES = ("float32", "float64", "int8", "int64", "bool")
FLOATS = ("float32", "float64")
SHAPES = ((), (0,), (1,), (3,), (1, 1), (3, 1), (1, 3), (2, 3), (0, 3), (2, 0, 1), (2, 1, 3))
# These numbers are exact in every dtype, so that discontinuous ops (floor, comparison, cast) do not turn a rounding
# error into another result. They are far from values for which stabilized and plain formulas differ.
NUMBERS = (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0)

UNARY = ("neg", "abs_", "sgn", "sqr", "ceil", "floor", "exp", "tanh", "sin", "cos", "sigmoid", "log1p_abs", "sqrt_abs")
BINARY = ("add", "sub", "mul", "maximum", "minimum", "div")
COMPARISONS = ("lt", "gt", "le", "ge", "eq", "neq")
BITWISE = ("and_", "or_", "xor")
REDUCTIONS = ("sum", "max", "min", "mean", "prod", "all", "any")
KINDS = (
    *("unary", "binary", "binary", "compare", "switch", "cast", "power", "identity"),
    *("reduce", "dimshuffle", "subtensor", "join", "reshape", "dot", "shape", "constant"),
)
MODES = {"engine": optdb.mode(STOCK), "stock": STOCK, "plain": PLAIN}


def floating(x):
    return x if x.dtype in FLOATS else tt.cast(x, "float64")


def numeric(x):
    """Convert booleans to int8, because Theano has no arithmetic for booleans."""
    return tt.cast(x, "int8") if x.dtype == "bool" else x


def unary(name, x):
    if name == "log1p_abs":
        return tt.log1p(tt.abs_(floating(x)))
    if name == "sqrt_abs":
        return tt.sqrt(tt.abs_(floating(x)))
    if name == "sigmoid":
        return tt.nnet.sigmoid(floating(x))
    if name in ("neg", "abs_", "sgn", "sqr"):
        return getattr(tt, name)(numeric(x))
    return getattr(tt, name)(floating(x))


def binary(name, x, y):
    if name in COMPARISONS:
        return getattr(tt, name)(x, y)
    if name in BITWISE:
        return getattr(tt, name)(tt.cast(x, "int64"), tt.cast(y, "int64"))
    if name == "div":  # no division by a number near zero, whose result would depend on rounding
        return floating(x) / (tt.abs_(floating(y)) + 1)
    return getattr(tt, name)(numeric(x), numeric(y))


class Builder:
    """Draws a Theano expression together with values, from which the shapes are known."""

    def __init__(self, draw):
        self.draw = draw
        self.inputs, self.values, self.pool = [], [], []

    def choose(self, options, label=None):
        return self.draw(st.sampled_from(list(options)), label)

    def shape(self, x):
        """Return the shape of a variable, which Theano computes without any optimization."""
        return x.tag.drawn_shape

    def keep(self, x, value_shape):
        x.tag.drawn_shape = tuple(value_shape)
        self.pool.append(x)

    def new_input(self):
        dtype, shape = self.choose(DTYPES), self.choose(SHAPES)
        x = tt.TensorType(dtype, [length == 1 for length in shape])(f"x{len(self.inputs)}")
        numbers = self.draw(st.lists(st.sampled_from(NUMBERS), min_size=6, max_size=6))
        value = np.resize(np.array(numbers), shape).astype(dtype)
        self.inputs.append(x)
        self.values.append(value)
        self.keep(x, shape)

    def new_constant(self):
        value = np.asarray(self.choose(NUMBERS)).astype(self.choose(DTYPES))
        self.keep(tt.constant(value), ())

    def grow(self):
        kind = self.choose(KINDS)
        getattr(self, "grow_" + kind)(self.choose(self.pool))

    def partner(self, x):
        """Choose a variable that broadcasts with x; return the variable and the broadcast shape."""
        fitting = [y for y in self.pool if broadcast(x, y) is not None]
        y = self.choose(fitting)
        return y, broadcast(x, y)

    def grow_constant(self, x):
        self.new_constant()

    def grow_unary(self, x):
        self.keep(unary(self.choose(UNARY), x), self.shape(x))

    def grow_binary(self, x):
        y, shape = self.partner(x)
        self.keep(binary(self.choose(BINARY), x, y), shape)

    def grow_compare(self, x):
        y, shape = self.partner(x)
        self.keep(binary(self.choose(COMPARISONS + BITWISE), x, y), shape)

    def grow_switch(self, x):
        y, shape = self.partner(x)
        self.keep(tt.switch(tt.gt(numeric(x), 0), numeric(x), numeric(y)), shape)

    def grow_cast(self, x):
        # clip, because converting a float to an integer type is undefined if it is out of range
        self.keep(tt.cast(tt.clip(numeric(x), -3, 3), self.choose(DTYPES)), self.shape(x))

    def grow_power(self, x):
        self.keep(floating(tt.clip(numeric(x), -2, 2)) ** self.choose([0, 1, 2, 3, 4]), self.shape(x))

    def grow_identity(self, x):
        """Add an operation that canonicalization removes again."""
        x, shape = numeric(x), self.shape(x)
        self.keep(
            self.choose(
                [lambda: x * 1, lambda: x + 0, lambda: tt.neg(tt.neg(x)), lambda: x - x + 1, lambda: (x * 2) / 2]
            )(),
            shape,
        )

    def grow_reduce(self, x):
        shape, name = self.shape(x), self.choose(REDUCTIONS)
        axis = self.choose([None, *range(len(shape))])
        gone = shape if axis is None else shape[axis : axis + 1]
        if name in ("max", "min", "mean") and (0 in gone or not shape):
            return
        x = {"mean": floating, "prod": lambda x: floating(tt.clip(numeric(x), -2, 2))}.get(name, numeric)(x)
        left = () if axis is None else shape[:axis] + shape[axis + 1 :]
        self.keep(getattr(x, name)(axis=axis), left)

    def grow_dimshuffle(self, x):
        shape = self.shape(x)
        order = list(self.draw(st.permutations(range(len(shape)))))
        if len(order) < 3 and self.draw(st.booleans()):
            order.insert(self.draw(st.integers(0, len(order))), "x")
        self.keep(x.dimshuffle(order), [1 if i == "x" else shape[i] for i in order])

    def grow_subtensor(self, x):
        shape = self.shape(x)
        if not shape:
            return
        index = []
        for length in shape:
            bound = st.one_of(st.none(), st.integers(-length - 1, length + 1))
            cut = st.builds(slice, bound, bound, st.sampled_from([None, 1, 2, -1, -2]))
            index.append(self.draw(st.one_of(cut, st.integers(-length, length - 1)) if length else cut))
        self.keep(x[tuple(index)], np.empty(shape)[tuple(index)].shape)

    def grow_join(self, x):
        shape = self.shape(x)
        if not shape:
            return
        axis = self.choose(range(len(shape)))
        rest = shape[:axis] + shape[axis + 1 :]
        fitting = [
            y
            for y in self.pool
            if y.ndim == x.ndim
            and self.shape(y)[:axis] + self.shape(y)[axis + 1 :] == rest
            and y.broadcastable[:axis] + y.broadcastable[axis + 1 :]
            == x.broadcastable[:axis] + x.broadcastable[axis + 1 :]
        ]
        y = self.choose(fitting)
        joined = list(shape)
        joined[axis] += self.shape(y)[axis]
        self.keep(tt.join(axis, numeric(x), numeric(y)), joined)

    def grow_reshape(self, x):
        shape = self.shape(x)
        size = int(np.prod(shape))
        new = self.choose([(size,), (1, size), (size, 1), shape[::-1], shape])
        self.keep(x.reshape(new, ndim=len(new)), new)

    def grow_dot(self, x):
        shape = self.shape(x)
        fitting = [y for y in self.pool if shape and y.ndim in (1, 2) and self.shape(y)[0] == shape[-1]]
        if len(shape) not in (1, 2) or not fitting:
            return
        y = self.choose(fitting)
        self.keep(tt.dot(floating(x), floating(y)), shape[:-1] + self.shape(y)[1:])

    def grow_shape(self, x):
        shape = self.shape(x)
        if shape:
            self.keep(x.shape[self.choose(range(len(shape)))], ())


def broadcast(x, y):
    """Return the broadcast shape of x and y, or None; only lengths that Theano knows to be 1 are broadcast."""
    a, b = x.tag.drawn_shape, y.tag.drawn_shape
    n = max(len(a), len(b))
    a_flags = (True,) * (n - len(a)) + x.broadcastable
    b_flags = (True,) * (n - len(b)) + y.broadcastable
    a, b = (1,) * (n - len(a)) + a, (1,) * (n - len(b)) + b
    together = []
    for i, j, i_stretches, j_stretches in zip(a, b, a_flags, b_flags, strict=True):
        if i != j and not (i_stretches or j_stretches):
            return None
        together.append(j if i_stretches else i)
    return tuple(together)


@st.composite
def expressions(draw):
    builder = Builder(draw)
    for _ in range(draw(st.integers(1, 3))):
        builder.new_input()
    for _ in range(draw(st.integers(2, 12))):
        builder.grow()
    made = [x for x in builder.pool if x.owner is not None] or builder.pool[-1:]
    return builder.inputs, made[-3:], builder.values


def tolerance(outputs):
    """Return the relative tolerance: that of float32 if any variable of the graph is float32."""
    variables = theano.gof.graph.ancestors(outputs)
    return 1e-4 if any(getattr(x, "dtype", None) == "float32" for x in variables) else 1e-9


def compare(mine, theirs, rtol, what):
    for i, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        a, b = np.asarray(a), np.asarray(b)
        assert a.dtype == b.dtype, (what, i)
        assert a.shape == b.shape, (what, i)
        if a.dtype.kind == "f":
            np.testing.assert_array_equal(np.isnan(a), np.isnan(b), what)
            scale = np.nanmax(np.abs(b[np.isfinite(b)]), initial=1.0)
            np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * min(scale, 1e3), err_msg=what)
        else:
            np.testing.assert_array_equal(a, b, what)


@pytest.mark.slow
@settings(max_examples=examples(100), suppress_health_check=list(HealthCheck))
@given(expressions())
def test_random_graphs(expression):
    """Compare the engine with Theano's own optimizer, which is the reference, and with no optimizer.

    Theano's stabilizations make some results more accurate. If Theano's optimizer changes results for this reason, only
    its results are compared with the engine's.
    """
    inputs, outputs, values = expression
    rtol = tolerance(outputs)
    results = {}
    with np.errstate(all="ignore"), theano.change_flags(on_opt_error="raise"):
        for name, mode in MODES.items():
            f = theano.function(inputs, outputs, mode=mode, on_unused_input="ignore")
            results[name] = f(*values)
    compare(results["engine"], results["stock"], rtol, "stock")
    try:
        compare(results["stock"], results["plain"], rtol, "plain")
    except AssertionError:
        return
    compare(results["engine"], results["plain"], rtol, "plain")


SPECIAL = np.array([-np.inf, -1e300, -1.0, -0.0, 0.0, 5e-324, 1.0, 1e300, np.inf, np.nan])


STABILIZED = {
    "softplus": lambda x: tt.log(1 + tt.exp(x)),
    "logsigmoid": lambda x: tt.log(tt.nnet.sigmoid(x)),
    "square of root": lambda x: tt.sqrt(x) ** 2,
    "times by": lambda x: (x * 3) / 3,
    "x / x": lambda x: x / x,
    "x - x": lambda x: x - x,
    "x * 0": lambda x: x * 0,
    "inverse of inverse": lambda x: 1 / (1 / x),
    "exp of log": lambda x: tt.exp(tt.log(x)),
    "root of abs": lambda x: abs(x) ** 0.5,
    "x ** 8": lambda x: x**8,
    "x ** -2": lambda x: x**-2,
    "max and min": lambda x: tt.maximum(x, 0) + tt.minimum(x, 0),
    "without nan": lambda x: tt.switch(tt.isnan(x), 0, x),
    "softmax": tt.nnet.softmax,
    "log of softmax": lambda x: tt.log(tt.nnet.softmax(x)),
}


@pytest.mark.parametrize("name", STABILIZED)
def test_the_same_inf_and_nan_as_stock(name):
    x = tt.dvector("x")
    y = STABILIZED[name](x)
    with np.errstate(all="ignore"):
        mine, theirs = (theano.function([x], y, mode=MODES[mode])(SPECIAL) for mode in ("engine", "stock"))
    np.testing.assert_array_equal(np.isnan(mine), np.isnan(theirs))
    np.testing.assert_allclose(mine, theirs, rtol=1e-12)
