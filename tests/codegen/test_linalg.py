"""Factors of positive definite matrices and solutions of triangular systems have small errors."""

from __future__ import annotations

import functools
import re
from dataclasses import replace

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

from optdb.codegen.kernels import compile_kernels
from optdb.codegen.layout import view
from optdb.codegen.linalg import blocks
from optdb.codegen.linalg.operations import (
    CheckedCholesky,
    CheckedSolveTriangular,
    Cholesky,
    CholeskySolve,
    SolveTriangular,
    require_factor,
    require_positive_definite,
    require_solution,
)
from optdb.codegen.operation import ArraySpec
from optdb.runtime.arrays import to_host
from optdb.runtime.context import Context
from tests.codegen.layouts import STEPS, device_array
from tests.effort import examples

#: 'narrow' is a processor with registers of 16 bytes, whose blocks differ from those of 'cpu'.
KINDS = st.sampled_from(["cpu", "gpu", "narrow"])
DTYPES = st.sampled_from(["float32", "float64"])
#: Sizes just below and above those at which other kernels are used.
ROWS = st.sampled_from([0, 1, 2, 3, 4, 5, 8, 9, 12, 17, 31, 33, 63, 64, 65, 70])
BATCHES = st.sampled_from([(), (), (1,), (3,), (2, 3), (0,), (2, 0), (19,)])


@functools.cache
def context_of(kind):
    context = Context("opencl")
    if kind == "narrow":
        context.profile = replace(context.profile, float_vector_width=4)
    else:
        context.profile = context.profile.as_kind(kind)
    return context


def put(value, kind, steps=None, fortran=False):
    """Return an array on the device with gaps and directions from `steps`; `fortran` stores columns contiguously."""
    context = functools.partial(context_of, kind)
    if not fortran:
        return device_array(value, steps, context)
    turned = device_array(np.ascontiguousarray(value.swapaxes(-1, -2)), steps, context)
    order = [*range(value.ndim - 2), value.ndim - 1, value.ndim - 2]
    return view(turned, [turned.shape[d] for d in order], [turned.strides[d] for d in order])


def compute(operation, *inputs, outputs=1):
    results = [to_host(array) for array in operation.compute(*inputs, outputs=outputs)]
    return results[0] if outputs == 1 else results


def of_context(kind, make, *arrays, **fields):
    return make(context_of(kind), *map(ArraySpec.of, arrays), **fields)


def positive_definite(rng, batch, n, dtype):
    a = rng.normal(size=(*batch, n, n + 2))
    return (a @ a.swapaxes(-1, -2) + 0.1 * np.eye(n)).astype(dtype)


def assert_factors(x, factor, lower):
    """Check that |A - L L'| <= c n eps |L| |L'| for each element, and that the other triangle is zero."""
    n, eps = x.shape[-1], np.finfo(x.dtype).eps
    assert factor.dtype == x.dtype and factor.shape == x.shape
    other = np.triu(factor, 1) if lower else np.tril(factor, -1)
    assert not other.any()
    low = (factor if lower else factor.swapaxes(-1, -2)).astype("float64")
    symmetric = np.tril(x) + np.tril(x, -1).swapaxes(-1, -2) if lower else np.triu(x) + np.triu(x, 1).swapaxes(-1, -2)
    bound = 4 * (n + 2) * eps * (np.abs(low) @ np.abs(low).swapaxes(-1, -2))
    assert (np.abs(low @ low.swapaxes(-1, -2) - symmetric) <= bound).all()


def assert_solves(t, x, b):
    """Check that |T x - b| <= c n eps |T| |x| for each element."""
    t, x, n, eps = t.astype("float64"), x.astype("float64"), t.shape[-1], np.finfo(x.dtype).eps
    assert (np.abs(t @ x - b) <= 4 * (n + 2) * eps * (np.abs(t) @ np.abs(x))).all()


@settings(max_examples=examples(60))
@given(KINDS, DTYPES, BATCHES, ROWS, st.booleans(), st.booleans(), st.lists(STEPS, min_size=4, max_size=4))
def test_cholesky(kind, dtype, batch, n, lower, fortran, steps):
    rng = np.random.default_rng(n)
    x = positive_definite(rng, batch, n, dtype)
    # Only the triangle that `lower` selects is read, so fill the other one with NaN.
    junk = np.triu(np.full((n, n), np.nan), 1) if lower else np.tril(np.full((n, n), np.nan), -1)
    array = put((x + junk).astype(dtype), kind, steps[: x.ndim], fortran)
    factor, info = compute(of_context(kind, Cholesky, array, lower=lower, info=True), array, outputs=2)
    assert info.shape == batch and info.dtype == "int32" and not info.any()
    assert_factors(x, factor, lower)


@settings(max_examples=examples(60))
@given(st.data(), KINDS, DTYPES, ROWS, st.booleans(), st.booleans(), st.booleans(), st.booleans(), st.booleans())
def test_solve_triangular(data, kind, dtype, n, lower, transposed, unit, vectors, fortran):
    batches = st.sampled_from(
        [((), ()), ((3,), (3,)), ((), (4,)), ((5,), ()), ((2, 1), (3,)), ((2, 3), (3,)), ((0,), ())]
    )
    a_batch, b_batch = data.draw(batches)
    columns = () if vectors else (data.draw(st.sampled_from([0, 1, 2, 5, 17, 33])),)
    rng = np.random.default_rng(n)
    a = rng.normal(size=(*a_batch, n, n)) / np.sqrt(n + 1) + 2 * np.eye(n)
    a, b = a.astype(dtype), rng.normal(size=(*b_batch, n, *columns)).astype(dtype)
    steps = data.draw(st.lists(STEPS, min_size=4, max_size=4))
    a_there, b_there = put(a, kind, steps[: a.ndim], fortran), put(b, kind, steps[: b.ndim])
    fields = {"lower": lower, "transposed": transposed, "unit_diagonal": unit, "vectors": vectors}
    x = compute(of_context(kind, SolveTriangular, a_there, b_there, **fields), a_there, b_there)
    t = np.tril(a, -1 if unit else 0) if lower else np.triu(a, 1 if unit else 0)
    t = t + np.eye(n) if unit else t
    t = t.swapaxes(-1, -2) if transposed else t
    batch = np.broadcast_shapes(a_batch, b_batch)
    assert x.shape == (*batch, n, *columns) and x.dtype == dtype
    assert_solves(t, x[..., None] if vectors else x, b[..., None] if vectors else b)


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_blocks_of_large_matrices(kind):
    rng = np.random.default_rng(0)
    x = positive_definite(rng, (2,), 331, "float32")
    for lower in (True, False):
        array = put(x, kind)
        factor = compute(of_context(kind, Cholesky, array, lower=lower), array)
        assert_factors(x, factor, lower)
        for transposed in (True, False):
            b = rng.normal(size=(2, 331, 7)).astype("float32")
            t, b_there = put(factor, kind), put(b, kind)
            operation = of_context(kind, SolveTriangular, t, b_there, lower=lower, transposed=transposed)
            assert_solves(factor.swapaxes(-1, -2) if transposed else factor, compute(operation, t, b_there), b)


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
@pytest.mark.parametrize("n", [8, 60, 100])
def test_ill_conditioned_matrices_have_small_backward_errors(kind, n):
    hilbert = scipy.linalg.hilbert(n) + 1e-13 * np.eye(n)
    array = put(hilbert, kind)
    assert_factors(hilbert, compute(of_context(kind, Cholesky, array), array), True)


@pytest.mark.pairwise
@pytest.mark.parametrize("kind", ["cpu", "gpu", "narrow"])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("n", [1, 3, 7, 20, 64, 65, 130])
def test_matrices_that_are_not_positive_definite(kind, lower, n):
    """As in LAPACK, `info` is the number of the first minor that is not positive; other matrices have factors."""
    rng = np.random.default_rng(n)
    x = positive_definite(rng, (5,), n, "float64")
    first = {1: n - 1, 3: n // 2, 4: 0}
    x[1, n - 1, n - 1] = -1.0
    x[3, n // 2, n // 2] = np.nan
    x[4, 0, 0] = 0.0
    array = put(x, kind)
    factor, info = compute(of_context(kind, Cholesky, array, lower=lower, info=True), array, outputs=2)
    assert list(info) == [first[i] + 1 if i in first else 0 for i in range(5)]
    for i in range(5):
        if i in first:
            assert np.isnan(factor[i]).all()
        else:
            assert_factors(x[i], factor[i], lower)
    with pytest.raises(np.linalg.LinAlgError, match=rf"^{n}-th leading minor of the array 1 of the batch is not pos"):
        require_positive_definite(info)
    require_positive_definite(info[:1])
    with pytest.raises(np.linalg.LinAlgError, match=r"^1-th leading minor of the array is not positive definite"):
        require_positive_definite(info[4])


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
@pytest.mark.parametrize("infinite", [np.inf, -np.inf])
@pytest.mark.parametrize("n", [3, 20, 70])
def test_infinite_elements_are_no_factor(kind, infinite, n):
    for row, column in [(0, 0), (n - 1, n - 1), (n - 1, 0)]:
        x = np.eye(n, dtype="float32")
        x[row, column] = infinite
        array = put(x, kind)
        factor, info = compute(of_context(kind, Cholesky, array, info=True), array, outputs=2)
        assert info > 0 and np.isnan(factor).all()


@settings(max_examples=examples(30))
@given(KINDS, DTYPES, st.sampled_from([((), ()), ((3,), (3,)), ((), (4,)), ((2, 1), (3,))]), ROWS, st.booleans())
def test_systems_of_positive_definite_matrices(kind, dtype, batches, n, vectors):
    rng = np.random.default_rng(n)
    a_batch, b_batch = batches
    a = positive_definite(rng, a_batch, n, dtype) + n * np.eye(n, dtype=dtype)
    b = rng.normal(size=(*b_batch, n) if vectors else (*b_batch, n, 3)).astype(dtype)
    b_there = put(b, kind)
    for lower in (True, False):
        factor = np.linalg.cholesky(a.astype("float64")).astype(dtype)
        factor = np.ascontiguousarray(factor if lower else factor.swapaxes(-1, -2))
        c_there = put(factor, kind)
        fields = {"lower": lower, "vectors": vectors}
        result = compute(of_context(kind, CholeskySolve, c_there, b_there, **fields), c_there, b_there)
        result, right = (result[..., None], b[..., None]) if vectors else (result, b)
        bound = 40 * (n + 2) * np.finfo(dtype).eps * (np.abs(a) @ np.abs(result))
        assert result.dtype == dtype and (np.abs(a.astype("float64") @ result - right) <= bound).all()


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_systems_with_faults(kind):
    good, right = np.tile(np.eye(3), (2, 1, 1)), np.ones((2, 3, 1))
    singular, later, infinite = good.copy(), good.copy(), right.copy()
    singular[0, 1, 1] = singular[1, 2, 2] = later[1, 2, 2] = 0
    infinite[1, 2] = np.inf

    def check(a, b):
        arrays = put(a, kind), put(b, kind, [-1] * b.ndim)
        _, faults = compute(of_context(kind, CheckedSolveTriangular, *arrays), *arrays, outputs=2)
        require_solution(faults, a.shape[-1])

    check(good, right)
    check(good[:0], right[:0])
    with pytest.raises(np.linalg.LinAlgError, match=r"^singular matrix: resolution failed at diagonal 1$"):
        check(singular, right)
    with pytest.raises(np.linalg.LinAlgError, match=r"resolution failed at diagonal 2 of matrix 1 of the batch$"):
        check(later, right[0])
    for a, b in [(good, infinite), (good * np.nan, right), (good + np.triu(good * np.nan, 1), right)]:
        with pytest.raises(ValueError, match=r"^array must not contain infs or NaNs$"):
            check(a, b)


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
@pytest.mark.parametrize("n", [0, 1, 5, 40, 70])
def test_checked_factors_and_solutions(kind, n):
    """Error messages equal SciPy's for the same arrays, both those of SciPy 1.16 and those of earlier versions."""
    x = positive_definite(np.random.default_rng(n), (), n, "float64")

    def factor(value):
        array = put(value, kind)
        result, faults = compute(of_context(kind, CheckedCholesky, array), array, outputs=2)
        require_factor(faults)
        return result

    def solution(value):
        arrays = put(value, kind), put(np.ones((n, 2)), kind)
        result, faults = compute(of_context(kind, CheckedSolveTriangular, *arrays), *arrays, outputs=2)
        require_solution(faults, n)
        return result

    assert_factors(x, factor(x), True)
    assert_solves(np.tril(x), solution(x), np.ones((n, 2)))
    if not n:
        return
    beyond, negative, singular = x.copy(), x.copy(), x.copy()
    beyond[0, -1], negative[-1, -1], singular[n // 2, n // 2] = np.inf, -1, 0
    for mine, scipys, values in [
        (factor, lambda value: scipy.linalg.cholesky(value, lower=True), (beyond, negative)),
        (solution, lambda value: scipy.linalg.solve_triangular(value, np.ones(n), lower=True), (beyond, singular)),
    ]:
        for value in values:
            with pytest.raises((ValueError, np.linalg.LinAlgError)) as error:
                scipys(value)
            with pytest.raises(error.type) as own:
                mine(value)
            words = re.sub(
                r"Internal potrf return info = \[(\d+)\] for slices \[0\]\.",
                r"\1-th leading minor of the array is not positive definite",
                str(error.value),
            )
            assert str(own.value) == words


def test_wrong_shapes_and_dtypes():
    square, flat = put(np.eye(3), "cpu"), put(np.ones((2, 3)), "cpu")
    with pytest.raises(ValueError, match=r"takes square matrices, not an array of shape \(2, 3\)"):
        of_context("cpu", Cholesky, flat).compute(flat)
    with pytest.raises(ValueError, match="square"):
        of_context("cpu", SolveTriangular, flat, flat).compute(flat, flat)
    with pytest.raises(ValueError, match="right-hand sides of 2 rows for matrices of 3 rows"):
        of_context("cpu", SolveTriangular, square, flat).compute(square, flat)
    two, three = put(np.ones((2, 3, 3)), "cpu"), put(np.ones((3, 3, 1)), "cpu")
    with pytest.raises(ValueError, match=r"cannot broadcast batches of shapes \(2,\) and \(3,\)"):
        of_context("cpu", SolveTriangular, two, three).compute(two, three)
    with pytest.raises(TypeError, match="not of float64 and float32"):
        of_context("cpu", SolveTriangular, square, put(np.ones((3, 1), "float32"), "cpu"))
    with pytest.raises(TypeError, match="not of int32"):
        of_context("cpu", Cholesky, put(np.eye(3, dtype="int32"), "cpu"))
    with pytest.raises(TypeError, match="takes a matrix, not an array of 3 axes"):
        of_context("cpu", CheckedCholesky, two)


def test_local_memory_of_a_group_is_what_any_device_has():
    """A work group stores one block in local memory, of which OpenCL 1.2 guarantees 32 kB."""
    assert blocks.LEAF["gpu"] * (blocks.LEAF["gpu"] + 1) * 8 <= 32768 // 2


def test_outputs_are_reused_and_repeated_calls_agree():
    array = put(positive_definite(np.random.default_rng(1), (4,), 66, "float64"), "cpu")
    operation = of_context("cpu", Cholesky, array, info=True)
    kernels = compile_kernels(operation.kernels(), operation.context, "cholesky")
    cells = [[None], [None]]
    operation.run([array], cells, kernels)
    first, memory = to_host(cells[0][0]), cells[0][0]
    bad = put(-np.tile(np.eye(66), (4, 1, 1)), "cpu")
    operation.run([bad], cells, kernels)
    assert np.isnan(to_host(cells[0][0])).all() and to_host(cells[1][0]).all()
    operation.run([array], cells, kernels)
    assert cells[0][0] is memory and not to_host(cells[1][0]).any()
    np.testing.assert_array_equal(to_host(cells[0][0]), first)
