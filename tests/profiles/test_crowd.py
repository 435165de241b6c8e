"""Several processes share an empty compiledir, and some of them are killed."""

from __future__ import annotations

import os
import subprocess
import time

import pytest
from click.testing import CliRunner

from profiles import crowd


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--tiered",)], ids=["C", "tiered"])
def test_a_small_crowd(options):
    result = CliRunner().invoke(crowd.main, ["mlp", "--processes", "2", "--killed", "1", *options])
    assert result.exit_code == 0, result.output
    assert "wrong numbers: none; left over: nothing" in result.output


def test_somebody_has_to_be_left():
    result = CliRunner().invoke(crowd.main, ["mlp", "--processes", "3", "--killed", "3"])
    assert result.exit_code == 2
    assert "killing 3 of 3 processes would leave none" in result.output


def test_differing_numbers_and_leftover_files_are_named(monkeypatch, tmp_path):
    numbers = iter([[[1.0], [1.0]], [[1.0]], [[2.0]], None])
    monkeypatch.setattr(crowd.Crowd, "run", lambda *arguments: next(numbers))
    monkeypatch.setattr(crowd.Crowd, "leftovers", lambda self: [tmp_path / "locks" / "one"])
    monkeypatch.setattr(crowd.Crowd, "programs", lambda self: [])
    result = CliRunner().invoke(crowd.main, ["mlp", "--processes", "2", "--killed", "0"])
    assert result.exit_code == 1
    assert "wrong numbers: mlp; left over: " in result.output
    assert "locks/one" in result.output


def test_leftovers(tmp_path):
    compiledir = tmp_path / "theano" / "compiledir_here"
    for name in ("optdb/locks", "optdb/staging/half", "tmpwhole", "tmphalf"):
        (compiledir / name).mkdir(parents=True)
    (compiledir / "tmpwhole" / "key.pkl").touch()
    left = crowd.Crowd(tmp_path, 1.0).leftovers()
    assert {path.name for path in left} == {"half", "tmphalf"}


def test_compilers_that_are_alive_are_left_over(monkeypatch, tmp_path):
    one = crowd.Crowd(tmp_path, 1.0)
    assert one.programs() == []
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    process = subprocess.Popen(["sleep", "60"], env=env)
    try:
        monkeypatch.setattr(crowd, "SECONDS_FOR_END", 0.2)
        deadline = time.monotonic() + 10
        while not one.programs() and time.monotonic() < deadline:  # it has not started yet
            time.sleep(0.01)
        assert [line.split() for line in crowd._ended(one)] == [["sleep", "60"]]
    finally:
        process.kill()
        process.wait()
    assert crowd._ended(one) == []


def test_who_is_killed_depends_on_the_seed_alone():
    lifetimes = crowd._lifetimes(20, 5, 10.0, seed=1)
    assert lifetimes == crowd._lifetimes(20, 5, 10.0, seed=1) != crowd._lifetimes(20, 5, 10.0, seed=2)
    assert lifetimes.count(None) == 15
    assert all(1 <= one <= 10 for one in lifetimes if one is not None)
