"""A small model gives the same results with the engine, in mode OPENCL, and as a simulator."""

from __future__ import annotations

import dataclasses
import itertools
from collections import OrderedDict

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.ifelse import ifelse

import profiles  # noqa: F401  brings optdb in before Theano
from models import registry, timing, ways, worker
from models.records import CHAOS, Report, Result, Times
from models.values import difference, nudged
from optdb.opencl.registry import context_of, get_context
from profiles import isolated
from profiles.models import Model

NAME = "a_model_of_the_tests"


def build(name: str) -> Model:
    """Return a step with a random stream, a branch on the learning phase, and updates that read each other."""
    rng = tt.shared_randomstreams.RandomStreams(3)
    x, phase = tt.dmatrix("x"), tt.bscalar(worker.PHASE)
    a, b = theano.shared(np.eye(3), "a"), theano.shared(np.ones(3), "b")
    noisy = ifelse(phase, x * rng.binomial(x.shape, p=0.5), x)
    loss = tt.sqr(noisy.dot(a) + b).sum()
    updates = OrderedDict([(a, a - 0.01 * theano.grad(loss, a)), (b, b + a.sum(axis=0))])
    return Model(name, [x, phase], [loss, phase], updates, [np.ones((2, 3)), np.asarray(1, "int8")])


@pytest.fixture(autouse=True)
def entered(monkeypatch):
    monkeypatch.setitem(registry.LIBRARIES, "the tests", "profiles")
    registry.known()
    monkeypatch.setitem(registry._entries, NAME, registry.Entry(NAME, "the tests", build, "float64"))
    with theano.change_flags(cxx="", floatX="float64"):
        yield


def compared(*names: str) -> Report:
    return Report.from_json(worker.compare(NAME, list(names), 4))


def test_ways_that_agree():
    report = compared("engine")
    assert report.faults() == []
    assert report.results["engine"].difference <= 1e-12
    assert report.results["stock"].branches == 1 and report.results["stock"].nodes >= report.results["engine"].nodes


@pytest.mark.slow_cases("opencl")
@pytest.mark.parametrize("way", ["opencl", "simulator"])
def test_the_device(way):
    report = compared(way)
    assert report.faults() == []
    result = report.results[way]
    assert result.on_device > 0 and result.transfers >= 0


def test_each_way_begins_with_the_same_values():
    trial = worker.Trial(build(NAME), 2)
    report = Report(NAME, "", "float64")
    first, second = trial.run("stock", report), trial.run("stock", report)
    assert [difference(a, b) for a, b in zip(first, second)] == [0.0] * len(first)
    assert len(first) == len(trial.names)


def test_the_learning_phase_is_off_in_the_middle():
    trial = worker.Trial(build(NAME), 4)
    assert [int(phase) for _, phase in trial.calls()] == [1, 1, 0, 1]
    assert len({float(x.sum()) for x, _ in trial.calls()}) == 4


def altered(change):
    """Return stock Theano under the name "engine"; `change` alters its outputs."""
    stock = ways.WAYS["stock"]

    def compile_altered(model, c_code):
        compiled = stock.compile(model, c_code)
        return dataclasses.replace(compiled, call=lambda *args: change(compiled.call(*args)))

    return ways.Way("engine", "", compile_altered)


def test_a_wrong_value_is_found(monkeypatch):
    monkeypatch.setitem(ways.WAYS, "engine", altered(lambda outputs: [outputs[0] * (1 + 1e-6), outputs[1]]))
    report = compared("engine")
    (fault,) = report.faults()
    assert fault.startswith("engine differs from stock by 1.0e-06 in output 0 of call")
    assert 0 < report.chaos < 1e-7


def test_a_wrong_dtype_is_found(monkeypatch):
    monkeypatch.setitem(ways.WAYS, "engine", altered(lambda outputs: [outputs[0], np.int64(outputs[1])]))
    assert "engine differs from stock by inf in output 1" in compared("engine").faults()[0]


def test_a_model_whose_values_are_not_finite_is_a_fault(monkeypatch):
    monkeypatch.setitem(ways.WAYS, "stock", altered(lambda outputs: [outputs[0] * np.inf, outputs[1]]))
    report = compared("stock")
    assert report.faults() == ["stock's own values are not finite, output 0 first: the model needs different data"]


def test_values_that_are_not_finite_in_the_first_call_alone_are_compared(monkeypatch):
    """Keras's metrics describe earlier calls, so they are not finite in the first call; later calls are compared."""
    calls = itertools.count()
    monkeypatch.setitem(
        ways.WAYS, "stock", altered(lambda outputs: [outputs[0] if next(calls) else outputs[0] * np.inf, outputs[1]])
    )
    assert compared("stock").faults() == []


@pytest.mark.slow
def test_an_error_costs_one_way(monkeypatch):
    def refuse(outputs):
        raise ValueError("not today")

    monkeypatch.setitem(ways.WAYS, "engine", altered(refuse))
    report = compared("engine", "simulator")
    (fault,) = report.faults()
    assert fault.startswith("engine fails") and "not today" in fault
    assert report.agrees("simulator")


@pytest.mark.slow
def test_cpu_seconds_are_limited():
    with pytest.raises(isolated.Failed, match="SIGXCPU"):
        isolated.call("models.worker:limited", 1, "builtins:pow", [3, 10**9], timeout=120)


def report_of(**results: Result) -> Report:
    return Report("m", "Keras", "float32", results)


def test_graphs_that_are_worse_are_faults():
    more = report_of(stock=Result(nodes=3), engine=Result(nodes=4))
    assert more.faults() == ["the engine's graph has 4 nodes, stock's 3"]
    fewer = report_of(stock=Result(nodes=3, inplace=2), engine=Result(nodes=3, inplace=1))
    assert fewer.faults() == ["the engine's graph has 1 in-place nodes, stock's 2, of 3"]
    assert report_of(stock=Result(nodes=3, inplace=2), engine=Result(nodes=2, inplace=1)).faults() == []


def test_a_chaotic_difference_is_no_fault():
    report = report_of(stock=Result(), opencl=Result(difference=1e-2))
    assert report.faults()
    report.chaos = 1e-2 / CHAOS
    assert report.is_chaotic("opencl") and not report.agrees("opencl") and report.faults() == []


def test_reasons_name_what_takes_the_time():
    report = report_of(stock=Result(), opencl=Result(on_host=2, transfers=3, branches=1))
    report.times = Times(
        {"stock": 1e-3, "opencl": 1e-2}, launches=40, kernels=1e-3, host=6e-3, host_ops=[["Sort", 5e-3]]
    )
    first, second = report.reasons("opencl")
    assert first == "2 nodes on the host (Sort 5.0 ms), 3 transfers"
    assert second == "40 launches to enqueue"
    assert report.reasons("engine") == []  # this mode failed, or was not requested
    report.times.seconds["opencl"] = 5e-4
    assert report.reasons("opencl") == []


def test_differences():
    nan, inf = float("nan"), float("inf")
    assert difference(np.array([nan, inf, 1.0]), np.array([nan, inf, 1.0])) == 0
    assert difference(np.array([nan, 1.0]), np.array([1.0, nan])) == inf
    assert difference(np.ones(3), np.ones((3, 1))) == inf
    assert difference(np.float32(1), np.float64(1)) == inf
    assert difference(np.array([1, 2]), np.array([1, 3])) == inf
    assert difference(np.array([100.0, 1.0]), np.array([100.0, 1.5])) == pytest.approx(0.005)
    assert difference(np.random.RandomState(1), np.random.RandomState(1)) == 0
    assert difference(np.random.RandomState(1), np.random.RandomState(2)) == inf


def test_nudges_move_floats_by_rounding_alone():
    value = np.linspace(1, 2, 50, dtype="float32")
    moved = nudged(value, 1)
    assert moved.dtype == value.dtype and 0 < difference(value, moved) < 1e-6
    assert nudged(np.array([1, 2]), 1).tolist() == [1, 2]


def test_times_name_the_device_without_a_default_context():
    times = timing.measure(NAME, ["simulator"])
    assert set(times["seconds"]) == {"stock", "simulator"} and times["launches"]
    assert times["device"] == get_context(context_of()).profile.name
