"""Cholesky factors and triangular solutions on the device equal the host's, and so do the errors."""

from __future__ import annotations

import re

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given, settings
from hypothesis import strategies as st
from theano.tensor import slinalg

from optdb.codegen.linalg.operations import CheckedCholesky, CheckedSolveTriangular
from optdb.opencl.ops.linalg import OpenCLCholesky, OpenCLOnHost, OpenCLRequire, OpenCLSolveTriangular
from optdb.runtime.device_profiles import DEVICE_KINDS
from optdb.runtime.recording import Untraceable
from tests.effort import examples
from tests.opencl.exported import export, exported, on_device, same
from tests.opencl.lifted import both

RNG = np.random.default_rng(0)
#: SciPy's messages for a matrix without a factor: `INTERNAL` in version 1.18, and `MINOR` in other versions.
INTERNAL = re.compile(r"Internal potrf return info = \[(\d+)\] for slices \[0\]\.")
MINOR = r"\1-th leading minor of the array is not positive definite"
LOWER, UPPER = (slinalg.Solve(f"{side}_triangular") for side in ("lower", "upper"))


def positive_definite(n, dtype="float64"):
    a = RNG.normal(size=(n, n + 1))
    return (a @ a.T + np.eye(n)).astype(dtype)


def triangular(n, dtype="float64"):
    return (RNG.normal(size=(n, n)) / np.sqrt(n + 1) + 2 * np.eye(n)).astype(dtype)


def message(function, *values):
    """Return the type and the text of the error that a function raises."""
    with pytest.raises((ValueError, np.linalg.LinAlgError)) as error:
        function(*values)
    return error.type, str(error.value).split("\n")[0]


def device_mode():
    return theano.compile.get_default_mode().including("opencl")


@settings(max_examples=examples(20))
@given(st.sampled_from(["float32", "float64"]), st.sampled_from([0, 1, 2, 5, 9, 40, 70]), st.booleans(), st.booleans())
def test_factors_are_those_of_the_host(dtype, n, lower, nan):
    x = tt.matrix(dtype=dtype)
    op = slinalg.Cholesky(lower, on_error="nan" if nan else "raise")
    (got,), (want,), ops = both([x], op(x), [positive_definite(n, dtype)])
    assert ops == ([OpenCLCholesky] if nan else [OpenCLCholesky, OpenCLRequire])
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=0, atol=100 * (n + 1) * np.finfo(dtype).eps)


@settings(max_examples=examples(20))
@given(
    st.sampled_from([("float32", "float32"), ("float64", "float32"), ("float32", "float64"), ("float64", "float64")]),
    st.sampled_from([1, 2, 5, 9, 40, 70]),
    st.sampled_from([None, 1, 3, 20]),
    st.sampled_from([LOWER, UPPER]),
    st.booleans(),
)
def test_solutions_are_those_of_the_host(dtypes, n, columns, op, transposed):
    a = tt.matrix(dtype=dtypes[0])
    b = tt.vector(dtype=dtypes[1]) if columns is None else tt.matrix(dtype=dtypes[1])
    right = RNG.normal(size=(n,) if columns is None else (n, columns)).astype(dtypes[1])
    values = [triangular(n, dtypes[0]), right]
    (got,), (want,), ops = both([a, b], op(a.T if transposed else a, b), values)
    assert ops[-2:] == [OpenCLSolveTriangular, OpenCLRequire] and OpenCLOnHost not in ops
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=0, atol=1000 * (n + 1) * np.finfo(want.dtype).eps)


def test_the_host_solves_other_systems():
    for structure in ("general", "symmetric"):
        a, b = tt.dmatrices("ab")
        values = [positive_definite(4), RNG.normal(size=(4, 2))]
        (got,), (want,), ops = both([a, b], slinalg.Solve(structure)(a, b), values)
        assert ops == [OpenCLOnHost]
        np.testing.assert_allclose(got, want, rtol=1e-12)
    a, b = tt.fmatrix(), tt.imatrix()
    values = [np.eye(3, dtype="float32"), RNG.integers(1, 5, (3, 2)).astype("int32")]
    (got,), (want,), ops = both([a, b], LOWER(a, b), values)
    assert ops == [OpenCLOnHost] and got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("nan", [True, False])
def test_gradients_of_factors(lower, nan):
    x = tt.dmatrix()
    factor = slinalg.Cholesky(lower, on_error="nan" if nan else "raise")(x)
    for n in (1, 3, 12):
        cost = (factor * np.arange(n * n, dtype="float64").reshape(n, n)).sum()
        (got,), (want,), ops = both([x], theano.grad(cost, x), [positive_definite(n)])
        assert OpenCLOnHost not in ops and ops.count(OpenCLSolveTriangular) == 2
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("op", [LOWER, UPPER], ids=["lower", "upper"])
@pytest.mark.parametrize("columns", [None, 3])
def test_gradients_of_solutions(op, columns):
    a, b = tt.dmatrix(), tt.dvector() if columns is None else tt.dmatrix()
    values = [triangular(6), RNG.normal(size=(6,) if columns is None else (6, columns))]
    grads = theano.grad((op(a, b) ** 2).sum(), [a, b])
    got, want, ops = both([a, b], grads, values)
    assert OpenCLOnHost not in ops
    for mine, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-10)


def test_a_matrix_without_a_factor_is_nan_where_the_host_has_nan():
    x = tt.dmatrix()
    op = slinalg.Cholesky(on_error="nan")
    for n in (1, 3, 20, 70):
        value = positive_definite(n)
        value[-1, -1] = -1
        gradient = theano.grad(op(x).sum(), x)
        got, want, _ = both([x], [op(x), gradient], [value])
        for mine, theirs in zip(got, want, strict=True):
            assert np.isnan(theirs).all()
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("n", [1, 5, 70])
def test_errors_are_those_of_the_host(default, n):
    """A call raises the host's error, even if the call repeats a plan; the next call works."""
    x, b = tt.dmatrix(), tt.dmatrix()
    good, right = positive_definite(n), RNG.normal(size=(n, 2))
    negative, infinite, singular = good.copy(), good.copy(), good.copy()
    negative[-1, -1], infinite[0, -1], singular[n // 2, n // 2] = -1, np.inf, 0
    for output, bad in [
        (slinalg.cholesky(x) + 0 * b.sum(), [(negative, right), (infinite, right)]),
        (LOWER(x, b), [(singular, right), (infinite, right), (good, right * np.nan)]),
    ]:
        f = theano.function([x, b], output, mode=device_mode())
        assert any(isinstance(node.op, OpenCLRequire) for node in f.maker.fgraph.apply_nodes)
        on_host = theano.function([x, b], output, mode=theano.Mode("py", None))
        for _ in range(3):
            for values in bad:
                kind, text = message(on_host, *values)
                assert message(f, *values) == (kind, INTERNAL.sub(MINOR, text))
            np.testing.assert_allclose(f(good, right), on_host(good, right), rtol=1e-9, atol=1e-10)


def test_shapes_that_do_not_fit(default):
    x, b = tt.dmatrix(), tt.dmatrix()
    f = theano.function([x], slinalg.cholesky(x), mode=device_mode())
    with pytest.raises(ValueError, match="square"):
        f(np.ones((2, 3)))
    g = theano.function([x, b], LOWER(x, b), mode=device_mode())
    with pytest.raises(ValueError, match=r"right-hand sides of .* rows"):
        g(np.eye(2), np.ones((3, 1)))


def test_shared_variables_keep_their_values_when_there_is_no_factor(default):
    state = theano.shared(np.eye(3), target="dev0")
    step = tt.dmatrix()
    factor = slinalg.cholesky(state + step)
    f = theano.function([step], factor.sum(), updates={state: state * 2}, mode=device_mode())
    for power in range(4):
        np.testing.assert_array_equal(np.asarray(state.get_value()), np.eye(3) * 2**power)
        with pytest.raises(np.linalg.LinAlgError, match="2-th leading minor of the array is not positive definite"):
            f(np.diag([0.0, -1e3, 0]))
        np.testing.assert_array_equal(np.asarray(state.get_value()), np.eye(3) * 2**power)
        np.testing.assert_allclose(f(np.zeros((3, 3))), 3 * 2 ** (power / 2))


def test_plans_repeat_the_launches(default, monkeypatch):
    """When a plan is repeated, Python only copies the error flags to the host, and checks them if they have changed."""
    runs = []
    for operation in (CheckedCholesky, CheckedSolveTriangular):
        run = operation.run
        monkeypatch.setattr(operation, "run", lambda *args, run=run: (runs.append(run), run(*args)))
    value, right = positive_definite(70), RNG.normal(size=70)
    x, b = theano.shared(value, target="dev0"), theano.shared(right, target="dev0")
    factor = slinalg.cholesky(x)
    f = theano.function([], (LOWER(factor, b) ** 2).sum() + 2 * tt.log(tt.diag(factor)).sum(), mode=device_mode())
    want = right @ np.linalg.solve(value, right) + np.linalg.slogdet(value)[1]
    for _ in range(4):
        np.testing.assert_allclose(f(), want, rtol=1e-10)
    assert len(f.fn.plans) == 1 and len(runs) == 2


def test_the_device_op_checks_types(default):
    for op, inputs in [
        (OpenCLCholesky(), [tt.imatrix()]),
        (OpenCLCholesky(), [tt.dvector()]),
        (OpenCLSolveTriangular(), [tt.dmatrix(), tt.dtensor3()]),
    ]:
        with pytest.raises(TypeError, match="takes matrices of float32 or float64 on the device"):
            op(*inputs)


@pytest.mark.parametrize("device_kind", DEVICE_KINDS)
def test_factors_that_may_be_nan_are_exported(default, device_kind, tmp_path):
    x = tt.dmatrix("x")
    f = on_device([x], tt.log(tt.diag(slinalg.Cholesky(on_error="nan")(x))).sum())
    there = exported(tmp_path, device_kind, [[positive_definite(20)], [positive_definite(70)]], logdet=f)
    for n in (20, 17, 70):
        value = positive_definite(n)
        same(there.logdet(value), f(value))
    assert np.isnan(there.logdet(-positive_definite(20)))


def test_what_raises_is_not_exported(default, tmp_path):
    x = tt.dmatrix("x")
    with pytest.raises(Untraceable, match=r"check of Cholesky, which has none with on_error='nan'\. Compute"):
        export(tmp_path / "f.optdb", [[positive_definite(5)]], f=on_device([x], slinalg.cholesky(x)))
