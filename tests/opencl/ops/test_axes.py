"""Lifted ops along axes (cumulative ops, largest elements, sorted vectors) agree with the host."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.tensor.basic import Argmax
from theano.tensor.extra_ops import SearchsortedOp

from optdb.opencl.ops.axes import OpenCLArgmax, OpenCLCumOp, OpenCLMaxAndArgmax, OpenCLSearchsortedOp
from tests.opencl.layouts import device_array, variable
from tests.opencl.lifted import both


def test_an_axis_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match="out of bounds"):
        OpenCLCumOp(2, "add")(variable(np.zeros((2, 2))))


def test_cumulative_ops_with_gradients():
    x = tt.dmatrix()
    a = np.random.default_rng(0).uniform(1, 2, (4, 3))
    outputs = [tt.cumsum(x), tt.cumprod(x, 0), tt.cumsum(x, -1)]
    outputs += [theano.grad((out**2).sum(), x) for out in outputs]
    got, want, ops = both([x], outputs, [a])
    for mine, theirs in zip(got, want):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12)
    assert OpenCLCumOp in ops
    y = variable(a)
    ours = theano.function(
        [y], theano.grad(tt.as_tensor_variable(OpenCLCumOp(1, "mul")(y)).sum(), y), mode=theano.Mode("py", None)
    )
    z = tt.dmatrix()
    theirs = theano.function([z], theano.grad(tt.cumprod(z, 1).sum(), z), mode=theano.Mode("py", None))
    np.testing.assert_allclose(np.asarray(ours(device_array(a))), theirs(a), rtol=1e-12)


def test_largest():
    x = tt.ftensor3()
    a = np.random.default_rng(0).uniform(size=(3, 4, 5)).astype("float32")
    got, want, ops = both([x], [tt.max(x, axis=1), tt.argmax(x, axis=(0, 2)), Argmax([1])(x)], [a])
    for mine, theirs in zip(got, want):
        np.testing.assert_array_equal(mine, theirs)
    assert {OpenCLMaxAndArgmax, OpenCLArgmax} <= set(ops)


def test_searchsorted(default):
    x, v = tt.fvector("x"), tt.fmatrix("v")
    buckets = tt.extra_ops.searchsorted(x, v * 2, side="right")
    values = [np.linspace(-1, 1, 12, dtype="float32"), np.random.default_rng(0).normal(size=(30, 4)).astype("float32")]
    got, want, ops = both([x, v], buckets + 1, values)
    np.testing.assert_array_equal(got[0], want[0])
    assert OpenCLSearchsortedOp in ops and SearchsortedOp not in ops


def test_a_sorter_stays_on_the_host(default):
    x, v, sorter = tt.fvector("x"), tt.fvector("v"), tt.lvector("sorter")
    value = np.array([3, 1, 2], "float32")
    found = tt.extra_ops.searchsorted(x * 2, v, sorter=sorter)
    got, want, ops = both([x, v, sorter], found, [value, value, np.argsort(value)], at_home=[sorter])
    np.testing.assert_array_equal(got[0], want[0])
    assert SearchsortedOp in ops
