"""The command compares data-parallel steps with steps on one device."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from optdb.distributed import DataParallel
from profiles import distributed, scaling
from tests.distributed.training import two_devices


def equal(*options):
    threads = [option for device in two_devices() for option in ("--thread", device)]
    return CliRunner().invoke(
        distributed.main, ["equal", "--model", "mlp_adam", "--steps", "2", "--nudges", "2", *threads, *options]
    )


def test_equal_steps_and_what_nudges_do():
    done = equal()
    assert done.exit_code == 0, done.output
    assert "mlp_adam" in done.output


def test_workers_that_are_too_far_away_are_an_error(monkeypatch):
    get = DataParallel.get
    monkeypatch.setattr(DataParallel, "get", lambda train, shared: get(train, shared) * 1.001)
    assert equal().exit_code == 1


@pytest.mark.parametrize(("found", "allowed", "far"), [(0.1, 0.02, False), (0.1, 0.001, True), (np.nan, 1.0, True)])
def test_what_nudges_do_is_allowed(found, allowed, far):
    assert distributed.is_far(found, allowed) == far


@pytest.mark.slow
def test_scaling_compares_rows_per_second(monkeypatch, tmp_path):
    monkeypatch.setattr(scaling, "_several_devices", lambda count, at_least: two_devices()[:count])
    monkeypatch.setitem(scaling._SIZES, "mlp", {"width": 16})
    options = ["--model", "mlp", "--batch", "8", "--steps", "2", "--settle", "0", "--statistics", "parts"]
    plot = tmp_path / "scaling.svg"
    done = CliRunner().invoke(distributed.main, ["scaling", *options, "--plot", str(plot)], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    rows = [line.replace("│", " ").split()[:4] for line in done.output.splitlines() if "parts" in line]
    assert rows == [
        ["parts", "weak", "1", "8"],
        ["parts", "weak", "2", "16"],
        ["parts", "strong", "1", "8"],
        ["parts", "strong", "2", "8"],
    ]
    assert "strong scaling" in plot.read_text()
