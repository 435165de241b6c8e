"""Products of matrices and vectors, and softmax, on the device against NumPy and the host."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given, settings
from hypothesis import strategies as st
from theano.tensor import blas as host
from theano.tensor.nnet import nnet

from optdb.codegen.layout import view
from optdb.opencl.ops import blas, softmax
from tests.opencl.layouts import STEPS, device_array, run, variable
from tests.opencl.lifted import both, lifted_function, ops_of

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


@given(st.data(), SIZES, SIZES, SIZES, st.sampled_from(FLOATS))
@settings(max_examples=40)
def test_dot22_of_any_layout(data, m, k, n, dtype):
    (a, x), (b, y) = data.draw(operand(dtype, m, k)), data.draw(operand(dtype, k, n))
    node = blas.OpenCLDot22()(variable(a), variable(b)).owner
    close(run(node, [x, y])[0], exact(a, b).astype(dtype), k)


@given(st.data(), SIZES, SIZES, SIZES, st.booleans(), st.sampled_from([0.0, 1.0, -0.5]))
@settings(max_examples=30)
def test_gemm(data, m, k, n, inplace, beta):
    (a, x), (b, y), (c, z) = (data.draw(operand("float32", *shape)) for shape in ((m, k), (k, n), (m, n)))
    node = blas.OpenCLGemm(inplace)(variable(c), np.float32(0.5), variable(a), variable(b), np.float32(beta)).owner
    want = (0.5 * exact(a, b) + beta * c).astype("float32")
    (got,) = run(node, [z, np.array(0.5, "float32"), x, y, np.array(beta, "float32")])
    close(got, want, k)
    np.testing.assert_array_equal(z.get(), got if inplace else c)


def test_what_is_not_added_is_not_looked_at():
    a, c = sample("float32", 3, 3), np.full((3, 3), np.nan, "float32")
    node = blas.OpenCLGemm(False)(variable(c), np.float32(1), variable(a), variable(a), np.float32(0)).owner
    numbers = np.array(1, "float32"), np.array(0, "float32")
    got = run(node, [device_array(c), numbers[0], device_array(a), device_array(a), numbers[1]])[0]
    close(got, exact(a, a).astype("float32"), 3)


@given(st.data(), SIZES, SIZES, st.booleans(), st.booleans())
@settings(max_examples=30)
def test_gemv(data, m, k, inplace, columns):
    a = sample("float64", m, k)
    x = device_array(a.T, [data.draw(STEPS), data.draw(STEPS)]) if columns else device_array(a)
    (b, y), (c, z) = data.draw(operand("float64", k)), data.draw(operand("float64", m))
    if columns:
        x = view(x, x.shape[::-1], x.strides[::-1])
    node = blas.OpenCLGemv(inplace)(variable(c), 2.0, variable(a), variable(b), 0.5).owner
    (got,) = run(node, [z, np.array(2.0), x, y, np.array(0.5)])
    close(got, 2 * np.dot(a, b) + 0.5 * c, k)
    np.testing.assert_array_equal(z.get(), got if inplace else c)


@pytest.mark.parametrize("destructive", [True, False])
def test_ger(destructive):
    a, b, c = sample("float32", 4, 3), sample("float32", 4), sample("float32", 3)
    z = device_array(a, [2, -1])
    node = blas.OpenCLGer(destructive)(variable(a), np.float32(0.5), variable(b), variable(c)).owner
    (got,) = run(node, [z, np.array(0.5, "float32"), device_array(b, [-1]), device_array(c)])
    close(got, a + np.float32(0.5) * np.outer(b, c))
    np.testing.assert_array_equal(z.get(), got if destructive else a)


@pytest.mark.parametrize("shapes", [((3, 4), (4, 2)), ((4,), (4, 2)), ((3, 4), (4,)), ((9,), (9,)), ((0,), (0,))])
def test_dot_of_matrices_and_vectors(shapes):
    a, b = (sample("float32", *shape) for shape in shapes)
    node = blas.OpenCLDot()(variable(a), variable(b)).owner
    close(run(node, [device_array(x, [-1] * x.ndim) for x in (a, b)])[0], np.asarray(np.dot(a, b)), 9)


@pytest.mark.parametrize("shapes", [((3, 2, 4), (3, 4, 5)), ((3, 4), (3, 4, 5)), ((3, 2, 4), (3, 4)), ((3, 4), (3, 4))])
def test_batches(shapes):
    a, b = (sample("float32", *shape) for shape in shapes)
    node = blas.OpenCLBatchedDot()(variable(a), variable(b)).owner
    want = np.array([np.dot(x, y) for x, y in zip(a, b)])
    close(run(node, [device_array(x, [1, -1, 2][: x.ndim]) for x in (a, b)])[0], want, 4)


@pytest.mark.parametrize("op", [blas.OpenCLDot22(), blas.OpenCLDot()])
def test_shapes_that_do_not_fit_are_refused(op):
    a, b = sample("float32", 2, 3), sample("float32", 4, 5)
    with pytest.raises(ValueError, match=r"a product of \(2, 3\) and \(4, 5\)"):
        run(op(variable(a), variable(b)).owner, [device_array(a), device_array(b)])


def test_products_are_lifted_and_those_of_whole_numbers_are_not():
    x, y, z = tt.fmatrix(), tt.fmatrix(), tt.fvector()
    a, b, c = sample("float32", 4, 5), sample("float32", 5, 3), sample("float32", 5)
    outputs = [
        tt.dot(x, y),
        tt.dot(x, z),
        host.Dot22()(x, y),
        host.Dot22Scalar()(x, y, tt.constant(np.float32(2))),
        host.gemm_no_inplace(tt.dot(x, y), np.float32(2), x, y, np.float32(0.5)),
        host.gemv_no_inplace(x[:, 0], np.float32(2), x, z, np.float32(0.5)),
        host.ger(x, np.float32(2), x[:, 0], z),
        host.BatchedDot()(x.dimshuffle(0, "x", 1), x.dimshuffle(0, 1, "x")),
    ]
    got, want, ops = both([x, y, z], outputs, [a, b, c])
    for mine, theirs in zip(got, want):
        close(mine, theirs, 5)
    assert {
        *(blas.OpenCLDot, blas.OpenCLDot22, blas.OpenCLDot22Scalar, blas.OpenCLGemm, blas.OpenCLGemv),
        *(blas.OpenCLGer, blas.OpenCLBatchedDot),
    } <= set(ops)
    i = tt.lmatrix()
    assert tt.Dot in ops_of(lifted_function([i], [tt.dot(i, i)]))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(3, 5), (1, 1), (0, 4), (300, 7)])
def test_softmax_and_its_relatives(dtype, shape):
    x, b = tt.TensorType(dtype, (False, False))(), tt.TensorType(dtype, (False,))()
    a, c = 5 * sample(dtype, *shape), sample(dtype, shape[1])
    outputs = [nnet.softmax(x), nnet.logsoftmax(x), nnet.softmax_with_bias(x, b), nnet.softmax_grad(x, nnet.softmax(x))]
    f = lifted_function([x, b], outputs)
    got = [value.get() for value in f(a, c)]
    assert all(value.shape == shape for value in got)
    if not a.size:
        return
    wide, bias = a.astype("float64"), c.astype("float64")
    power = np.exp(wide - wide.max(1, keepdims=True))
    plain = power / power.sum(1, keepdims=True)
    power = np.exp(wide + bias - (wide + bias).max(1, keepdims=True))
    rows = plain.astype(dtype).astype("float64")
    want = [
        plain,
        np.log(plain),
        power / power.sum(1, keepdims=True),
        wide * rows - (wide * rows).sum(1, keepdims=True) * rows,
    ]
    for mine, exactly in zip(got, want):
        close(mine, exactly.astype(dtype), 16)
    wanted = {softmax.OpenCLSoftmax, softmax.OpenCLLogSoftmax, softmax.OpenCLSoftmaxWithBias, softmax.OpenCLSoftmaxGrad}
    assert set(ops_of(f)) == wanted


MIXED = [
    ("float32", "float64"),
    ("float64", "float32"),
    ("float16", "float32"),
    ("int32", "float64"),
    ("float32", "int8"),
]


@pytest.mark.parametrize("dtypes", MIXED)
def test_lifted_products_of_two_dtypes(dtypes):
    x, y = (tt.TensorType(dtype, (False, False))() for dtype in dtypes)
    a, b = (np.arange(6).reshape(2, 3) - 2).astype(dtypes[0]), (np.arange(12).reshape(3, 4) - 5).astype(dtypes[1])
    f = lifted_function([x, y], [tt.dot(x, y), tt.dot(x[0], y), tt.dot(x, y[:, 0]), tt.dot(x[0], y[:, 0])])
    for value, want in zip(f(a, b), [a @ b, a[0] @ b, a @ b[:, 0], a[0] @ b[:, 0]]):
        assert value.dtype == np.result_type(*dtypes)
        np.testing.assert_array_equal(value.get(), want)
    assert blas.OpenCLDot in ops_of(f)


@pytest.mark.parametrize("dtypes", MIXED[:3])
def test_lifted_softmax_of_two_dtypes(dtypes):
    x, y = (tt.TensorType(dtype, (False, False))() for dtype in dtypes)
    outputs = [nnet.softmax_with_bias(x, y[0]), nnet.softmax_grad(x, y)]
    a, b = (np.linspace(start, 1, 6).reshape(2, 3).astype(dtype) for start, dtype in zip((-1, 0), dtypes))
    host_f = theano.function([x, y], outputs, mode=theano.Mode("py", None))
    f = lifted_function([x, y], outputs)
    for value, want in zip(f(a, b), host_f(a, b)):
        assert value.dtype == want.dtype
        close(value.get(), want, 16)
    assert {softmax.OpenCLSoftmaxWithBias, softmax.OpenCLSoftmaxGrad} <= set(ops_of(f))


def test_softmax_of_strides_and_of_what_is_not_finite():
    a = np.array([[1, 2, np.nan], [0, -np.inf, 1], [1e4, 1e4, 0]], "float32")
    node = softmax.OpenCLSoftmax()(variable(a)).owner
    (got,) = run(node, [device_array(a, [-1, 2])])
    e = np.exp(-1.0)
    np.testing.assert_allclose(got, [[np.nan] * 3, [e / (1 + e), 0, 1 / (1 + e)], [0.5, 0.5, 0]], rtol=1e-6)


def test_a_bias_that_does_not_fit_is_refused():
    a, b = sample("float32", 2, 3), sample("float32", 2)
    node = softmax.OpenCLSoftmaxWithBias()(variable(a), variable(b)).owner
    with pytest.raises(ValueError, match=r"shapes \(2, 3\) and \(2,\)"):
        run(node, [device_array(a), device_array(b)])
