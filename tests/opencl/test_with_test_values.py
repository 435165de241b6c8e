"""A device computes the same whatever config.compute_test_value says."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt

import optdb
from tests.topo.graphs import STOCK


@pytest.mark.parametrize("setting", ["raise", "warn", "ignore", "pdb"])
def test_functions_are_simulated_exported_and_lifted(setting, tmp_path, monkeypatch):
    monkeypatch.setattr("pdb.post_mortem", lambda *_: pytest.fail("stopped in the debugger"))
    x = tt.fvector("x")
    w = theano.shared(np.arange(3, dtype="float32"), "w")
    states, _ = theano.scan(lambda v, s: tt.tanh(s * 2 + v), sequences=[x], outputs_info=[x[0]])
    loss = tt.log(1 + tt.exp(tt.dot(x, w))) + states[-1] + (x**2 / (1 + w**2)).sum()
    out = [loss, theano.grad(loss, w)]
    value = np.array([1, 2, 3], "float32")
    expected = theano.function([x], out, mode=STOCK)(value)
    with theano.change_flags(compute_test_value=setting):
        f = theano.function([x], out, mode=STOCK)
        simulator = optdb.SimulatorOCL(f)
        mine = simulator(value)
        simulator.export(tmp_path / "exported")
        lifted = theano.function([x], out, mode=optdb.mode(STOCK, device="auto"))
        results = [mine, lifted(value), optdb.load(tmp_path / "exported")(value)]
        assert simulator.check(value)
        assert theano.config.compute_test_value == setting
    for result in results:
        for ours, theirs in zip(result, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
