"""Without a BLAS, the C code of ops that would call a BLAS computes with NumPy."""

from __future__ import annotations

import re

import numpy as np
import pytest
import scipy.sparse
import theano
import theano.sparse
import theano.tensor as tt
from theano.compile.mode import Mode
from theano.configparser import change_flags
from theano.sparse.opt import sampling_dot_csr, usmm_csc_dense
from theano.tensor import blas, blas_c, blas_headers
from theano.tensor.nnet.corr import CorrMM
from theano.tensor.nnet.corr3d import Corr3dMM

from optdb.host.theano.importing import blas_fallback
from tests.processes import run_code

DTYPES = ["float32", "float64"]
needs_compiler = pytest.mark.skipif(not theano.config.cxx, reason="there is no C++ compiler")


@pytest.fixture
def no_blas():
    with change_flags([("blas.ldflags", "")]):
        yield


def numbers(shape, dtype, seed=0):
    return np.random.RandomState(seed).uniform(-1, 1, shape).astype(dtype)


def layouts(array):
    """Return copies of an array with several kinds of strides."""
    return [array, np.asfortranarray(array), np.repeat(array, 2, -1)[..., ::2], array[::-1].copy()[::-1]]


def test_each_function_that_ops_call_is_defined_and_not_declared(no_blas):
    header = blas_headers.blas_header_text()
    for name in (f"{letter}{function}_" for letter in "sd" for function in ("gemm", "gemv", "dot", "axpy", "ger")):
        assert re.search(rf"\b{name}\([^;{{]*\)\s*\{{", header), name
        assert not re.search(rf"(void|float|double)\s+{name}\s*\([^;{{]*\);", header), name
    assert "void dscal_(" in header


def test_with_a_blas_the_header_and_its_version_are_theano_s():
    text, version = blas_headers.blas_header_text.__wrapped__, blas_headers.blas_header_version.__wrapped__
    with change_flags([("blas.ldflags", "-lmine")]):
        assert blas_headers.blas_header_text() == text()
        assert blas_headers.blas_header_version() == version()
    with change_flags([("blas.ldflags", "")]):
        assert blas_headers.blas_header_version() == (*version(), "optdb", blas_fallback.VERSION)


def matrices(dtype):
    return tt.matrix("x", dtype), tt.matrix("y", dtype), tt.matrix("z", dtype)


def batched_dot(dtype):
    x, y = tt.TensorType(dtype, (False,) * 3)(), tt.TensorType(dtype, (False,) * 3)()
    return [x, y], tt.batched_dot(x, y), [(2, 3, 4), (2, 4, 5)], np.matmul


def ger(dtype):
    z, x, y = tt.matrix("z", dtype), tt.vector("x", dtype), tt.vector("y", dtype)
    out = blas_c.CGer(False)(z, np.asarray(2, dtype), x, y)
    return [z, x, y], out, [(3, 5), (3,), (5,)], lambda z, x, y: z + 2 * np.outer(x, y)


def gemv(dtype):
    z, x, y = tt.vector("z", dtype), tt.matrix("x", dtype), tt.vector("y", dtype)
    out = blas_c.CGemv(False)(z, np.asarray(2, dtype), x, y, np.asarray(3, dtype))
    return [z, x, y], out, [(3,), (3, 5), (5,)], lambda z, x, y: 3 * z + 2 * x @ y


def gemm(dtype):
    x, y, z = matrices(dtype)
    out = blas.gemm_no_inplace(z, np.asarray(2, dtype), x, y, np.asarray(3, dtype))
    return [z, x, y], out, [(3, 5), (3, 4), (4, 5)], lambda z, x, y: 3 * z + 2 * x @ y


def dot22(dtype):
    x, y, _ = matrices(dtype)
    return [x, y], blas._dot22(x, y), [(3, 4), (4, 5)], np.matmul


def dot22scalar(dtype):
    x, y, _ = matrices(dtype)
    return [x, y], blas._dot22scalar(x, y, tt.constant(2, dtype=dtype)), [(3, 4), (4, 5)], lambda x, y: 2 * x @ y


def usmm(dtype):
    x, y, z = matrices(dtype)
    data, indices, pointers, shape = theano.sparse.csm_properties(theano.sparse.csc_from_dense(x))
    out = usmm_csc_dense(np.full((1, 1), 2, dtype), data, indices, pointers, shape[0], y, z)
    return [x, y, z], out, [(3, 4), (4, 5), (3, 5)], lambda x, y, z: z + 2 * x @ y


def sampling_dot(dtype):
    x, y, _ = matrices(dtype)
    pattern = scipy.sparse.csr_matrix(np.eye(3, 5, 1, dtype))
    parts = [pattern.data, pattern.indices, pattern.indptr]
    out = sampling_dot_csr(x, y.T, *parts, np.int32(5))[0]
    return [x, y], out, [(3, 4), (4, 5)], lambda x, y: np.diagonal(x @ y, 1)


def correlation(op, ndim):
    def make(dtype):
        x, y = tt.TensorType(dtype, (False,) * ndim)(), tt.TensorType(dtype, (False,) * ndim)()
        out = op(x, y)
        slopes = theano.grad(None, [x, y], known_grads={out: out})
        # Each of the three sums depends on one of the three matrix products.
        sums = tt.stack([out.sum(), (slopes[0] * x).sum() / (out**2).sum(), (slopes[1] * y).sum() / (out**2).sum()])
        shapes = [(2, 3, *(4,) * (ndim - 2)), (2, 3, *(2,) * (ndim - 2))]

        def right(x, y):
            windows = np.lib.stride_tricks.sliding_window_view(x, y.shape[2:], axis=tuple(range(2, ndim)))
            axes = (1, *range(ndim, 2 * ndim - 2)), (1, *range(2, ndim))
            return np.array([np.tensordot(windows, y, axes).sum(), 1, 1])

        return [x, y], sums, shapes, right

    make.__name__ = type(op).__name__
    return make


OPS = [batched_dot, ger, gemv, gemm, dot22, dot22scalar, usmm, sampling_dot]
OPS += [correlation(CorrMM(), 4), correlation(Corr3dMM(), 5)]


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("make", OPS, ids=lambda make: make.__name__)
def test_ops_compute_what_numpy_does(no_blas, make, dtype):
    inputs, out, shapes, right = make(dtype)
    f = theano.function(inputs, out, mode=Mode("cvm", None))
    tolerance = 1e-4 if dtype == "float32" else 1e-10
    values = [numbers(shape, dtype, i) for i, shape in enumerate(shapes)]
    for arguments in zip(*map(layouts, values), strict=True):
        np.testing.assert_allclose(f(*arguments), right(*arguments), tolerance, tolerance)


@needs_compiler
@pytest.mark.slow
def test_correlations_do_not_call_numpy_from_other_threads():
    code = """
        import optdb, numpy, theano, theano.tensor as tt
        from theano.tensor.nnet.corr import CorrMM
        x, y = tt.ftensor4s("xy")
        f = theano.function([x, y], CorrMM()(x, y), mode=theano.Mode("c", None))
        for _ in range(20):
            r = f(numpy.ones((16, 3, 9, 9), "f"), numpy.ones((4, 3, 2, 2), "f"))
        print(f.maker.fgraph.outputs[0].owner.op.openmp, (r == 12).all())
    """
    assert run_code(code, flags="blas.ldflags=,openmp=True").stdout == "False True\n"
