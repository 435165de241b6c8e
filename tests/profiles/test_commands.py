"""The command lines of profiles/ run on the smallest model."""

import importlib
import json

import pytest
import theano
from click.testing import CliRunner

from profiles import __main__ as listing
from profiles import check, compare, demo, growth, lines, models, runtime, terminal
from tests.processes import python


def run(command, *arguments):
    return CliRunner().invoke(command, arguments)


@pytest.mark.slow
def test_compare_writes_everything(tmp_path):
    numbers, plot = tmp_path / "numbers.json", tmp_path / "plot.png"
    result = run(compare.main, "mlp", "--repeat", "1", "--json", str(numbers), "--plot", str(plot))
    assert result.exit_code == 0, result.output
    assert "mlp" in result.output
    assert str(plot) in result.output.replace("\n", "")
    [model] = json.loads(numbers.read_text())["models"]
    assert model["values"]["agree"]
    assert plot.exists()


@pytest.mark.thorough
@pytest.mark.slow
def test_compare_can_leave_values_out(monkeypatch):
    monkeypatch.setattr(check, "evaluate", lambda *arguments: pytest.fail("values were computed"))
    result = run(compare.main, "mlp", "--repeat", "1", "--no-values", "--baseline", "o3")
    assert result.exit_code == 0, result.output
    assert "not run" in result.output


@pytest.mark.slow
def test_compare_fails_where_values_disagree(monkeypatch):
    monkeypatch.setattr(check, "compare", lambda *results: check.Agreement(False, 0.25, "output 0"))
    result = run(compare.main, "mlp", "--repeat", "1")
    assert result.exit_code == 1
    assert "values disagree by 2.5e-01 in output 0" in result.output


@pytest.mark.parametrize(
    ("command", "arguments"),
    [(compare.main, ()), (lines.main, ("theano.gof.fg.FunctionGraph.replace",))],
)
def test_unknown_model_lists_the_known(command, arguments):
    result = run(command, *arguments, "nope")
    assert result.exit_code == 2
    assert f"no model is named 'nope'; known are: {', '.join(models.known())}" in result.output


@pytest.mark.parametrize("command", [compare.main, demo.main, growth.main, runtime.main])
def test_without_matplotlib_nothing_is_measured(command, monkeypatch, tmp_path):
    monkeypatch.setattr(terminal, "find_spec", lambda name: None)
    result = run(command, "--plot", str(tmp_path / "plot.png"))
    assert result.exit_code == 2
    assert "pip install 'optdb[profiles]'" in result.output.replace("\n", " ")


@pytest.mark.slow
def test_lines_shows_the_lines_of_a_method():
    pytest.importorskip("line_profiler")
    result = run(lines.main, "theano.tensor.opt.ShapeFeature.on_import", "mlp")
    assert result.exit_code == 0, result.output
    assert "def on_import(self, fgraph, node, reason):" in result.output


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("theano.tensor.opt.nope", "theano.tensor.opt has no 'nope'"),
        ("theano.tensor.opt.ShapeFeature.nope", "ShapeFeature has no 'nope'"),
        ("theano.gof.opt.Optimizer", "is a type, not a Python function"),
        ("no_such_module.f", "there is no module 'no_such_module'"),
    ],
)
def test_unknown_function_is_explained(name, complaint):
    with pytest.raises(lines.UnknownFunction) as caught:
        lines.find(name)
    assert complaint in str(caught.value)


def test_rewriters_and_properties_are_followed_to_their_functions():
    assert lines.find("theano.tensor.opt.local_fill_sink").__name__ == "local_fill_sink"
    assert lines.find("theano.compile.mode.Mode.optimizer") is theano.compile.mode.Mode.optimizer.fget


@pytest.mark.slow
def test_growth_measures_plots_and_saves(tmp_path):
    numbers, plot = tmp_path / "growth.json", tmp_path / "growth.png"
    result = run(growth.main, "gru", "--sizes", "400,600", "--json", str(numbers), "--plot", str(plot))
    assert result.exit_code == 0, result.output
    points = json.loads(numbers.read_text())["points"]
    assert [point["way"] for point in points] == ["optdb", "stock", "optdb", "stock"]
    small, _, large, _ = (point["nodes"] for point in points)
    assert abs(small - 400) < 40 and abs(large - 600) < 40
    assert plot.exists()
    assert "gru" in result.output


@pytest.mark.thorough
@pytest.mark.slow
def test_growth_gives_stock_up_where_it_takes_too_long():
    result = run(growth.main, "gru", "--sizes", "200,300", "--bearable", "0.0001")
    assert result.exit_code == 0, result.output
    assert result.output.count("gru, stock") == 1
    assert result.output.count("gru, optdb") == 2


@pytest.mark.parametrize("arguments", [("--sizes", "200,many"), ("tree",)])
def test_growth_says_what_it_takes(arguments):
    result = run(growth.main, *arguments)
    assert result.exit_code == 2
    assert "200,many" in result.output or "gru" in result.output


def test_all_commands_are_listed_with_what_they_do():
    listed = dict(listing.commands())
    assert {"profiles.compare", "profiles.demo", "profiles.train", "profiles.gpu.steps"} <= set(listed)
    assert "profiles.isolated" not in listed
    assert all(what.endswith(".") for what in listed.values())
    for name in ("profiles.compare", "profiles.demo", "profiles.train", "profiles.runtime"):
        assert CliRunner().invoke(importlib.import_module(name).main, ["--help"]).exit_code == 0


def test_a_helper_says_that_it_is_one():
    done = python("-m", "profiles.isolated", "--help")
    assert done.returncode == 1
    assert "python -m profiles" in done.stderr


def test_a_module_that_is_no_command_says_what_it_is():
    done = python("-m", "profiles.check", "--help")
    assert (done.returncode, done.stdout) == (1, "")
    assert "profiles.check is used by other modules: Checks whether two optimized graphs" in done.stderr
    assert "python -m profiles" in done.stderr and "Traceback" not in done.stderr


def test_a_module_that_is_missing_is_pythons_own_error():
    done = python("-m", "profiles.no_such_module")
    assert done.returncode == 1 and "No module named profiles.no_such_module" in done.stderr
