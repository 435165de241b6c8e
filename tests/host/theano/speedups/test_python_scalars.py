"""Scalar ops compute in Python the same as in C, in time linear in the size of the graph."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.scalar import Composite, invert, switch
from theano.tensor.elemwise import Elemwise
from theano.tensor.slinalg import Cholesky

import optdb

PY = theano.Mode("py", "fast_run")


def test_a_fused_inversion():
    flag, x, y = theano.scalar.bool(), theano.scalar.float64(), theano.scalar.float64()
    choose = Elemwise(Composite([flag, x, y], [switch(invert(flag), x, y)]))
    flags, xs, ys = tt.bvector().astype("bool"), tt.dvector(), tt.dvector()
    f = theano.function([flags.owner.inputs[0], xs, ys], choose(flags, xs, ys), mode=theano.Mode("py", None))
    np.testing.assert_array_equal(f(np.array([0, 1], "int8"), [1, 2], [3, 4]), [1, 4])


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64"])
def test_bits_of_integers(dtype):
    x = tt.TensorType(dtype, [False])()
    values = np.array([0, 1, 100], dtype)
    np.testing.assert_array_equal(theano.function([x], ~x, mode=PY)(values), ~values)


@pytest.mark.parametrize("mode", [PY, optdb.mode(PY)], ids=["stock", "engine"])
def test_the_gradient_of_a_decomposition_that_fails(mode):
    """It tests several times, with an inverted flag, whether all steps have succeeded."""
    x = tt.dmatrix()
    f = theano.function([x], tt.grad(Cholesky(lower=True, on_error="nan")(x).sum(), x), mode=mode)
    assert np.isnan(f([[1, 0.2], [0.2, -2]])).all()
    assert np.isfinite(f([[1, 0.2], [0.2, 2]])).all()


def computed(op, *inputs):
    """Return the result of a scalar op in Python."""
    node = op(*[type() for type in op.inputs_type], return_list=True)[0].owner
    op.prepare_node(node, None, None, "py")
    storage = [[None] for _ in node.outputs]
    op.perform(node, inputs, storage)
    return [value for (value,) in storage]


def test_no_part_of_a_graph_is_computed_twice():
    """Computing each of 60 levels twice would never end."""
    x, y = theano.scalar.float64(), theano.scalar.float64()
    out, expected = x + y, 0.5
    for _ in range(60):
        out, expected = theano.scalar.tanh(out) * (out + x), np.tanh(expected) * (expected + 0.25)
    assert computed(Composite([x, y], [out]), 0.25, 0.25) == [expected]


def test_each_output_is_computed():
    x, y = theano.scalar.float64(), theano.scalar.float64()
    op = Composite([x, y], [x + y, (x + y) * y])
    assert computed(op, 2.0, 5.0) == [7.0, 35.0]


def test_copies_compute_too():
    x = theano.scalar.float64()
    op = pickle.loads(pickle.dumps(Composite([x], [x * x + 1])))
    assert computed(op.make_new_inplace(None, "squares"), 3.0) == [10.0]
