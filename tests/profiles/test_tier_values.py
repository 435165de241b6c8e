"""The values that functions compute in Python and in C code are compared and shown."""

from __future__ import annotations

import math

import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

from profiles import isolated, tier_values
from profiles.tier_values import Compared


def compared(difference, chaos=0.0, dtype="float64"):
    return Compared("mlp", dtype, difference, "output 0", chaos, 40, 38)


@pytest.mark.parametrize(
    "one, agrees",
    [
        (compared(9e-13), True),
        (compared(2e-12), False),
        (compared(9e-7, dtype="float32"), True),
        (compared(2e-6, dtype="float32"), False),
        (compared(2e-6, chaos=1e-6, dtype="float32"), True),
        (compared(math.inf, chaos=1.0), False),
    ],
)
def test_tolerances(one, agrees):
    assert one.agrees == agrees


def test_differences_of_values():
    difference = tier_values.value_difference
    assert difference(np.array([1.0, np.nan]), np.array([1.0, np.nan])) == 0
    assert difference(np.array([1.0, np.nan]), np.array([1.0, 2.0])) == math.inf
    assert difference(np.array([4.0, 1.0]), np.array([4.0, 1.5])) == 0.125
    assert difference(np.array([1]), np.array([2])) == math.inf
    assert difference(np.float32(1), np.float64(1)) == math.inf
    states = [np.random.RandomState(seed) for seed in (1, 1, 2)]
    assert difference(*states[:2]) == 0
    assert difference(*states[1:]) == math.inf


def test_models_and_dtypes_are_compared_in_turn(monkeypatch):
    calls = []

    def call(function, name, flags, env, timeout):
        calls.append((name, flags))
        if "float64" in flags:
            raise isolated.Failed("no memory")
        return [1e-8, "output 0", 1e-9, 40, 38]

    monkeypatch.setattr(isolated, "call", call)
    result = CliRunner().invoke(tier_values.main, ["mlp"])
    assert result.exit_code == 1
    assert "mlp, float64: no memory" in result.output
    assert [name for name, _ in calls] == ["mlp", "mlp"]
    assert all("optdb.tiered=True" in flags for _, flags in calls)
    assert CliRunner().invoke(tier_values.main, ["mlp", "--floatX", "float32"]).exit_code == 0


def test_a_difference_is_shown():
    console = Console(width=200)
    with console.capture() as capture:
        console.print(tier_values.render([compared(2e-3)]))
    assert "2.0e-03" in capture.get()


@pytest.mark.thorough
@pytest.mark.slow
def test_a_model_agrees():
    one = tier_values.compare("mlp", "float32")
    assert one.agrees
    assert one.in_python > 20
    assert one.in_c > 20
    assert one.where
