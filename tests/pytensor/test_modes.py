"""PyMC accepts the modes of a device."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pymc as pm
import pytest

import optdb.pytensor
from optdb.pytensor import IgnoredModeWarning


@pytest.mark.parametrize("mode", ["OPENCL", "OPENCL_AUTO", optdb.pytensor.opencl_mode().excluding("canonicalize")])
def test_a_mode_tells_where_pymc_drops_it(mode, monkeypatch):
    def stop(*args, **options):
        raise InterruptedError

    monkeypatch.setitem(sys.modules, "nutpie", SimpleNamespace(__version__="9.9.9", compile_pymc_model=stop))
    monkeypatch.setattr(pm.sampling.mcmc, "NUTPIE_INSTALLED", True)
    with pm.Model(), pytest.warns(IgnoredModeWarning, match="compile_nutpie") as told, pytest.raises(InterruptedError):
        pm.Normal("x")
        pm.sample(nuts_sampler="nutpie", compile_kwargs={"mode": mode}, progressbar=False)
    assert [warning.filename for warning in told if warning.category is IgnoredModeWarning] == [__file__]


@pytest.mark.filterwarnings("error::optdb.pytensor.IgnoredModeWarning")
def test_a_mode_is_silent_where_it_is_used():
    with pm.Model() as model:
        pm.Normal("x")
    assert model.compile_logp(mode="OPENCL")({"x": 0.0}) == pytest.approx(-0.9189385332)
    assert isinstance(optdb.pytensor.OPENCL.clone().linker, optdb.pytensor.OpenCLLinker)
