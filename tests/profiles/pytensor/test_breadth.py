"""The command compares many small models in PyTensor's default mode and in both device modes."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

from profiles import isolated
from profiles.pytensor import breadth, models, sides
from profiles.pytensor.breadth import Outcome
from profiles.pytensor.gallery import GALLERY, build


def outcome(name="ar", difference=1e-15, device=2.0, auto=1.0):
    times = {"default": 1.0, "OPENCL": device, "OPENCL_AUTO": auto}
    return Outcome(name, {"OPENCL": difference, "OPENCL_AUTO": 0.0}, times, times, "default", 3)


@pytest.mark.parametrize(
    ("one", "is_right"),
    [
        (outcome(), True),
        (outcome(device=50.0), True),
        (outcome(difference=1e-8), False),
        (outcome(auto=1.2), False),
        (Outcome("ar", {}, {}, {}, failure="killed"), False),
    ],
)
def test_values_and_the_time_of_a_choice_have_to_be_right(one, is_right):
    assert one.is_right == is_right
    console = Console(width=200)
    with console.capture() as capture:
        console.print(breadth.render([one]))
    assert ("failed" in capture.get()) == bool(one.failure)


@pytest.mark.parametrize(("auto", "status"), [(1.0, 0), (1.5, 1)])
def test_the_command_fails_where_one_is_not_right(auto, status, monkeypatch, tmp_path):
    monkeypatch.setattr(breadth, "compare", lambda name, size, timeout: outcome(name, auto=auto))
    monkeypatch.setattr(sides, "available", lambda name: True)
    path = tmp_path / "numbers.json"
    result = CliRunner().invoke(breadth.main, ["ar", "garch", "--json", str(path)])
    assert result.exit_code == status, result.output
    assert [row["model"] for row in json.loads(path.read_text())] == ["ar", "garch"]


def test_a_model_that_fails_is_told():
    def run(function, name, size, timeout):
        raise isolated.Failed("killed")

    assert breadth.compare("garch", run=run).failure == "killed"


def test_names_are_of_one_model_each():
    assert len(GALLERY) >= 35 and not set(GALLERY) & set(models.MODELS)


@pytest.mark.slow
@pytest.mark.parametrize("name", GALLERY)
def test_each_model_has_a_density_and_data_that_stay(name):
    model, change = build(name)
    again, _ = build(name)
    for one, other in zip(model.observed_RVs, again.observed_RVs, strict=True):
        x, y = (built.rvs_to_values[variable] for built, variable in ((model, one), (again, other)))
        if hasattr(x, "data"):
            np.testing.assert_array_equal(x.data, y.data)
    assert model.continuous_value_vars
    assert (change is not None) == (name == "replaced_data")
