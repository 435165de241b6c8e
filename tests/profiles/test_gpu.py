"""What is measured on a GPU, at small sizes and on whatever device there is."""

import numpy as np
import pytest
import theano
from click.testing import CliRunner

from profiles import models
from profiles.gpu import jax_nets, kernels, steps

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("single_precision")]


@pytest.fixture
def single_precision():
    with theano.change_flags(floatX="float32"):
        yield


@pytest.mark.parametrize("command", [steps, kernels])
def test_everything_is_measured_without_peers(command, monkeypatch):
    monkeypatch.setattr(steps, "SIZES", {"mlp": {}})
    result = CliRunner().invoke(
        command.main,
        ["--small", "--device", "opencl", "--repeat", "1", "--no-jax" if command is steps else "--no-cupy"],
    )
    assert result.exit_code == 0, result.output
    assert "mlp" in result.output or "product, 8" in result.output


@pytest.mark.parametrize("name", sorted(jax_nets.NETS))
def test_jax_computes_the_models(name):
    """Three steps from the same values; the costs tell whether the rule is the same, too."""
    pytest.importorskip("jax")
    sizes = steps.SMALL.get(name, {})
    model = models.build(name, **sizes)
    train, state = jax_nets.trainer(model, **{key: value for key, value in sizes.items() if key in steps.TOLD})
    function = theano.function(model.inputs, model.outputs, updates=model.updates)
    for _ in range(3):
        state, cost = train(state, *model.data)
        np.testing.assert_allclose(cost, function(*model.data)[0], rtol=1e-5)
