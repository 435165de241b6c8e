"""A simulator of each model in profiles/ has a profile, a check and a report."""

from __future__ import annotations

import numpy as np
import pytest
import theano

import optdb
from profiles import models
from tests.zoo import SMALL

#: All models except sb_resnet56, which does not differ from sb_resnet at the size of tests.
MODELS = [name for name in SMALL if name != "sb_resnet56"]
#: The models that quick test runs include, because their kernels compile quickly.
QUICK = ("mlp",)


@pytest.mark.thorough_cases("lstm", "gru30_gates")
@pytest.mark.thorough_cases("resnet50", "cifar_resnet", "sb_resnet", "mixture", "transformer", "gp")
@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in MODELS]
)
def test_profile_check_and_report_of_a_model(name):
    if name == "resnet50" and not theano.config.cxx:
        pytest.skip("Theano's Python code of the gradient of max-pooling with pads is wrong")
    model = models.build(name, **SMALL[name])
    mode = theano.Mode(linker="py", optimizer="fast_run")
    with optdb.enable():
        step = theano.function(model.inputs, model.outputs, updates=model.updates, mode=mode)
    sim = optdb.SimulatorOCL(step, device="dev0")
    before = [np.array(sim.get(variable)) for variable in model.updates]

    profile = sim.profile(*model.data, n=1)
    launches = [row for row in profile.rows if row.kind == "launch"]
    assert launches and all(row.device >= 0 and row.nbytes > 0 for row in launches)
    # A profile counts the operations of each node, for most nodes of a net.
    counted = [row.operations for row in launches if row.operations is not None]
    assert counted and all(isinstance(count, int) and count >= 0 for count in counted)
    assert str(profile)

    assert sim.check(*model.data).ok
    report = sim.report(*model.data)
    assert sum(count for device, count in report.places.items() if device != "host") >= len(
        {row.op for row in launches}
    )
    assert str(report)
    for variable, value in zip(model.updates, before):
        np.testing.assert_array_equal(sim.get(variable), value)
