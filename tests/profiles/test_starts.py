"""The parts of a process's start are timed, with separate caches."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from profiles import isolated, starts

SIDES = {"one": "optdb.topo=True", "other": "optdb.topo=False"}


def answer(calls):
    return dict.fromkeys(starts.CPU_PARTS, 1.0), dict.fromkeys(starts.WALL_PARTS, 2.0), [[1.0]] * calls


@pytest.mark.slow
def test_a_start_measures_all_parts():
    [start] = starts.measure("mlp", {"here": "optdb.topo=True"}, "cxx=,floatX=float64", ("cold",), calls=2)
    assert tuple(start.cpu) == starts.CPU_PARTS
    assert tuple(start.wall) == starts.WALL_PARTS
    assert all(seconds >= 0 for seconds in start.cpu.values())
    assert all(seconds > 0 for seconds in start.wall.values())
    # The processes compile nothing; they only query the computer and the compiler.
    assert start.cpu["compilers"] < start.cpu["import"]
    first, second = start.values
    assert first != second


def test_each_side_has_caches_of_its_own_that_are_full_the_second_time(monkeypatch):
    folders, reported = [], []

    def call(function, name, began, calls, flags, env, timeout):
        folders.append((flags.partition("base_compiledir=")[2], env["POCL_CACHE_DIR"], env["XDG_CACHE_HOME"]))
        assert flags.startswith("floatX=float32,optdb.topo=")
        return answer(calls)

    monkeypatch.setattr(isolated, "call", call)
    measured = starts.measure("mlp", SIDES, starting=lambda *what: reported.append(what), started=reported.append)
    assert folders[0] == folders[1]
    assert folders[2] == folders[3]
    assert not set(folders[0]) & set(folders[2])
    assert reported == [item for start in measured for item in ((start.side, start.cache), start)]


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
def test_calls_of_the_compiler_are_counted(monkeypatch):
    def call(function, name, began, calls, flags, env, timeout):
        for _ in range(3):
            subprocess.run(["g++", "--version"], env={**os.environ, **env}, check=True, capture_output=True)
        return answer(calls)

    monkeypatch.setattr(isolated, "call", call)
    assert [start.compilers for start in starts.measure("mlp", SIDES)] == [3, 3, 3, 3]


def test_without_a_compiler_there_is_nothing_to_count(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda program: None)
    paths = []

    def call(function, name, began, calls, flags, env, timeout):
        paths.append(env["PATH"])
        return answer(calls)

    monkeypatch.setattr(isolated, "call", call)
    starts.measure("mlp", SIDES, caches=("cold",))
    assert paths == [os.environ["PATH"]] * 2


def test_the_folders_are_removed(monkeypatch):
    folders = []

    def call(function, name, began, calls, flags, env, timeout):
        folders.append(Path(env["XDG_CACHE_HOME"]).parent)
        raise isolated.Failed("killed")

    monkeypatch.setattr(isolated, "call", call)
    with pytest.raises(isolated.Failed, match="one, cold caches: killed"):
        starts.measure("mlp", SIDES)
    assert not folders[0].exists()
