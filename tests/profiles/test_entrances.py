"""All methods to enable optdb start equally many compilers."""

from __future__ import annotations

import shutil

import pytest

from profiles import entrances


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="counts compilers")
def test_all_ways_start_equally_many_compilers_and_none_with_full_caches():
    flags = "floatX=float32,gcc.cxxflags=-O0"
    costs = {entrance.name: entrances.measure(entrance, "mlp", flags) for entrance in entrances.ENTRANCES}
    cold = {name: cost["cold"].compilers for name, cost in costs.items()}
    assert set(cold.values()) == {cold["with optdb.enable()"]}
    assert cold["with optdb.enable()"] > 0
    assert {cost["warm"].compilers for cost in costs.values()} == {0}


def test_a_program_that_fails_is_not_measured(monkeypatch):
    broken = entrances.Entrance("broken", enter="raise SystemExit(3)")
    with pytest.raises(entrances.subprocess.CalledProcessError):
        entrances.measure(broken, "mlp", "cxx=")
