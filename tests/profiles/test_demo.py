"""The demo: what it measures, compares, prints and draws."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from profiles import demo, isolated

LEG = demo.Leg("mlp", "floatX=float64,cxx=", ("cold", "warm"), "without a C compiler")


def started(side="stock", cache="cold", seconds=(1.0, 0.5, 3.0, 2.0, 0.1), values=((1.0,), (2.0,)), leg=LEG):
    return demo.Start(leg, side, cache, dict(zip(demo.PARTS, seconds)), [[list(call)] for call in values])


@pytest.mark.parametrize(
    ("one", "other", "wanted"),
    [
        ([[1.0]], [[1.0]], 0.0),
        ([[2.0]], [[1.0]], 0.5),
        ([[[4.0, 1.0]]], [[[4.0, 2.0]]], 0.25),
        ([[[]]], [[[]]], 0.0),
        ([[0.0]], [[0.0]], 0.0),
        ([[[1.0]]], [[[1.0, 1.0]]], float("inf")),
        ([[float("nan")]], [[1.0]], float("inf")),
        ([[float("nan")]], [[float("nan")]], 0.0),
    ],
)
def test_difference(one, other, wanted):
    assert demo.difference(one, other) == wanted


def test_rows_pair_what_belongs_together():
    starts = [started(), started(cache="warm"), started("optdb", seconds=(1, 1, 1, 0, 0)), started("optdb", "warm")]
    rows = demo.rows_of(starts)
    assert [(row.stock.cache, row.ours.cache) for row in rows] == [("cold", "cold"), ("warm", "warm")]
    assert rows[0].ratio == 5.0
    assert all(row.agrees for row in rows)


@pytest.mark.parametrize(
    ("side", "factor", "agrees"), [("optdb", 1e-6, False), ("device", 1e-6, True), ("device", 0.1, False)]
)
def test_values_agree_within_a_sides_rounding(side, factor, agrees):
    [row] = demo.rows_of([started(), started(side, values=((1.0 + factor,), (2.0,)))])
    assert row.agrees == agrees


def test_a_start_measures_all_parts_and_calls_twice():
    seconds, values = isolated.call("profiles.demo:start", "mlp", flags="cxx=,floatX=float64,optdb.topo=True")
    assert len(seconds) == len(demo.PARTS)
    assert all(second >= 0 for second in seconds)
    assert seconds[demo.PARTS.index("compilers")] < seconds[demo.PARTS.index("optimize and link")]
    first, second = values
    assert first != second


@pytest.mark.parametrize("device", [None, "Some Device"])
def test_what_it_prints(monkeypatch, tmp_path, device):
    calls = []

    def call(function, name, flags, env):
        calls.append(flags)
        return [1.0, 0.5, 1.0 if "optdb.topo=True" in flags else 5.0, 0.0, 0.1], [[[1.0]], [[2.0]]]

    monkeypatch.setattr(isolated, "call", call)
    monkeypatch.setattr(demo, "_device", lambda: device)
    path = tmp_path / "new" / "demo.png"
    result = CliRunner().invoke(demo.main, ["--plot", str(path)])
    assert result.exit_code == 0, result.output
    assert "this takes two to three minutes" in result.output.splitlines()[0]
    for leg in demo.LEGS:
        assert leg.model in result.output
    assert "5.0x" in result.output
    assert ("Some Device" in result.output) == (device is not None)
    assert ("there is no OpenCL device" in result.output) == (device is None)
    assert sum("optdb.device" in flags for flags in calls) == (len(demo.DEVICE_LEG.starts) if device else 0)
    assert path.stat().st_size > 1000


def test_a_difference_fails(monkeypatch, tmp_path):
    def call(function, name, flags, env):
        return [0.0, 0.0, 1.0, 0.0, 0.0], [[[1.0 if "optdb.topo=True" in flags else 2.0]]]

    monkeypatch.setattr(isolated, "call", call)
    monkeypatch.setattr(demo, "_device", lambda: None)
    result = CliRunner().invoke(demo.main, ["--plot", str(tmp_path / "demo.png")])
    assert result.exit_code == 1
    assert "too much" in result.output


def test_a_process_that_fails_ends_the_demo_in_words(monkeypatch):
    def call(function, name, flags, env):
        raise isolated.Failed("killed by SIGKILL")

    monkeypatch.setattr(isolated, "call", call)
    result = CliRunner().invoke(demo.main, [])
    assert result.exit_code == 1
    assert "Error: a process failed:\nkilled by SIGKILL" in result.output
