"""Models are lifted to the device in one pass, and node by node."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from optdb.opencl import contexts, lifters_db
from profiles import lift, measure, models
from tests.zoo import SMALL

#: Smaller sizes, with fewer repeated layers, for models that take long. `profiles.lift` counts all layers.
SMALLER = {name: SMALL[name] for name in ("sb_resnet", "cifar_resnet", "resnet50")}
#: All models except sb_resnet56, which is sb_resnet with more of the same layers.
KNOWN = [name for name in models.known() if not name.startswith("keras") and name != "sb_resnet56"]
#: The models in `KNOWN` that take long.
SLOW = ["vae", "mixture", "gp", "lstm", "gru30", "gru30_gates", "transformer", "resnet50", "cifar_resnet", "sb_resnet"]


@pytest.mark.thorough_cases("lstm")
@pytest.mark.thorough_cases("sb_resnet", "mixture", "gru30_gates")
@pytest.mark.slow_cases(*SLOW)
@pytest.mark.parametrize("name", KNOWN)
def test_no_value_goes_there_and_back(name):
    graph = lift.before_the_lift(measure.specify(models.build(name, **SMALLER.get(name, {}))))
    lifted = lift.lift(graph, lifters_db.query("+fast_run").optimize)
    assert lifted.on_device > 0
    assert lifted.detours == 0
    assert contexts.default is None


@pytest.mark.slow
def test_both_ways_of_a_small_model():
    result = CliRunner().invoke(lift.main, ["mlp"])
    assert result.exit_code == 0, result.output
    assert "0 / 0" in result.output
