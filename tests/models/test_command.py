"""Tests of the command line of models/, its tables and its page."""

from __future__ import annotations

import io
import json

import pytest
from click.testing import CliRunner
from rich.console import Console

import profiles  # noqa: F401  brings optdb in before Theano
from models import page, registry, runner
from models.__main__ import main
from models.records import Report, Result, Times
from models.report import read_json, show
from profiles import isolated

WAYS = ("engine", "opencl", "simulator")
SETTINGS = runner.Settings(WAYS)


def invoke(*args):
    return CliRunner().invoke(main, list(args))


def report(name="keras_vae", **others):
    results = {
        "stock": Result(nodes=9, inplace=3),
        "engine": Result(nodes=8, inplace=3),
        "opencl": Result(difference=2e-7, nodes=12, on_device=7, on_host=2, transfers=3),
        "simulator": Result(difference=0.3, where="output 0 of call 1", nodes=9, on_device=7, on_host=2, transfers=3),
    }
    return Report(name, "Keras", "float32", results, **others)


def test_list_tells_what_the_models_are():
    done = invoke("--list", "keras_vae", "gp_")
    assert done.exit_code == 0
    assert done.output.startswith("keras_vae: A variational autoencoder") and "pymc3_gp_sparse" in done.output


def test_unknown_names_list_the_known_ones():
    done = invoke("no_such_model")
    assert done.exit_code == 2 and "keras_vae" in done.output


def test_missing_libraries_are_named_with_the_cure(monkeypatch):
    monkeypatch.setattr(registry.importlib.util, "find_spec", lambda name: None)
    done = invoke("keras_vae", "lasagne_mlp")
    assert done.exit_code == 1
    assert "Keras, Lasagne cannot be imported: run `make models`" in done.output


@pytest.fixture
def answered(monkeypatch):
    """Make all libraries seem installed; return a dictionary with the reports that runs return, without processes."""
    answers = {}
    monkeypatch.setattr(registry.importlib.util, "find_spec", lambda name: True)
    monkeypatch.setattr(
        "models.__main__.run_all", lambda names, settings, jobs, compared: (answers[name] for name in names)
    )
    return answers


def test_a_fault_is_the_exit_status_and_numbers_are_kept(answered, tmp_path):
    answered["keras_vae"] = report()
    done = invoke("keras_vae", "--json", str(tmp_path / "a.json"), "--page", str(tmp_path / "a.md"))
    assert done.exit_code == 1
    assert "simulator differs from stock by 3.0e-01 in output 0 of call 1" in done.output
    (row,) = json.loads((tmp_path / "a.json").read_text())["models"]
    assert row["results"]["opencl"]["on_device"] == 7 and len(row["faults"]) == 1
    assert "| keras_vae | A variational autoencoder" in (tmp_path / "a.md").read_text()
    answered["keras_vae"].results["simulator"].difference = 0.0
    assert invoke("keras_vae").exit_code == 0


def test_a_run_goes_on_where_it_stopped(answered, tmp_path):
    file = str(tmp_path / "a.json")
    calm = report("keras_vae", times=Times(dict.fromkeys(("stock", *WAYS), 1e-3)))
    calm.results["simulator"].difference = 0.0
    answered |= {"keras_vae": calm, "keras_gan": report("keras_gan")}
    assert invoke("keras_gan", "keras_vae", "--json", file).exit_code == 1
    # The option --resume keeps reports without faults, and reports of models that are not in this run.
    answered["keras_gan"].results["simulator"].difference = 0.0
    del answered["keras_vae"]
    assert invoke("keras_gan", "keras_vae", "--json", file, "--resume").exit_code == 0
    assert read_json(tmp_path / "a.json") == [calm, answered["keras_gan"]]
    del answered["keras_gan"]
    assert invoke("keras_vae", "--time", "--json", file, "--resume", "--page", str(tmp_path / "a.md")).exit_code == 0
    assert "| keras_gan | " in (tmp_path / "a.md").read_text()


def test_to_resume_takes_a_file():
    assert "--json FILE" in invoke("keras_vae", "--resume").output


def test_times_and_reasons_are_shown(tmp_path):
    seconds = {"stock": 1e-3, "engine": 9e-4, "opencl": 2e-3, "simulator": 5e-4}
    slow = report(times=Times(seconds, 30, 1e-4, 1e-4, device="a processor"))
    console = Console(width=160, record=True, file=io.StringIO())
    show(console, [slow], WAYS)
    text = console.export_text()
    assert "0.50x" in text and "2.00x" in text
    assert "slower: keras_vae, opencl: 30 launches to enqueue" in text
    page.write([slow], WAYS, tmp_path / "page.md")
    written = (tmp_path / "page.md").read_text()
    assert "| keras_vae | 1.00 | 1.11x | 0.50x | 2.00x | 30 | 30 launches to enqueue |" in written
    assert "The device: a processor." in written


def test_a_process_that_dies_is_a_fault(monkeypatch):
    def die(*args, **options):
        raise isolated.Failed("killed by SIGSEGV")

    monkeypatch.setattr(isolated, "call", die)
    found = list(runner.run_all(["pymc3_advi"], SETTINGS, jobs=1))
    assert [(each.floatX, each.faults()) for each in found] == [("float64", ["killed by SIGSEGV"])]


def test_a_chaotic_model_is_run_again_in_float64(monkeypatch):
    def call(*args, flags, **options):
        result = {"difference": 0.5 if "float32" in flags else 1e-3}
        chaos = 0.1 if "float32" in flags else 0.0
        return {
            **{"model": "keras_vae", "library": "Keras", "floatX": flags[7:14], "chaos": chaos, "error": ""},
            "results": {"stock": {}, "engine": result},
        }

    monkeypatch.setattr(isolated, "call", call)
    found = runner.run("keras_vae", runner.Settings(("engine",)))
    assert found.is_chaotic("engine") and found.calm.floatX == "float64"
    assert found.faults() == ["in float64: engine differs from stock by 1.0e-03 in "]


def test_a_process_gets_the_librarys_dtype_and_a_limit(monkeypatch):
    calls = []

    def call(*args, **options):
        calls.append((args, options))
        return {"model": "keras_vae", "library": "Keras", "floatX": "float32", "results": {}, "chaos": 0.0, "error": ""}

    monkeypatch.setattr(isolated, "call", call)
    assert runner.run("keras_vae", runner.Settings(("engine",), steps=2, timeout=5)).faults() == []
    ((args, options),) = calls
    assert args == ("models.worker:limited", 5, "models.worker:compare", ["keras_vae", ["engine"], 2])
    assert "floatX=float32" in options["flags"] and options["timeout"] == 5 * runner.PATIENCE


def test_what_was_compared_is_timed_alone(monkeypatch):
    asked = []

    def call(function, settings, *args):
        asked.append(function)
        return {"seconds": {"stock": 1e-3, "opencl": 5e-4}}

    monkeypatch.setattr(runner, "_call", call)
    compared = report()
    compared.results["simulator"].difference = 0.0
    settings = runner.Settings(WAYS, time=True)
    (timed,) = runner.run_all(["keras_vae"], settings, 1, {"keras_vae": compared})
    assert asked == ["models.timing:measure"]
    assert timed.times.ratio("opencl") == 2
