"""`explain` shows the device graphs of functions of mode OPENCL, which are not the graphs in ``maker``."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
import theano
import theano.tensor as tt

import optdb
from optdb.opencl import get_context
from optdb.opencl.ops.blas import OpenCLDot22
from tests.processes import ROOT, python

A = np.eye(3, dtype="float32")


@pytest.fixture
def step():
    x, w = tt.fmatrix("x"), theano.shared(A, "w")
    x.tag.test_value = A
    hidden = tt.tanh(x.dot(w))
    return theano.function([x], hidden.sum(axis=0), updates=[(w, w + 1)], mode=optdb.mode(device="dev0")), w


def test_the_graph_is_the_one_that_runs(step):
    function, _ = step
    explanation = optdb.explain(function)
    assert explanation.places == {"opencl dev0": 3}
    assert any(isinstance(node.op, OpenCLDot22) for node in explanation.graph.apply_nodes)
    assert "lift_elemwise" in str(explanation)


def test_what_stays_has_its_reason():
    x = tt.fmatrix("x")
    f = theano.function([x], tt.exp(x + tt.nlinalg.ExtractDiag()(x)).sum(), mode=optdb.mode(device="dev0"))
    g = theano.function([x], tt.sort(x.astype("complex64"), axis=0), mode=optdb.mode(device="dev0"))
    assert "opencl dev0" in optdb.explain(f).places
    explanation = optdb.explain(g)
    assert explanation.places["host"] >= 1
    assert "stayed on the host" in str(explanation)


@pytest.fixture
def without_float64(monkeypatch):
    context = get_context("dev0")
    monkeypatch.setattr(context, "profile", replace(context.profile, float64=False))


REFUSED = r"dev0 cannot take arrays of float64: .* has no double precision; the cure: THEANO_FLAGS=floatX=float32"


def test_a_device_without_float64_gives_the_reason_and_the_cure(without_float64):
    x = tt.dmatrix("x")
    function = theano.function([x], tt.exp(x).sum(axis=0).astype("float32") + 1, mode=theano.Mode("py", "fast_run"))
    with pytest.warns(UserWarning, match=f"All nodes of the function run on the host: {REFUSED}") as caught:
        simulator = optdb.SimulatorOCL(function, "dev0")
    assert [entry.filename for entry in caught] == [__file__]
    np.testing.assert_allclose(simulator(A), np.exp(A).sum(axis=0) + 1, rtol=1e-6)
    [report] = simulator.report().reports
    assert report.nodes
    for node in report.nodes:
        assert node.reason.endswith("floatX=float32")
    with pytest.warns(UserWarning, match=REFUSED) as caught:
        in_mode = theano.function([x], tt.exp(x), mode=optdb.mode(device="dev0"))
    assert [entry.filename for entry in caught] == [__file__]
    assert "floatX=float32" in optdb.explain(in_mode).reports[-1].nodes[0].reason


def test_what_a_device_without_float64_can_compute_has_no_warning(without_float64):
    x, y = tt.dvector("x"), tt.fvector("y")
    function = theano.function([x, y], [x + 1, tt.exp(y)], mode=theano.Mode("py", "fast_run"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        simulator = optdb.SimulatorOCL(function, "dev0")
    assert {node.reason is None for node in simulator.report().reports[0].nodes} == {True, False}


@pytest.mark.parametrize(
    ("call", "cure"),
    [
        (optdb.explain, "optdb.pytensor.explain"),
        (optdb.SimulatorOCL, 'mode="OPENCL"'),
        (lambda function: optdb.export(function, "no.file"), "optdb.pytensor.export"),
    ],
    ids=["explain", "simulator", "export"],
)
def test_a_function_of_pytensors_is_refused_with_the_cure(call, cure):
    function = type("Function", (), {"__module__": "pytensor.compile.executor"})()
    with pytest.raises(TypeError, match=f"is PyTensor's.\nFor functions of PyTensor: .*{cure}"):
        call(function)


def test_what_a_call_moves(step):
    function, w = step
    for _ in range(3):
        function(A)
    settled = optdb.explain(function, A).traffic
    assert settled.nbytes == {"arguments of a call": 36, "results of a call": 12, "shared variables to the host": 36}
    w.set_value(A)
    assert optdb.explain(function, A).traffic.nbytes["shared variables to the device"] == 36


def test_an_explanation_of_the_host_is_as_it_was():
    x = tt.fmatrix("x")
    f = theano.function([x], tt.exp(x), mode=theano.Mode("py", "fast_run"))
    explanation = optdb.explain(f, A)
    assert (explanation.places, explanation.graph) == ({"host": 1}, f.maker.fgraph)
    assert not explanation.traffic.transfers


@pytest.mark.slow
@pytest.mark.parametrize("flags", ["mode=OPENCL", "optdb.device=opencl"])
def test_the_command_and_the_example_agree(flags):
    example = str(ROOT / "examples" / "check1.py")
    done = python("-m", "optdb", "explain", example, "2", flags=f"cxx=,floatX=float32,{flags}")
    assert done.returncode == 0, done.stderr
    assert "Used the device" in done.stdout and "OpenCLElemwise" in done.stdout
    assert "lifted to opencl" in done.stderr


@pytest.mark.slow
def test_the_example_uses_the_host_without_a_flag():
    done = python(str(ROOT / "examples" / "check1.py"), "2", flags="cxx=,floatX=float32")
    assert "Used the host" in done.stdout
