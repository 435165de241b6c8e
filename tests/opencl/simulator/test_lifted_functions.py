"""A simulator of a function that was compiled for the device lifts the function's graph a second time."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt

import optdb
from optdb.host.theano.functions.optimized import plain_copy
from optdb.opencl.rewriters.inplace import PLAIN

pytestmark = pytest.mark.usefixtures("default")

MODE = theano.Mode("py", "fast_run").including("opencl")


def there(value, name):
    return theano.shared(np.asarray(value, "float32"), name=name, target="dev0")


def compiled(inputs, outputs, **options):
    """Return a function on the device, and a simulator of it."""
    f = theano.function(inputs, outputs, mode=MODE, **options)
    assert any(node.op.destroy_map for node in f.maker.fgraph.apply_nodes if hasattr(node.op, "destroy_map"))
    return f, optdb.SimulatorOCL(f, "dev0")


def test_reductions_that_are_fused_stay_so():
    x, scale = tt.fmatrix(), there([1, 2, 3], "scale")
    f = theano.function([x], x.sum(axis=0) * scale + 1, mode=MODE)
    value = np.arange(6, dtype="float32").reshape(2, 3)
    sim = optdb.SimulatorOCL(f, "dev0")
    np.testing.assert_array_equal(sim(value), value.sum(axis=0) * [1, 2, 3] + 1)


def test_an_argument_is_not_overwritten_where_its_upload_was():
    x, factor = tt.fvector(), tt.iscalar()
    offset = there([5, 7], "offset")
    f, sim = compiled([x, factor], [x, x + factor, x * (0 - (0 - offset))])
    value = np.array([1, 2], "float32")
    for _ in range(3):
        for ours, theirs in zip(sim(value, 3), f(value, 3), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_array_equal(value, [1, 2])


def test_a_shared_variable_of_the_host_is_not_overwritten_where_its_upload_was():
    x, w = there([5, 7], "x"), theano.shared(np.array([1, 2], "float32"), name="w", target="cpu")
    f, sim = compiled([], tt.exp(w * 0.5) * x)
    for _ in range(3):
        np.testing.assert_allclose(sim(), f(), rtol=1e-6)
        np.testing.assert_array_equal(sim.get(w), [1, 2])
    sim.sync_to_theano()
    np.testing.assert_array_equal(w.get_value(), [1, 2])


def test_a_training_step_is_the_functions():
    x, y = tt.fmatrix(), tt.fvector()
    w, b = there(np.linspace(-1, 1, 4), "w"), there(0.5, "b")
    state = there(np.zeros(4), "momentum")
    loss = ((tt.tanh(x.dot(w)) + b - y) ** 2).sum()
    slope_w, slope_b = theano.grad(loss, [w, b])
    updates = [(state, state * np.float32(0.5) + slope_w), (w, w - np.float32(0.1) * state), (b, b - slope_b)]
    f, sim = compiled([x, y], loss, updates=updates)
    rng = np.random.RandomState(0)
    for _ in range(4):
        data = rng.randn(5, 4).astype("float32"), rng.randn(5).astype("float32")
        np.testing.assert_allclose(sim(*data), f(*data), rtol=1e-4)
    for variable in (w, b, state):
        assert type(sim.get(variable)) is np.ndarray
        np.testing.assert_allclose(sim.get(variable), variable.get_value(), rtol=1e-4)
    sim.set(w, np.zeros(4, "float32"))
    np.testing.assert_array_equal(sim.get("w"), np.zeros(4))


class Halve(theano.Op):
    """An op that only works in place."""

    __props__ = ()

    def __init__(self):
        self.destroy_map = {0: [0]}

    def make_node(self, x):
        return theano.Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        inputs[0] *= 0.5
        outputs[0][0] = inputs[0]


def test_what_only_works_in_place_gets_copies():
    x = tt.fvector()
    copies = plain_copy([(out := Halve()(x)).owner], {x: x}, PLAIN)
    (given,) = copies[out].owner.inputs
    assert given is not x and given.owner.inputs == [x]
    f = theano.function([x], Halve()(x + 1) * 2, mode=theano.Mode("py", "fast_run"), accept_inplace=True)
    value = np.array([1, 2], "float32")
    np.testing.assert_array_equal(optdb.SimulatorOCL(f, "dev0")(value), value + 1)
