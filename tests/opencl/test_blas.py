"""Tests of the functions for handwritten ops: optdb.opencl.blas, optdb.opencl.empty and optdb.opencl.zeros."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given
from hypothesis import strategies as st

import optdb.opencl
from optdb.lifters.contexts import ContextNotDefined
from optdb.opencl import as_opencl_variable, blas, get_context, infer_context_name
from optdb.runtime.arrays import from_host


def there(value):
    return from_host(get_context("dev0"), value)


def values(rng, *shape, dtype="float32"):
    return rng.uniform(-1, 1, shape).astype(dtype)


RTOL = {"float16": 4e-3, "float32": 1e-5, "float64": 1e-12}


@given(
    sizes=st.tuples(*[st.integers(0, 9)] * 3),
    flags=st.tuples(*[st.booleans()] * 3),
    dtype=st.sampled_from(sorted(RTOL)),
    factors=st.sampled_from([(1, 0), (0.5, 2), (0, 1), (-1, 1)]),
)
def test_gemm(sizes, flags, dtype, factors):
    (m, k, n), (trans_a, trans_b, overwrite), (alpha, beta) = sizes, flags, factors
    rng = np.random.RandomState(0)
    a, b = (
        values(rng, *shape[:: -1 if trans else 1], dtype=dtype)
        for shape, trans in (((m, k), trans_a), ((k, n), trans_b))
    )
    c = values(rng, m, n, dtype=dtype)
    on_device = there(c)
    z = blas.gemm(alpha, there(a), there(b), beta, on_device, trans_a, trans_b, overwrite)
    wide = [x.astype("float64") for x in (a.T if trans_a else a, b.T if trans_b else b, c)]
    np.testing.assert_allclose(
        z.get(), alpha * wide[0].dot(wide[1]) + beta * wide[2], rtol=RTOL[dtype], atol=RTOL[dtype]
    )
    assert (z is on_device) == overwrite
    if not overwrite:
        np.testing.assert_array_equal(on_device.get(), c)


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("overwrite", [False, True])
def test_gemv(trans, overwrite):
    rng = np.random.RandomState(0)
    a, x, y = values(rng, 5, 7), values(rng, 5 if trans else 7), values(rng, 7 if trans else 5)
    z = blas.gemv(0.5, there(a), there(x), 2, there(y), trans, overwrite)
    np.testing.assert_allclose(z.get(), 0.5 * (a.T if trans else a).dot(x) + 2 * y, rtol=1e-5, atol=1e-6)


def test_dot():
    rng = np.random.RandomState(0)
    a, b, x = values(rng, 3, 4), values(rng, 4, 2), values(rng, 4)
    np.testing.assert_allclose(blas.dot(there(a), there(b)).get(), a.dot(b), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(blas.dot(there(a), there(x)).get(), a.dot(x), rtol=1e-5, atol=1e-6)


def test_mistakes():
    a, x = there(np.zeros((2, 3), "float32")), there(np.zeros(3, "float32"))
    with pytest.raises(ValueError, match="gemm has no array to add to or overwrite: pass c="):
        blas.gemm(1, a, a, beta=1)
    with pytest.raises(ValueError, match="gemv has no array to add to or overwrite: pass y="):
        blas.gemv(1, a, x, overwrite_y=True)
    with pytest.raises(ValueError, match="b of gemm has 1 dimensions instead of 2"):
        blas.gemm(1, a, x)
    with pytest.raises(ValueError, match="shapes"):
        blas.gemm(1, a, a)
    with pytest.raises(TypeError, match="b of gemm is ndarray, not a device array: transfer it first"):
        blas.gemm(1, a, np.zeros((3, 2), "float32"))
    with pytest.raises(TypeError, match="b of gemm is float64: all arrays must have the same dtype"):
        blas.gemm(1, a, there(np.zeros((3, 2))))
    with pytest.raises(TypeError, match="a of gemm is int32"):
        blas.gemm(1, there(np.zeros((3, 2), "int32")), a)
    other = from_host(get_context("dev1"), np.zeros((3, 2), "float32"))
    with pytest.raises(ValueError, match="b of gemm is in another context"):
        blas.gemm(1, a, other)


@pytest.mark.parametrize("shape", [(), 3, (0,), (2, 3), [np.int64(4), 1]])
@pytest.mark.parametrize("dtype", ["float32", "int8", "complex64", "bool"])
def test_new_arrays(shape, dtype):
    wanted = np.zeros(shape, dtype)
    zeros = optdb.opencl.zeros(shape, dtype, "dev0")
    np.testing.assert_array_equal(zeros.get(), wanted)
    empty = optdb.opencl.empty(shape, dtype, get_context("dev0"))
    assert (empty.shape, empty.dtype) == (wanted.shape, wanted.dtype)
    assert empty.flags.c_contiguous


def test_mistakes_with_new_arrays(default):
    assert optdb.opencl.empty(3).dtype == "float64"
    with pytest.raises(ContextNotDefined, match="nowhere: no such context"):
        optdb.opencl.empty(3, "float32", "nowhere")
    with pytest.raises(ValueError, match="lengths must not be negative"):
        optdb.opencl.empty((2, -1))
    with pytest.raises(TypeError, match="OpenCL has no"):
        optdb.opencl.empty(3, "U4")


class Product(theano.Op):
    """The op in Theano's GPU tutorial that uses ``empty`` and ``gemm``."""

    __props__ = ()

    def make_node(self, a, b):
        name = infer_context_name(a, b)
        a, b = as_opencl_variable(a, name), as_opencl_variable(b, name)
        return theano.Apply(self, [a, b], [a.type()])

    def perform(self, node, inputs, output_storage):
        a, b = inputs
        (c,) = output_storage
        c[0] = optdb.opencl.empty([a.shape[0], b.shape[1]], dtype=a.dtype, context=node.inputs[0].type.context)
        blas.gemm(1, a, b, 0, c[0], overwrite_c=True)


def test_the_op_of_the_tutorial(default):
    a, b = tt.fmatrix(), tt.fmatrix()
    f = theano.function([a, b], Product()(a, b))
    rng = np.random.RandomState(0)
    for m, k, n in [(2, 3, 4), (5, 1, 2), (2, 3, 4)]:
        x, y = values(rng, m, k), values(rng, k, n)
        np.testing.assert_allclose(f(x, y), x.dot(y), rtol=1e-5, atol=1e-6)
