"""Simulators work if users enable test values; optdb's own variables have no test values."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import theano
import theano.tensor as tt

import optdb

A = np.arange(9, dtype="float32").reshape(3, 3) / 9


@pytest.fixture(autouse=True)
def flag():
    with theano.change_flags(compute_test_value="raise", on_opt_error="raise"):
        yield
        # optdb disables the setting during a compilation, and enables it again.
        assert theano.config.compute_test_value == "raise"


def net(mode):
    x, w = tt.fmatrix("x"), theano.shared(A, "w")
    x.tag.test_value = A
    loss = tt.sqr(tt.nnet.softmax(tt.tanh(x.dot(w)) * x)).sum()
    return theano.function([x], loss, updates=[(w, w - theano.grad(loss, w))], mode=mode)


@pytest.fixture
def expected():
    function = net(theano.Mode("py", None))
    return [function(A) for _ in range(3)]


@pytest.mark.slow
def test_all_that_a_simulator_does(expected, tmp_path):
    simulator = optdb.SimulatorOCL(net(theano.Mode("py", "fast_run")), device="dev0")
    assert simulator.check(A).ok
    assert simulator.profile(A, n=1).rows and simulator.report(A).places
    copy = pickle.loads(pickle.dumps(simulator))
    for each in (simulator, copy):
        np.testing.assert_allclose([each(A) for _ in range(3)], expected, rtol=1e-5)
    assert simulator.memory(A) is not None
    simulator.export(tmp_path / "net.optdb", [[A]])
