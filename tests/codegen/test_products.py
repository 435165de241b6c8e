"""Operations that multiply matrices and vectors agree with NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optdb.codegen.gemm.operations import AddedOuterProduct, AddedProduct, BatchedProduct, Product
from optdb.codegen.kernels import compile_kernels
from optdb.codegen.layout import view
from tests.codegen.layouts import STEPS, compute, context, device_array
from tests.effort import examples

FLOATS = ["float16", "float32", "float64"]
SIZES = st.sampled_from([0, 1, 2, 5, 33, 40])


def close(got, want, terms=1):
    assert got.dtype == want.dtype and got.shape == want.shape
    eps = np.finfo(got.dtype).eps
    np.testing.assert_allclose(got, want, rtol=8 * eps, atol=8 * eps * max(terms, 1))


def sample(dtype, *shape):
    return np.random.default_rng(sum(shape)).uniform(-1, 1, shape).astype(dtype)


@st.composite
def operand(draw, dtype, *shape):
    value = sample(dtype, *shape)
    return value, device_array(value, [draw(STEPS) for _ in shape])


def exact(a, b):
    return np.dot(a.astype("float64"), b.astype("float64"))


@pytest.mark.slow
@given(st.data(), SIZES, SIZES, SIZES, st.sampled_from(FLOATS))
@settings(max_examples=examples(40))
def test_matrices_of_any_layout(data, m, k, n, dtype):
    (a, x), (b, y) = data.draw(operand(dtype, m, k)), data.draw(operand(dtype, k, n))
    close(compute(Product(context(), dtype), x, y)[0], exact(a, b).astype(dtype), k)
    close(compute(Product(context(), dtype), x, y, np.array(0.5))[0], (0.5 * exact(a, b)).astype(dtype), k)


@given(st.data(), SIZES, SIZES, SIZES, st.booleans(), st.sampled_from([0.0, 1.0, -0.5]))
@settings(max_examples=examples(30))
def test_added_products(data, m, k, n, inplace, beta):
    (a, x), (b, y), (c, z) = (data.draw(operand("float32", *shape)) for shape in ((m, k), (k, n), (m, n)))
    operation = AddedProduct(context(), "float32", 2, inplace)
    want = (0.5 * exact(a, b) + beta * c).astype("float32")
    (got,) = compute(operation, z, np.array(0.5, "float32"), x, y, np.array(beta, "float32"))
    close(got, want, k)
    np.testing.assert_array_equal(z.get(), got if inplace else c)


def test_what_is_not_added_is_not_looked_at():
    a, c = sample("float32", 3, 3), np.full((3, 3), np.nan, "float32")
    one, zero = np.array(1, "float32"), np.array(0, "float32")
    operation = AddedProduct(context(), "float32", 2)
    (got,) = compute(operation, device_array(c), one, device_array(a), device_array(a), zero)
    close(got, exact(a, a).astype("float32"), 3)


@given(st.data(), SIZES, SIZES, st.booleans(), st.booleans())
@settings(max_examples=examples(30))
def test_added_products_with_vectors(data, m, k, inplace, columns):
    a = sample("float64", m, k)
    x = device_array(a.T, [data.draw(STEPS), data.draw(STEPS)]) if columns else device_array(a)
    (b, y), (c, z) = data.draw(operand("float64", k)), data.draw(operand("float64", m))
    if columns:
        x = view(x, x.shape[::-1], x.strides[::-1])
    operation = AddedProduct(context(), "float64", 1, inplace)
    (got,) = compute(operation, z, np.array(2.0), x, y, np.array(0.5))
    close(got, 2 * np.dot(a, b) + 0.5 * c, k)
    np.testing.assert_array_equal(z.get(), got if inplace else c)


@pytest.mark.parametrize("overwrites", [True, False])
def test_outer_products(overwrites):
    a, b, c = sample("float32", 4, 3), sample("float32", 4), sample("float32", 3)
    z = device_array(a, [2, -1])
    operation = AddedOuterProduct(context(), "float32", overwrites)
    (got,) = compute(operation, z, np.array(0.5, "float32"), device_array(b, [-1]), device_array(c))
    close(got, a + np.float32(0.5) * np.outer(b, c))
    np.testing.assert_array_equal(z.get(), got if overwrites else a)
    with pytest.raises(ValueError, match="cannot add the product"):
        compute(operation, z, np.array(0.5), device_array(c), device_array(b))


def test_the_sign_of_a_factor_that_is_zero():
    zeros, ones = device_array(np.full((2, 2), -0.0, "float32")), device_array(np.ones(2, "float32"))
    operation = AddedOuterProduct(context(), "float32")
    kernels = compile_kernels(operation.kernels(), context(), "outer products")
    for factor in (0.0, -0.0, 0.0):
        outputs = [[None]]
        operation.run([zeros, np.array(factor, "float32"), ones, ones], outputs, kernels)
        assert np.signbit(outputs[0][0].get()).all() == np.signbit(factor)


@pytest.mark.parametrize("shapes", [((3, 4), (4, 2)), ((4,), (4, 2)), ((3, 4), (4,)), ((9,), (9,)), ((0,), (0,))])
def test_matrices_and_vectors(shapes):
    a, b = (sample("float32", *shape) for shape in shapes)
    operation = Product(context(), "float32", a.ndim, b.ndim)
    (got,) = compute(operation, *[device_array(x, [-1] * x.ndim) for x in (a, b)])
    close(got, np.asarray(np.dot(a, b)), 9)


@pytest.mark.parametrize("shapes", [((3, 2, 4), (3, 4, 5)), ((3, 4), (3, 4, 5)), ((3, 2, 4), (3, 4)), ((3, 4), (3, 4))])
def test_batches(shapes):
    a, b = (sample("float32", *shape) for shape in shapes)
    want = np.array([np.dot(x, y) for x, y in zip(a, b)])
    arrays = [device_array(x, [1, -1, 2][: x.ndim]) for x in (a, b)]
    close(compute(BatchedProduct(context(), "float32"), *arrays)[0], want, 4)
    with pytest.raises(ValueError, match="3 matrices to multiply with 2"):
        compute(BatchedProduct(context(), "float32"), arrays[0], device_array(b[:2]))


def test_shapes_that_do_not_fit_are_refused():
    a, b = sample("float32", 2, 3), sample("float32", 4, 5)
    with pytest.raises(ValueError, match=r"a product of \(2, 3\) and \(4, 5\)"):
        compute(Product(context(), "float32"), device_array(a), device_array(b))
