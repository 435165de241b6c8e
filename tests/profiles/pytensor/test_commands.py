"""Tests of the command lines that measure PyMC models."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from profiles import isolated
from profiles.pytensor import (
    cli,
    crossover,
    draws,
    overhead,
    samplers,
    sampling,
    sides,
    speed,
    starts,
    training,
    training_steps,
    values,
    workers,
)
from profiles.pytensor.speed import Evaluation
from profiles.pytensor.starts import Start

COMMANDS = (values, speed, starts, crossover, sampling)


def shown(renderable):
    console = Console(width=200)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


def evaluated(*numbers):
    """Return a fake `values.compare` that returns the next of the given answers in each call."""
    answers = iter([[[[logp], list(dlogp)]] for logp, dlogp in numbers])
    return lambda *arguments, **options: next(answers)


class FakeWorker:
    """A fake worker; the times that it reports depend only on its mode and on the number of its measurements."""

    ended = 0

    def __init__(self, name, size, side):
        if side == "c":
            raise isolated.Failed(f"{name}, {side}: no compiler")
        self.taken = 0.001 * (1 if side == sides.OPENCL else 2)
        self.turns = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        type(self).ended += 1

    def turn(self, at_least_s):
        self.turns += 1
        return workers.Seconds(self.taken * self.turns, 10 * self.taken)


@pytest.mark.parametrize("command", [*COMMANDS, draws])
def test_help_is_there_and_unknown_models_are_refused(command):
    assert CliRunner().invoke(command.main, ["--help"]).exit_code == 0
    result = CliRunner().invoke(command.main, ["nope"])
    assert result.exit_code == 2
    assert "'nope' is not one of" in result.output


@pytest.mark.parametrize("command", COMMANDS)
def test_a_side_that_is_not_installed_is_named_with_the_cure(command, monkeypatch):
    monkeypatch.setattr(sides, "_is_installed", lambda module: module.startswith("pytensor"))
    result = CliRunner().invoke(command.main, ["ar"])
    assert result.exit_code == 1
    assert "skipped: opencl, which needs optdb.pytensor" in result.output
    assert "pip install 'optdb[pymc]'" in result.output


def test_values_are_compared_at_each_point():
    same = values.compare("ar", 40, run=evaluated((-10.0, [1.0, 2.0]), (-10.0, [1.0, 2.0])))
    assert (same.logp, same.dlogp, same.agrees) == (0.0, 0.0, True)
    apart = values.compare("ar", 40, run=evaluated((-10.0, [1.0, 2.0]), (-10.0, [1.0, 2.0 + 1e-8])))
    assert apart.logp == 0.0 and apart.dlogp == pytest.approx(5e-9, rel=1e-3) and not apart.agrees
    assert "agrees" in shown(values.render([same])) and "differs" in shown(values.render([apart]))


def test_a_side_that_fails_does_not_agree():
    def run(function, name, size, side, timeout):
        raise isolated.Failed("killed")

    comparison = values.compare("ar", 40, run=run)
    assert not comparison.agrees
    assert comparison.failure == "default: killed"
    assert "failed" in shown(values.render([comparison]))


@pytest.mark.parametrize(("difference", "status"), [(0.0, 0), (1.0, 1)])
def test_the_command_fails_where_values_differ(difference, status, monkeypatch, tmp_path):
    def compare(name, size, side, reference, timeout):
        return values.Comparison(name, size, side, reference, 0.0, difference)

    monkeypatch.setattr(values, "compare", compare)
    monkeypatch.setattr(sides, "available", lambda name: True)
    path = tmp_path / "new" / "numbers.json"
    result = CliRunner().invoke(values.main, ["ar", "gp", "--json", str(path)])
    assert result.exit_code == status, result.output
    assert [row["model"] for row in json.loads(path.read_text())] == ["ar", "gp"]


@pytest.mark.slow
def test_values_of_two_sides_agree():
    comparison = values.compare("ar", 20, side="python", reference="python")
    assert comparison.agrees, comparison


def test_medians_of_turns_are_measured_and_all_processes_end(monkeypatch):
    monkeypatch.setattr(FakeWorker, "ended", 0)
    failures = []
    chosen = [sides.DEFAULT, sides.OPENCL, "c"]
    measured = speed.measure("ar", 40, chosen, turns=3, failed=failures.append, start=FakeWorker)
    assert failures == ["ar, c: no compiler"]
    assert FakeWorker.ended == 2
    assert [(row.side, round(row.cpu_ms, 6), round(row.wall_ms, 6)) for row in measured] == [
        (sides.DEFAULT, 4.0, 20.0),
        (sides.OPENCL, 2.0, 10.0),
    ]
    text = shown(speed.render(measured, "cpu"))
    assert "opencl / default" in text and "0.50" in text


def test_a_model_that_a_side_failed_at_has_no_ratio():
    rows = [Evaluation("ar", 40, sides.DEFAULT, 1.0, 1.0), Evaluation("gp", 12, sides.OPENCL, 3.0, 1.0)]
    text = shown(speed.render(rows, "cpu"))
    assert [line.count("-") for line in text.splitlines() if " ar " in line or " gp " in line] == [2, 2]


@pytest.mark.slow
def test_a_worker_evaluates_in_turn_and_ends():
    with workers.Worker("ar", 20, "python") as worker:
        taken = workers.race({"python": worker}, 2, 0.01)["python"]
        process = worker._process
    assert len(taken) == 2
    assert all(turn.cpu > 0 and turn.wall > 0 for turn in taken)
    assert not process.is_alive()


@pytest.mark.slow
def test_the_error_of_a_worker_is_told():
    with pytest.raises(isolated.Failed) as caught:
        workers.Worker("nope", 20, "python")
    assert str(caught.value).startswith("nope, python: ")
    assert "no model is named 'nope'" in str(caught.value)


def test_caches_are_empty_once_and_then_full():
    folders, answers = [], iter([[1.0, 0.1, 8.0], [1.0, 0.1, 2.0], [3.0, 0.3, 6.0], [1.0, 0.1, 4.0]])

    def run(function, name, size, side, env, timeout):
        folders.append(Path(env["XDG_CACHE_HOME"]).parent)
        assert env["PYTENSOR_FLAGS"] == f"base_compiledir={folders[-1] / 'pytensor'}"
        return next(answers)

    cold, warm = starts.measure("ar", 40, sides.DEFAULT, repeat=2, run=run)
    assert folders[0] == folders[1] != folders[2] == folders[3]
    assert not folders[0].exists()
    assert (cold.cache, cold.first_s, cold.imports_s, cold.model_s) == ("cold", 7.0, 2.0, 0.2)
    assert (warm.cache, warm.first_s) == ("warm", 3.0)


def test_starts_are_shown_with_their_geometric_mean():
    rows = [
        Start(model, 40, side, cache, 1.0, 0.1, first)
        for model, seconds in {"ar": (8.0, 2.0), "gp": (4.0, 4.0)}.items()
        for side, first in zip((sides.DEFAULT, sides.OPENCL), seconds)
        for cache in starts.CACHES
    ]
    text = shown(starts.render(rows))
    assert text.count("4.0x") == 2 and text.count("1.0x") == 2
    [means] = [line for line in text.splitlines() if "geometric mean" in line]
    assert means.count("2.0x") == 2
    assert "-" in shown(starts.render(rows[:3] + rows[4:]))


@pytest.mark.slow
def test_a_start_is_measured():
    cold, warm = starts.measure("ar", 20, "python")
    assert cold.imports_s > 0 and cold.first_s > 0 and warm.first_s > 0


def test_posterior_means_are_compared_in_standard_deviations():
    deviations = {"a": [0.5, 4.0]}
    answers = iter(
        [
            {"means": {"a": [1.0, 5.0]}, "deviations": deviations, "cpu_s": 9.0},
            {"means": {"a": [1.0 + 1e-7, 5.4]}, "deviations": deviations, "cpu_s": 3.0},
        ]
    )
    draws = sampling.compare("ar", 40, run=lambda *arguments: next(answers))
    assert draws.difference == pytest.approx(0.1) and not draws.agrees
    assert (draws.seconds, draws.reference_seconds) == (3.0, 9.0)
    assert "differs" in shown(sampling.render([draws]))


@pytest.mark.parametrize(("difference", "status"), [(1e-7, 0), (1e-5, 1)])
def test_sampling_fails_where_means_differ(difference, status, monkeypatch, tmp_path):
    def compare(name, size, side, reference, draws, tune):
        assert size == sampling.SIZES[name]
        return sampling.Draws(name, size, side, reference, difference, 1.0, 2.0)

    monkeypatch.setattr(sampling, "compare", compare)
    monkeypatch.setattr(sides, "available", lambda name: True)
    path = tmp_path / "numbers.json"
    result = CliRunner().invoke(sampling.main, ["--json", str(path)])
    assert result.exit_code == status, result.output
    assert [row["model"] for row in json.loads(path.read_text())] == list(sampling.SIZES)


def test_a_model_that_cannot_be_sampled_ends_the_command(monkeypatch):
    def compare(*arguments):
        raise isolated.Failed("killed")

    monkeypatch.setattr(sampling, "compare", compare)
    monkeypatch.setattr(sides, "available", lambda name: True)
    result = CliRunner().invoke(sampling.main, ["ar"])
    assert result.exit_code == 1 and "ar: killed" in result.output


@pytest.mark.slow
def test_draws_of_the_same_seed_are_the_same():
    first, again = (sampling.draw("ar", 20, "python", 5, 5) for _ in range(2))
    assert (first["means"], first["deviations"]) == (again["means"], again["deviations"])
    assert first["means"]["weights"] != sampling.draw("ar", 20, "python", 5, 5, seed=18)["means"]["weights"]


def drawn(wall, *means):
    return {"wall_s": wall, "cpu_s": 2 * wall, "means": {"a": means}, "deviations": {"a": [0.5] * len(means)}}


def test_samplers_are_compared_with_the_default():
    answers = iter([drawn(4.0, 1.0, 2.0), drawn(1.0, 1.0, 2.05)])
    reference, ours = samplers.compare("garch", "nutpie", 100, 50, run=lambda *arguments: next(answers))
    assert (reference.side, reference.difference, reference.wall_s) == (sides.DEFAULT, 0.0, 4.0)
    assert (ours.side, ours.cpu_s, ours.draws) == (sides.OPENCL, 2.0, 200)
    assert ours.difference == pytest.approx(0.1) and ours.agrees
    text = shown(samplers.render([reference, ours]))
    assert "agrees" in text and "1e-01" in text


@pytest.mark.parametrize(("difference", "status"), [(0.1, 0), (2.0, 1)])
def test_samplers_fail_where_means_differ(difference, status, monkeypatch, tmp_path):
    def compare(name, sampler, draws, tune, side):
        return [samplers.Sampling(name, sampler, side, 1.0, 2.0, difference, draws)]

    monkeypatch.setattr(samplers, "compare", compare)
    monkeypatch.setattr(sides, "available", lambda name: True)
    path = tmp_path / "numbers.json"
    result = CliRunner().invoke(samplers.main, ["logistic", "--json", str(path)])
    assert result.exit_code == status, result.output
    assert [row["sampler"] for row in json.loads(path.read_text())] == list(samplers.SAMPLERS)


@pytest.mark.slow
def test_a_sampler_draws_from_a_seed():
    one, other = (samplers.draw("garch", "pymc", "python", 3, 3) for _ in range(2))
    assert one["means"] == other["means"] and set(one["means"]) == {"level", "shock", "memory", "start"}
    assert one["wall_s"] > 0 and one["cpu_s"] > 0


def test_a_grid_goes_from_the_small_size_to_the_large_one():
    assert crossover.grid("mixture", 3) == [60, 2449, 100_000]


@pytest.mark.parametrize(
    ("ratios", "size"),
    [
        ([0.5, 0.4, 0.1], 10),
        ([4.0, 2.0, 0.5], 10**2.5),
        ([4.0, 0.25, 0.1], 10**1.5),
        ([0.5, 2.0, 0.5], 10**2.5),
        ([0.5, 0.5, 1.0], None),
    ],
)
def test_a_side_pays_from_where_its_ratio_stays_below_one(ratios, size):
    assert crossover.crossing([10, 100, 1000], ratios) == (size if size is None else pytest.approx(size))


def test_the_crossover_is_shown_and_drawn(monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(sides, "available", lambda name: True)
    monkeypatch.setattr(
        speed,
        "measure",
        lambda name, size, left, turns, failed: [
            Evaluation(name, size, sides.DEFAULT, 1.0, size / 1000),
            Evaluation(name, size, sides.OPENCL, 1.0, 0.4),
        ],
    )
    plot, numbers = tmp_path / "plot.png", tmp_path / "numbers.json"
    result = CliRunner().invoke(
        crossover.main, ["ordinal", "--points", "4", "--plot", str(plot), "--json", str(numbers)]
    )
    assert result.exit_code == 0, result.output
    [row] = [line for line in result.output.splitlines() if "ordinal" in line and "observations" in line]
    assert " 400 " in row and " 8.00 " in row and " 0.04 " in row
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert len(json.loads(numbers.read_text())) == 8


def test_without_pymc_a_command_says_so():
    hidden = "import importlib.util as u; find = u.find_spec; u.find_spec = lambda n: None if n == 'pymc' else find(n)"
    code = f"{hidden}; import profiles.pytensor.cli"
    root = Path(cli.__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root)
    assert done.returncode == 1
    assert "PyMC is not installed. The cure: make pytensor" in done.stderr and "Traceback" not in done.stderr


def test_the_overhead_of_a_call_is_measured():
    result = CliRunner().invoke(overhead.main, ["--turns", "1"])
    assert result.exit_code == 0, result.output
    wall, cpu = (float(number) for number in re.findall(r"\d+\.\d", result.output))
    assert 0 < wall < 1e5 and 0 < cpu < 1e5


@pytest.mark.slow
@pytest.mark.thorough
def test_a_step_of_training_is_measured_on_each_side():
    steps = training.measure("logistic", "adam", "small", turns=1, turn_s=0.01, settle_s=0.01)
    assert [step.side for step in steps] == list(training_steps.SIDES)
    assert all(step.cpu_us > 0 and step.wall_us > 0 for step in steps)
    table = shown(training.render(steps))
    assert "logistic" in table and "opencl, repeated" in table
    assert CliRunner().invoke(training.main, ["--help"]).exit_code == 0


def test_draws_are_timed_on_all_sides(monkeypatch):
    kinds = []
    monkeypatch.setattr(draws, "_compiled", lambda variable, length, mode, kind: lambda: kinds.append(kind.__name__))
    result = CliRunner().invoke(draws.main, ["normal", "--turns", "2"])
    assert result.exit_code == 0
    assert "normal" in result.output
    assert kinds[-6:] == ["PCG64", "PCG64DXSM", "PCG64"] * 2
