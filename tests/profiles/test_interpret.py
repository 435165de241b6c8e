"""The interpreter gives the same values as Theano's own linkers."""

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.ifelse import ifelse
from theano.scalar.basic import Composite, float64
from theano.tensor.inplace import exp_inplace

from profiles.interpret import Interpreter, vectorize

RNG = np.random.RandomState(0)


@pytest.fixture(autouse=True)
def without_compiler():
    """Compile no C code: the interpreter is compared with a function that also runs in Python."""
    with theano.configparser.change_flags(cxx=""):
        yield


def interpreted(inputs, outputs, optimizer="fast_run", **kwargs):
    return theano.function(inputs, outputs, mode=theano.Mode(Interpreter(), optimizer), **kwargs)


def reference(inputs, outputs, **kwargs):
    mode = theano.Mode(theano.gof.vm.VM_Linker(use_cloop=False, c_thunks=False), None)
    return theano.function(inputs, outputs, mode=mode, **kwargs)


def test_fused_graph_with_a_shared_subexpression():
    x, y = tt.matrix("x"), tt.vector("y")
    shared = tt.exp(x) / (1 + tt.sqr(y))
    outputs = [shared * shared + tt.sin(shared), tt.switch(shared > 1, shared, -y)]
    data = RNG.standard_normal((3, 4)), RNG.standard_normal(4)
    for found, expected in zip(interpreted([x, y], outputs)(*data), reference([x, y], outputs)(*data)):
        np.testing.assert_allclose(found, expected, rtol=1e-14)


@pytest.mark.parametrize(
    "build",
    [
        lambda a, b: tt.cast(a, "int32") + 1,
        lambda a, b: tt.true_div(tt.cast(a, "int8"), 3),
        lambda a, b: tt.gammaln(tt.abs_(a) + 1) * tt.erf(b),
        lambda a, b: tt.maximum(a, b) // 2,
        lambda a, b: tt.second(a, b),
        lambda a, b: tt.eq(a, a),
        lambda a, b: a * np.float64(1 / 3) + b.astype("float32").sum(),
        lambda a, b: tt.nnet.sigmoid(a) + tt.clip(b, -0.5, 0.5),
        lambda a, b: tt.dot(a, b.T).sum(axis=0),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_operations(build, dtype):
    a, b = tt.matrix("a", dtype=dtype), tt.matrix("b", dtype=dtype)
    output = build(a, b)
    data = [RNG.standard_normal((3, 2)).astype(dtype) for _ in "ab"]
    options = {"on_unused_input": "ignore"}
    found = interpreted([a, b], output, **options)(*data)
    expected = theano.function([a, b], output, mode="FAST_COMPILE", **options)(*data)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-5 if dtype == "float32" else 1e-12)


def test_more_inputs_than_numpy_takes():
    x = tt.matrix("x")
    found = interpreted([x], tt.add(*[x[k] for k in range(40)]))(np.ones((40, 3)))
    np.testing.assert_array_equal(found, np.full(3, 40.0))


def test_nested_fused_graphs():
    x, y = float64("x"), float64("y")
    inner = Composite([x, y], [x * y + x])
    outer = Composite([x, y], [inner(x, y) - y, inner(y, x)])
    a, b = RNG.standard_normal((2, 5))
    results = vectorize(outer, 2, ["float64"] * 2)([a, b])
    np.testing.assert_allclose(results, [a * b + a - b, a * b + b])


def test_in_place_really_destroys():
    x = tt.vector("x")
    inplace = exp_inplace(x)
    function = interpreted([theano.In(x, mutable=True, borrow=True)], inplace, None, accept_inplace=True)
    value = np.zeros(3)
    function(value)
    np.testing.assert_array_equal(value, np.ones(3))


def test_lazy_branches():
    condition, x = tt.iscalar("condition"), tt.vector("x")
    function = interpreted([condition, x], ifelse(condition, x + 1, x - 1))
    np.testing.assert_array_equal(function(1, [1.0]), [2.0])
    np.testing.assert_array_equal(function(0, [1.0]), [0.0])


@pytest.mark.slow
def test_loops_and_their_gradients():
    x, w = tt.vector("x"), theano.shared(0.7)
    states, _ = theano.scan(lambda u, state: tt.tanh(w * state + u), sequences=x, outputs_info=tt.zeros(()))
    data = RNG.standard_normal(6)
    found = interpreted([x], [states[-1], tt.grad(states.sum(), w)])(data)

    state = slope = gradient = 0.0
    for u in data:
        before, state = state, np.tanh(0.7 * state + u)
        slope = (1 - state**2) * (before + 0.7 * slope)
        gradient += slope
    np.testing.assert_allclose(found, [state, gradient], rtol=1e-13)


def test_updates_are_carried_out():
    count = theano.shared(0)
    function = interpreted([], count, updates=[(count, count + 1)])
    assert [int(function()), int(function())] == [0, 1]


def test_errors_name_the_node():
    x, y = tt.vector("x"), tt.vector("y")
    function = interpreted([x, y], tt.dot(x, y))
    with pytest.raises(ValueError, match="Apply node that caused the error"):
        function([1.0], [1.0, 2.0])


def test_next_values_are_not_written_to_by_the_next_call():
    """Theano's Alloc overwrites the array in its cell, so the cell must not hold the current value of a variable."""
    x, s = tt.dscalar("x"), theano.shared(np.zeros(3), "s")
    filled = tt.alloc(x, 3)
    f = theano.function([x], s + filled, updates=[(s, filled)], mode=theano.Mode(Interpreter(), None))
    for before, now in ((0, 1), (1, 2), (2, 3)):
        np.testing.assert_array_equal(f(now), [before + now] * 3)
        np.testing.assert_array_equal(s.get_value(), [now] * 3)
