"""There can be simulators of all kinds of functions, however the functions were compiled or obtained."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse
import theano
import theano.sparse
import theano.tensor as tt

import optdb

DEVICE_MODE = theano.compile.get_default_mode().including("opencl")


def agree(f, *args):
    """Compare three calls of a simulator with three calls of its function."""
    sim = optdb.SimulatorOCL(f, device="dev0")
    for _ in range(3):
        ours, theirs = sim(*args), f(*args)
        assert type(ours) is type(theirs)
        for a, b in zip(*[value if isinstance(value, list) else [value] for value in (ours, theirs)], strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5)


def step(**kwargs):
    x, w = tt.fmatrix("x"), theano.shared(np.ones((3, 3), "float32"), name="w")
    return theano.function([x], x.dot(w).sum(0), updates=[(w, w * 1.5)], **kwargs), w


X = np.ones((2, 3), "float32")


@pytest.mark.parametrize(
    "mode", ["TOPO", "FAST_COMPILE", "DebugMode", theano.Mode("py", None), theano.Mode("vm", "fast_run")], ids=str
)
def test_however_it_was_compiled(mode):
    agree(step(mode=mode)[0], X)


def test_however_it_came_by():
    f, w = step()
    agree(pickle.loads(pickle.dumps(f)), X)
    agree(f.copy(), X)
    agree(f.copy(share_memory=True), X)
    agree(f.copy(delete_updates=True), X)
    agree(f.copy(swap={w: theano.shared(np.full((3, 3), 3, "float32"), name="other")}), X)


def test_a_swapped_variable_that_is_only_written():
    x = tt.fvector("x")
    w, other = (theano.shared(np.zeros(2, "float32"), name=name) for name in ("w", "other"))
    f = theano.function([x], x + 1, updates=[(w, x * 2)], mode=theano.Mode("py", "fast_run")).copy(swap={w: other})
    sim = optdb.SimulatorOCL(f, device="dev0")
    np.testing.assert_array_equal(sim(X[0])[0], [2, 2, 2])
    sim.sync_to_theano()
    np.testing.assert_array_equal(other.get_value(), [2, 2, 2])
    np.testing.assert_array_equal(w.get_value(), [0, 0])


def test_functions_that_are_on_a_device_already():
    w = theano.shared(np.ones((3, 3), "float32"), target="dev0")
    x = tt.fmatrix("x")
    agree(theano.function([x], x.dot(w).sum(0), updates=[(w, w * 1.5)], mode=DEVICE_MODE), X)
    there = w.type("there")
    f = theano.function([there], there * w, mode=DEVICE_MODE)
    agree(f, np.ones((3, 3), "float32"))


@pytest.mark.slow_cases("bool", "int8", "uint8", "int64", "uint64", "complex64")
@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint8", "int64", "uint64", "float16", "float32", "float64", "complex64"]
)
def test_dtypes(dtype):
    x = tt.TensorType(dtype, (False, False))("x")
    w = theano.shared(np.ones((3, 3), dtype), name="w")
    value = np.arange(6).reshape(2, 3).astype(dtype)
    agree(theano.function([x], [tt.switch(x > 0, x, x) if dtype != "complex64" else x * x, x.T, w[0], x.sum()]), value)


@pytest.mark.slow
def test_numbers_and_indexes():
    w = theano.shared(np.arange(9.0).reshape(3, 3), name="w")
    number, index, indexes = tt.dscalar(), tt.lscalar(), tt.lvector()
    agree(theano.function([number], number * 2 + w.sum()), 3.0)
    agree(theano.function([index], [w[index], w[:index], index + 1]), 1)
    agree(theano.function([indexes], [w[indexes], w[:, indexes], indexes * 2]), [2, 0, 0])
    agree(theano.function([number], 2 * tt.dot(w, w) * number + number * w), 3.0)


def test_images_of_bytes_go_to_the_device_as_they_are():
    data = theano.shared(np.arange(60, dtype="uint8").reshape(10, 6), name="data")
    i = tt.lscalar("i")
    f = theano.function([i], (data[i * 2 : i * 2 + 2] / np.float32(255)).sum(1), mode=theano.Mode("py", "fast_run"))
    agree(f, 3)
    assert optdb.SimulatorOCL(f, device="dev0")._state.find(data).array_type is not None


@pytest.mark.slow
def test_strides_and_nothing():
    x = tt.fmatrix("x")
    f = theano.function([x], [x * 2 + 1, x.sum(), x.T])
    agree(f, np.arange(36, dtype="float32").reshape(6, 6)[::-2, ::2])
    agree(f, np.ones((0, 3), "float32"))
    agree(theano.function([], []))
    agree(theano.function([], tt.ones((2, 2))))
    agree(theano.function([], [tt.constant(3.0), theano.shared(np.ones(3))]))


def test_what_is_no_dense_array():
    w = theano.shared(np.ones((3, 3)), name="w")
    x = theano.sparse.csr_matrix("x")
    agree(theano.function([x], theano.sparse.dot(x, w)), scipy.sparse.csr_matrix(np.eye(3)))
    s = theano.shared(scipy.sparse.csr_matrix(np.eye(3)), name="s")
    agree(theano.function([], theano.sparse.dot(s, w), updates=[(s, s * 2)]))


def test_functions_compiled_without_c_need_none_on_the_device():
    f, _ = step(mode=theano.Mode("py", "fast_run"))
    with theano.change_flags(cxx=""):
        agree(f, X)
