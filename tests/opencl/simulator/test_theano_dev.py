"""Runs the code of the thread "Strategy for OpenCL support" (theano-dev, May 2013) with current Python and Theano.

Only obsolete parts are changed: `theano.function` takes a mode where it took a linker, and the backends are called
`opencl_backend`. Lines that the thread omits (the definitions of x and y) are in the fixtures.
"""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import theano
import theano.tensor as tt

from optdb import SimulatorOCL, opencl_backend, optimize

PY = theano.Mode(linker="py")


@pytest.fixture
def xvalue():
    return np.arange(6, dtype="float32").reshape(2, 3)


@pytest.fixture
def w():
    return theano.shared(np.ones((3, 2), "float32"), name="w")


@pytest.fixture
def f(w):
    x = tt.fmatrix("x")
    y = tt.tanh(x.dot(w)).sum()
    # -- do standard graph optimizations, don't care about quality of VM
    return theano.function([x], y, updates=[(w, w - tt.grad(y, w))], mode=PY)


@pytest.mark.slow
def test_the_strategy(f, w, xvalue):
    before = w.get_value()
    again = pickle.loads(pickle.dumps(f))

    # -- Create a VM-like thing *externally* from the function
    sim = SimulatorOCL(f)

    # simulator provides calling mechanism similar to the original function
    value = sim(xvalue)
    np.testing.assert_array_equal(w.get_value(), before)

    # updates shared variables
    sim.sync_to_theano()
    np.testing.assert_allclose(value, again(xvalue), rtol=1e-5)
    np.testing.assert_allclose(w.get_value(), again.get_shared()[0].get_value(), rtol=1e-5)


def test_several_functions_that_share_state(f, w, xvalue):
    x = tt.fmatrix("x")

    s = SimulatorOCL(f)  # -- Create it with a default __call__.
    s.add_method("f", theano.function([x], x.dot(w), mode=PY))  # -- Add some more methods ...
    s.add_method("g", theano.function([], w.sum(), updates=[(w, w * 2)], mode=PY))  # -- that use / update common vars

    s(xvalue)
    total = s.g()
    np.testing.assert_allclose(s.f(xvalue), xvalue.dot(s.get(w)), rtol=1e-5)
    np.testing.assert_allclose(s.get(w).sum(), 2 * total, rtol=1e-5)
    assert len(s.shared) == 1


def test_two_steps(f, w, xvalue):
    before = w.get_value()

    # redo allocation of memory and compiles new thunks
    f_gpu = f.optimize(opencl_backend("auto"))

    # transfers x to gpu and runs GPU-side computations
    f_gpu(xvalue)

    # -- at this point f_gpu and f have shared variables out of sync
    #     but they can be put back into sync like this:
    np.testing.assert_array_equal(w.get_value(), before)
    f_gpu.sync_shared_to_parent()
    np.testing.assert_array_equal(w.get_value(), f_gpu.get(w))
    assert not np.array_equal(w.get_value(), before)


def test_a_backend_by_its_keyword(f, xvalue):
    f_ocl = f.optimize(opencl_backend(device="auto"))
    assert isinstance(f_ocl, SimulatorOCL)
    np.testing.assert_array_equal(f_ocl(xvalue), optimize(f, opencl_backend(device="auto"))(xvalue))


def test_optimize_has_free_reign_on_how_to_go_about(f):
    # "All it has to do is produce a callable object that can compute the right thing."
    assert f.optimize(lambda function: ("an equivalent of", function)) == ("an equivalent of", f)


def test_f_is_serialized_for_long_term_and_sim_where_opencl_is(f, xvalue):
    sim = SimulatorOCL(f)
    sim(xvalue)
    f_again, sim_again = pickle.loads(pickle.dumps((f, sim)))
    # After pickling, the simulator still refers to Theano's function.
    assert sim_again.functions["__call__"] is f_again
    sim_again.sync_to_theano()
    np.testing.assert_allclose(f_again(xvalue), sim_again(xvalue), rtol=1e-5)
