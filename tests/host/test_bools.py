"""Truth values are inverted alike in Python and in C."""

from __future__ import annotations

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
    """It asks by an inverted flag whether all went well, in several places."""
    x = tt.dmatrix()
    f = theano.function([x], tt.grad(Cholesky(lower=True, on_error="nan")(x).sum(), x), mode=mode)
    assert np.isnan(f([[1, 0.2], [0.2, -2]])).all()
    assert np.isfinite(f([[1, 0.2], [0.2, 2]])).all()
