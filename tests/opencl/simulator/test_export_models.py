"""Exported training steps of whole models (``profiles.models``) train like the simulator."""

from __future__ import annotations

import json
import re
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import theano

import optdb
from optdb.opencl import get_context
from optdb.opencl.exporting import Untraceable
from profiles import models
from tests.opencl.exported import context_of_kind

#: Each case has sizes, the batch axis of each argument, and another batch size for which the trace is valid.
CASES = {
    "mlp": ({"depth": 2, "width": 16, "batch": 12}, (0, 0), 14),
    "convnet": ({"batch": 6}, (0, 0), 7),
    "vae": ({"hidden": 1, "batch": 12}, (0,), 14),
    "lstm": ({"layers": 1, "steps": 3, "batch": 12}, (1, 1), 14),
    "gru30": ({"steps": 3, "batch": 12}, (1, 0), 14),
    "transformer": ({"batch": 12}, (0, 0), 14),
    "mixture": ({"groups": 1}, (None, 1), 24),
    "resnet50": ({"width": 4, "blocks": (1,), "batch": 6, "size": 16, "rate": 1e-6}, (0, 0), 7),
}


def simulator(name, **sizes):
    """Return a simulator of a model's step, and arguments."""
    with optdb.enable(), theano.change_flags(floatX="float32"):
        model = models.build(name, **sizes)
        mode = theano.Mode(linker="py")
        step = theano.function(model.inputs, model.outputs, updates=model.updates, mode=mode, name="step")
        return optdb.SimulatorOCL(step, device="dev0"), model.data


def batch_of(data, axes, n):
    """Return arguments for a batch of n examples, which are taken from the given batch."""
    return [x if axis is None else np.take(x, np.arange(n) % x.shape[axis], axis) for x, axis in zip(data, axes)]


@pytest.mark.thorough_cases("lstm")
@pytest.mark.thorough_cases("convnet", "vae", "gru30", "transformer", "mixture", "resnet50")
@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "mlp" else pytest.mark.slow) for name in CASES]
)
def test_a_model_trains_as_the_simulator_does(tmp_path, monkeypatch, name):
    # A trace is valid for batch sizes with the same division of work, which depends on the number of compute units.
    context = get_context("dev0")
    monkeypatch.setattr(context, "profile", replace(context.profile, compute_units=2))
    sizes, axes, other = CASES[name]
    sim, data = simulator(name, **sizes)
    reports = sim.export(tmp_path / "step.optdb", [data])
    assert [(report.device_kind, report.fixed) for report in reports] == [("cpu", None), ("gpu", None)]
    steps = [given for given in (data, batch_of(data, axes, other)) for _ in range(5)]
    expected = [sim(*given) for given in steps]
    for device_kind in ("cpu", "gpu"):
        there = optdb.load(tmp_path / "step.optdb", context_of_kind(device_kind))
        for given, results in zip(steps, expected, strict=True):
            for got, want in zip(there(*given), results, strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-4)


@pytest.mark.slow
def test_a_loop_has_kernels_of_each_device_kind(tmp_path):
    sim, data = simulator("lstm", layers=1, steps=3)
    sim.export(tmp_path / "step.optdb", [data])
    with zipfile.ZipFile(tmp_path / "step.optdb") as file:
        manifest = json.loads(file.read("manifest.json"))
    cpu, gpu = (
        {command["kernel"]["function_name"] for command in trace["commands"] if command["kind"] == "launch"}
        for trace in manifest["methods"][0]["traces"]
    )
    # Names of kernels contain the block of a work item; the names of a GPU's kernels also contain the tile of a group.
    blocks, tiles = re.compile(r"matmul_\d+x\d+(__\d+)?"), re.compile(r"matmul_\d+x\d+x\d+_.*")
    assert any(map(blocks.fullmatch, cpu)) and not any(map(tiles.fullmatch, cpu))
    assert any(map(tiles.fullmatch, gpu)) and not any(map(blocks.fullmatch, gpu))


@pytest.mark.slow
def test_all_steps_that_stay_on_the_host_are_named(tmp_path):
    sim, data = simulator("gp")
    named = r"step cannot be exported: .*check of Cholesky.*check of Solve.*\(4 times\).*before the call"
    with pytest.raises(Untraceable, match=named):
        sim.export(tmp_path / "step.optdb", [data])
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_loop_that_ends_by_a_condition_is_refused(tmp_path):
    x = theano.tensor.fvector("x")
    values, _ = theano.scan(
        lambda before: (before * 2, theano.scan_module.until(before.sum() > 100)), outputs_info=[x], n_steps=20
    )
    sim = optdb.SimulatorOCL(theano.function([x], values[-1]), device="dev0")
    with pytest.raises(Untraceable, match="has a stop condition"):
        sim.export(tmp_path / "step.optdb", [[np.ones(3, "float32")]])
