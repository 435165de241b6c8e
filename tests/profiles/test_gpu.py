"""The measurements for GPUs also run on any device, with small sizes."""

import numpy as np
import pytest
import theano
from click.testing import CliRunner

from profiles import models
from profiles.gpu import jax_nets, kernels, longest_calls, precision, products, steps

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("single_precision")]


@pytest.fixture
def single_precision():
    with theano.change_flags(floatX="float32"):
        yield


@pytest.mark.parametrize("command", [steps, kernels, products])
def test_everything_is_measured_without_peers(command, monkeypatch):
    monkeypatch.setattr(steps, "SIZES", {"mlp": {}})
    peer, row = {steps: ("jax", "mlp"), kernels: ("cupy", "product, 8"), products: ("cublas", "16 x 8 x 32")}[command]
    result = CliRunner().invoke(command.main, ["--small", "--device", "opencl", "--repeat", "1", f"--no-{peer}"])
    assert result.exit_code == 0, result.output
    assert row in result.output


def test_the_longest_calls_are_told():
    arguments = ["mlp", "--small", "--device", "opencl", "--calls", "5", "--here"]
    with theano.change_flags(**{"optdb.merge_launches": "never"}):
        result = CliRunner().invoke(longest_calls.main, arguments)
    assert result.exit_code == 0, result.output
    assert "longest of the first 5 calls" in result.output and "calls since the plan, settled" in result.output


def test_a_call_is_told_with_what_happened_in_it(capsys):
    events = longest_calls.Events()
    for at, text in ((5.0, "early"), (11.5, "in the long call"), (30.0, "late")):
        events.note(text, at)
    longest_calls.report("net", "9 commands", [1.0, 1.0, 5.0, 1.0], [9.0, 10.0, 11.0, 16.0], 2000, 3, events)
    output = capsys.readouterr().out
    assert "longest of the first 2000 calls: 5000.000 ms at call 2, 5.0 times the median before" in output
    told = output[output.index("call 2 at 2.000 s") : output.index("call 3")]
    assert "+500.0 ms in the long call" in told and "late" not in told


@pytest.mark.parametrize("name", sorted(jax_nets.NETS))
def test_jax_computes_the_models(name):
    """JAX and Theano run three steps from the same values; equal losses show that their update rules are the same."""
    pytest.importorskip("jax")
    sizes = steps.SMALL.get(name, {})
    model = models.build(name, **sizes)
    train, state = jax_nets.trainer(model, **{key: value for key, value in sizes.items() if key in steps.TOLD})
    function = theano.function(model.inputs, model.outputs, updates=model.updates)
    for _ in range(3):
        state, cost = train(state, *model.data)
        np.testing.assert_allclose(cost, function(*model.data)[0], rtol=1e-5)


@pytest.mark.thorough
def test_errors_of_each_precision_are_listed_and_curves_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "curves.png"
    arguments = ["mlp", "--small", "--device", "opencl", "--steps", "2", "--curves", str(picture), "--curve-steps", "3"]
    result = CliRunner().invoke(precision.main, arguments)
    assert result.exit_code == 0, result.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    for name in precision.PRECISIONS:
        assert f"{name}: the cost goes from" in result.output and f"mlp, {name}" in result.output


def test_an_error_is_that_of_the_steps():
    exact = precision.Trained([1.0, 2.0], [np.array([1.0, -4.0])])
    seen = precision.Trained([1.0, 2.5], [np.array([1.5, -4.0])])
    assert precision.errors_of("x", "high", exact, seen) == precision.Errors("x", "high", 0.2, 0.125)
