"""Models are trained on the host and on the device, and a report shows the differences."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

import numpy as np
import pytest
from click.testing import CliRunner

from profiles import isolated, train, training


def losses(*steps, nudged=(), **words):
    """Return the results, on the host or on the device, of a model whose only output is a loss."""
    nudged = [[[loss] for loss in again] for again in nudged]
    return training.Training([[loss] for loss in steps], 1.0, 0.001, nudged=nudged, **words)


def run(*arguments):
    return CliRunner().invoke(train.main, arguments)


@pytest.mark.thorough
@pytest.mark.slow
def test_a_model_trains_alike(tmp_path, monkeypatch):
    monkeypatch.setenv("THEANO_FLAGS", "cxx=")
    numbers = tmp_path / "numbers.json"
    result = run("mlp", "--steps", "3", "--size", "depth=2", "--json", str(numbers))
    assert result.exit_code == 0, result.output
    (model,) = json.loads(numbers.read_text())["models"]
    assert len(model["differences"]) == 3
    assert max(model["differences"]) < 1e-6
    assert model["device"]["on_device"] > 10 > model["device"]["on_host"]
    assert model["device"]["transfers"] > 0
    assert model["host"]["on_device"] == 0


def test_it_says_what_it_does_where_there_is_no_terminal(monkeypatch, capsys):
    sides = training.Comparison("mlp", losses(2.0, 1.0), losses(2.0, 1.0))
    assert train.compare_all(["mlp"], lambda name: sides) == [sides]
    assert "mlp: training on both sides" in capsys.readouterr().err


@pytest.mark.parametrize(
    "a, b, wanted",
    [
        (2.0, 2.0, 0.0),
        (2.0, 1.0, 0.5),
        ([4.0, 1.0], [4.0, 2.0], 0.25),
        (0.0, 0.0, 0.0),
        ([], [], 0.0),
        ([1.0], [1.0, 1.0], math.inf),
        (math.nan, 1.0, math.inf),
        (math.nan, math.nan, 0.0),
        (math.inf, -math.inf, math.inf),
    ],
)
def test_difference(a, b, wanted):
    assert training.difference(a, b) == wanted


def test_a_difference_fails(monkeypatch):
    device = losses(2.0, 1.001, stayed=[["Sort", "no lifter", 3]])
    sides = training.Comparison("mlp", losses(2.0, 1.0, nudged=[(2.0, 1.0)]), device)
    monkeypatch.setattr(train, "compare", lambda *arguments: sides)
    result = run("mlp")
    assert result.exit_code == 1
    assert "differs" in result.output
    assert "1e-03" in result.output
    assert "Sort (3)" in result.output and "no lifter" in result.output


def test_a_failure_is_named(monkeypatch):
    monkeypatch.setattr(isolated, "call", lambda *a, **k: (_ for _ in ()).throw(isolated.Failed("no memory")))
    result = run("mlp")
    assert result.exit_code == 1
    assert "mlp fails on the host: no memory" in result.output


def test_isolated_calls():
    assert isolated.call("math:hypot", 3, 4) == 5.0
    with pytest.raises(isolated.Failed, match="math domain error"):
        isolated.call("math:sqrt", -1)
    with pytest.raises(isolated.Failed, match="killed by SIGABRT"):
        isolated.call("os:abort")
    with pytest.raises(isolated.Failed, match="took longer than 0 s"):
        isolated.call("time:sleep", 60, timeout=0.2)


def test_isolated_environment(monkeypatch):
    monkeypatch.setenv("THEANO_FLAGS", "cxx=")
    assert isolated.call("os:getenv", "THEANO_FLAGS", flags="floatX=float32") == "cxx=,floatX=float32"
    assert isolated.call("os:getenv", "XDG_CACHE_HOME", env={"XDG_CACHE_HOME": "/there"}) == "/there"


@pytest.mark.parametrize(
    "nudged, device, verdict",
    [
        ([(2.0, 1.0)], (2.0, 1.00001), "same"),
        ([(2.0, 1.0)], (2.0, 1.001), "differs"),
        ([(2.0, 1.0), (2.0, 1.0002)], (2.0, 1.001), "chaotic"),
        # The device's losses are allowed to differ only after the nudged losses have differed from the host's.
        ([(2.001, 1.0)], (2.0, 1.001), "chaotic"),
        ([(2.0, 1.001)], (2.002, 1.0), "differs"),
    ],
)
def test_verdict(nudged, device, verdict):
    comparison = training.Comparison("x", losses(2.0, 1.0, nudged=nudged), losses(*device))
    assert comparison.verdict == verdict


@pytest.mark.parametrize(
    "first, again, verdict, status",
    [
        # A triple contains the losses of the host, of the device, and of the host with perturbed values. The first
        # triple is for the model, and the second one for a calm phase of its training.
        ((1.0, 1.0, 1.0), None, "same", 0),
        ((1.0, 1.2, 1.1), (1.0, 1.0, 1.0), "chaotic", 0),
        ((1.0, 1.2, 1.1), (1.0, 1.0001, 1.0), "chaotic", 1),
        ((1.0, 1.2, 1.1), (1.0, 1.2, 1.1), "chaotic", 1),
        ((1.0, 1.2, 1.0), None, "differs", 1),
    ],
)
def test_a_chaotic_model_counts_only_where_it_is_calm(monkeypatch, first, again, verdict, status):
    asked = []

    def call(function, name, sizes, steps, nudge, flags, timeout):
        calm = "floatX=float64" in flags
        assert ("rate" in sizes) == calm
        asked.append(flags)
        host, device, nudged = again if calm else first
        return asdict(losses(3.0, host, nudged=[(3.0, nudged)]) if nudge else losses(3.0, device))

    monkeypatch.setattr(isolated, "call", call)
    result = run("cifar_resnet")
    assert result.exit_code == status, result.output
    assert f"cifar_resnet, float32: {verdict}" in result.output
    assert ("cifar_resnet, float64, rate 1e-06" in result.output) == (again is not None)
    assert len(asked) == (2 if again is None else 4)


def test_what_is_calm_already_is_not_tried_again():
    settings = training.Settings(floatX="float64", sizes={"width": 4})
    assert training.calmed("mlp", settings) == settings
    calm = training.calmed("resnet50", settings)
    assert calm.sizes["width"] == 4 and 0 < calm.sizes["rate"] < 0.01
    assert training.calmed("resnet50", calm) == calm


def test_how_far_outputs_move():
    assert training.Comparison("x", losses(2.0, 5.0, 1.0), losses(2.0, 5.0, 1.0)).moved() == 0.5


def test_nudges_are_small_and_differ():
    value = np.linspace(-1, 1, 11, dtype="float32")
    first, second = training.nudged(value, 0), training.nudged(value, 1)
    assert first.dtype == "float32"
    assert not np.array_equal(first, second)
    assert not np.any(first[value != 0] == value[value != 0])
    np.testing.assert_allclose(first, value, rtol=2e-6)
    assert training.nudged(np.arange(3), 0).tolist() == [0, 1, 2]


def test_sizes_may_be_fractions(monkeypatch):
    seen = []
    comparison = training.Comparison("mlp", losses(1.0, nudged=[(1.0,)]), losses(1.0))
    monkeypatch.setattr(train, "compare", lambda name, settings: seen.append(settings.sizes) or comparison)
    assert run("mlp", "--size", "depth=2", "--size", "rate=1e-3").exit_code == 0
    assert seen == [{"depth": 2, "rate": 0.001}]


@pytest.mark.parametrize("size", ["depth", "depth=many", "=3"])
def test_sizes_are_checked(size):
    result = run("mlp", "--size", size)
    assert result.exit_code == 2
    assert "NAME=NUMBER" in result.output


def test_largest_output_counts():
    host = training.Training([[1.0, np.ones(3).tolist()]], 1.0, 0.001)
    device = training.Training([[1.0, [1.0, 1.0, 1.5]]], 1.0, 0.001)
    assert training.Comparison("x", host, device).differences() == [pytest.approx(1 / 3)]
