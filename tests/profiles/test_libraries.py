"""The optimizer is measured on models of other libraries, which need not be installed here."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

import models
from profiles import isolated, libraries
from profiles import models as zoo


@pytest.fixture
def one_model(monkeypatch):
    """A registry with a single model, which is one of this project's own models."""
    monkeypatch.setattr(models, "known", lambda: ["small"])
    monkeypatch.setattr(models, "available", lambda: ["small"])
    monkeypatch.setattr(models, "entry", lambda name: SimpleNamespace(library="None", floatX="float32"))
    monkeypatch.setattr(models, "build", lambda name: zoo.build("mlp"))
    monkeypatch.setattr(isolated, "call", lambda function, *arguments, **options: libraries.measured(*arguments))


@pytest.mark.slow
def test_it_measures_a_model(one_model, tmp_path):
    numbers = tmp_path / "numbers.json"
    result = CliRunner().invoke(libraries.main, ["--repeat", "1", "--json", str(numbers)])
    assert result.exit_code == 0, result.output
    assert "geometric mean of 1" in result.output
    [row] = json.loads(numbers.read_text())
    assert row["stock"] > 0 and row["ours"] > 0
    assert row["ours_after"] <= row["stock_after"] < row["before"]


def test_a_worse_graph_and_a_failure_are_told_by_the_exit_status(one_model, monkeypatch):
    row = dict.fromkeys(("stock", "ours"), 1.0) | {"name": "small", "library": "None", "before": 9}
    row |= {"stock_after": 5, "ours_after": 6, "stock_inplace": 2, "ours_inplace": 2}
    monkeypatch.setattr(libraries, "measured", lambda *arguments: row)
    assert CliRunner().invoke(libraries.main).exit_code == 1
    row["ours_after"] = 5
    assert CliRunner().invoke(libraries.main).exit_code == 0
    row["ours_inplace"] = 1
    assert CliRunner().invoke(libraries.main).exit_code == 1

    def fail(*arguments, **options):
        raise isolated.Failed("no such library")

    monkeypatch.setattr(isolated, "call", fail)
    result = CliRunner().invoke(libraries.main)
    assert result.exit_code == 1
    assert "no such library" in result.output


def test_unknown_models_are_refused(one_model):
    result = CliRunner().invoke(libraries.main, ["smal"])
    assert result.exit_code == 2
    assert "small" in result.output
