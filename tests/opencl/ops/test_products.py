"""Lifted products of matrices and vectors, and lifted softmax, agree with NumPy and the host."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.tensor import blas as host
from theano.tensor.nnet import nnet

import optdb
from optdb.codegen.gemm import products
from optdb.codegen.gemm.families import prepared
from optdb.opencl import get_context
from optdb.opencl.ops import blas, softmax
from tests.opencl.lifted import both, lifted_function, ops_of

FLOATS = ["float16", "float32", "float64"]


def close(got, want, terms=1):
    assert got.dtype == want.dtype and got.shape == want.shape
    eps = np.finfo(got.dtype).eps
    np.testing.assert_allclose(got, want, rtol=8 * eps, atol=8 * eps * max(terms, 1))


def sample(dtype, *shape):
    return np.random.default_rng(sum(shape)).uniform(-1, 1, shape).astype(dtype)


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


@pytest.fixture
def asked(monkeypatch):
    """Return a list to which each product adds the precision that it requests."""
    seen = []

    def listening(families, context, request, failed, owner):
        seen.append(request.precision)
        return prepared(families, context, request, failed, owner)

    monkeypatch.setattr(products, "prepared", listening)
    return seen


def of_matrices(kind):
    """Return the inputs and the output of a graph with a product of the given kind."""
    x, y = tt.fmatrices("xy")
    if kind == "dot":
        return [x, y], tt.dot(x, y)
    if kind == "gemm":
        return [x, y], x + 0.5 * tt.dot(x, y)
    if kind == "batched":
        return [x, y], tt.batched_dot(x.dimshuffle("x", 0, 1), y.dimshuffle("x", 0, 1))
    results, _ = theano.scan(lambda z, y: tt.dot(z, y), outputs_info=[x], non_sequences=[y], n_steps=2)
    return [x, y], results[-1]


@pytest.mark.parametrize("kind", ["dot", "gemm", "batched", "scan"])
def test_each_function_keeps_the_precision_that_it_was_compiled_with(kind, asked):
    inputs, output = of_matrices(kind)
    functions = {}
    for precision in ("default", "highest", "high"):
        with theano.change_flags(**{"optdb.matmul_precision": precision}):
            functions[precision] = lifted_function(inputs, [output])
    values = [np.eye(3, dtype="float32")] * 2
    for precision, function in functions.items():
        asked.clear()
        function(*values)
        assert asked and set(asked) == {precision}


def test_explain_tells_that_a_precision_changes_nothing(monkeypatch):
    inputs, output = of_matrices("dot")
    function = lifted_function(inputs, [output])
    assert "matmul_precision" not in str(optdb.explain(function))
    with theano.change_flags(**{"optdb.matmul_precision": "default"}):
        text = " ".join(str(optdb.explain(function)).split())
        has_tensor_cores = get_context("dev0").profile.has_tensor_cores
        assert ("optdb.matmul_precision=default has no effect" in text) != has_tensor_cores
