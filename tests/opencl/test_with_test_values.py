"""A device gives the same results for each value of config.compute_test_value."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import theano
import theano.tensor as tt

import optdb
from optdb.opencl import contexts
from optdb.opencl.registry import context_of
from tests.topo.graphs import STOCK


@pytest.mark.thorough_cases("warn", "pdb")
@pytest.mark.slow
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


@pytest.fixture(params=["host", "device"])
def tested(request):
    """Return an input with a test value, expressions of this input and shared variables, and updates."""
    x = tt.fmatrix("x")
    x.tag.test_value = np.ones((3, 2), "float32")
    target = context_of("auto") if request.param == "device" else "cpu"
    s = theano.shared(np.arange(6, dtype="float32").reshape(3, 2), "s", target=target)
    kept = theano.shared(np.arange(3, dtype="float32"), "kept", target=target)
    with theano.change_flags(compute_test_value="raise"):
        rows = tt.inc_subtensor((x * 2 + s)[:2], 1)
        outputs = [rows.T[:, ::-1].sum(axis=0), rows.argmax(axis=0) + x.shape[0], tt.dot(rows, tt.exp(0 * x).T).T]
        # For this output, Theano's own rewriter tries to make a device op overwrite a protected input.
        outputs.append(tt.inc_subtensor(kept[x.argmax(axis=1)], x.argmax(axis=1) + 1))
        outputs = [out.transfer("cpu") for out in outputs]
        return [x], outputs, [(s, (s.T * 2 + 1).T)]


@pytest.mark.pairwise
@pytest.mark.parametrize("value", ["raise", "warn", "ignore"])
@pytest.mark.parametrize("engine", [False, True], ids=["stock", "engine"])
@pytest.mark.parametrize("way", ["lifted", "OPENCL", "simulator"])
@pytest.mark.filterwarnings("error:.*test value")
def test_functions_on_a_device_need_no_test_values(way, engine, value, tested, monkeypatch):
    inputs, outputs, updates = tested
    plain = theano.function(inputs, outputs, mode=theano.Mode("py", None))
    argument = np.full((3, 2), 4, "float32")
    expected = plain(argument)
    fast = theano.Mode("py", "fast_run")
    mode = {"lifted": fast.including("opencl"), "OPENCL": optdb.mode(device="auto"), "simulator": fast}[way]
    flags = {"compute_test_value_opt": value, "on_opt_error": "raise"}
    device = contexts.as_default(context_of("auto")) if way == "lifted" else contextlib.nullcontext()
    with theano.change_flags(**flags), optdb.enable() if engine else contextlib.nullcontext(), device:
        function = theano.function(inputs, outputs, updates=updates, mode=mode)
        if way == "simulator":
            function = optdb.SimulatorOCL(function)
        for seen, right in zip(function(argument), expected, strict=True):
            np.testing.assert_array_equal(seen, right)
        assert theano.config.compute_test_value == "off"
