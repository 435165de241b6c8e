"""Tests of the demo: its measurements, comparisons, output and pictures."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from profiles import demo, isolated, starts
from profiles.report import OPTDB, STOCK

LEG = demo.Leg("mlp", "floatX=float64,cxx=", ("cold", "warm"), "without a C compiler")


def parts(seconds=1.0):
    """Return CPU times and wall times for all parts of a process's start; all times are equal."""
    return dict.fromkeys(starts.CPU_PARTS, seconds), dict.fromkeys(starts.WALL_PARTS, seconds)


def started(side=STOCK, cache="cold", seconds=1.0, values=((1.0,), (2.0,)), leg=LEG):
    return leg, starts.Start(leg.model, side, cache, *parts(seconds), values=[list(call) for call in values])


def test_rows_pair_what_belongs_together():
    measured = [started(seconds=5), started(cache="warm"), started(OPTDB), started(OPTDB, "warm")]
    rows = demo.rows_of(measured)
    assert [(row.stock.cache, row.ours.cache) for row in rows] == [("cold", "cold"), ("warm", "warm")]
    assert rows[0].ratio == 5.0
    assert all(row.agrees for row in rows)


def test_the_table_compares_the_bars_of_the_plot():
    (leg, stock), (_, ours) = started(), started(OPTDB)
    stock.cpu.update(link=11.0, calls=2.0)
    ours.cpu.update(calls=4.0)
    [row] = demo.rows_of([(leg, stock), (leg, ours)])
    assert (stock.cpu_total, ours.cpu_total, row.ratio) == (17.0, 9.0, 17 / 9)


def test_what_has_no_other_side_has_no_row():
    assert demo.rows_of([started(demo.DEVICE), started(cache="warm")]) == []


@pytest.mark.parametrize(
    ("one", "other", "wanted"),
    [
        ([[1.0], [1.0]], [[1.0], [1.0]], 0.0),
        ([[1.0], [2.0]], [[1.0], [1.0]], 0.5),
        ([[[4.0, 1.0]]], [[[4.0, 2.0]]], 0.25),
        ([[1.0, 1.0]], [[1.0, [1.0]]], float("inf")),
        ([[float("nan")]], [[1.0]], float("inf")),
    ],
)
def test_values_of_all_calls_are_compared(one, other, wanted):
    [row] = demo.rows_of([started(values=one), started(OPTDB, values=other)])
    assert row.difference == wanted


@pytest.mark.parametrize(
    ("side", "factor", "agrees"), [(OPTDB, 1e-6, False), (demo.DEVICE, 1e-6, True), (demo.DEVICE, 0.1, False)]
)
def test_values_agree_within_a_sides_rounding(side, factor, agrees):
    [row] = demo.rows_of([started(), started(side, values=((1.0 + factor,), (2.0,)))])
    assert row.agrees == agrees


def test_bars_to_compare_are_neighbours():
    order = ((STOCK, "cold"), (STOCK, "warm"), (OPTDB, "cold"), (OPTDB, "warm"))
    measured = [started(side, cache, leg=demo.LEGS[0]) for side, cache in order]
    measured.append(started(demo.DEVICE, "warm", leg=demo.DEVICE_LEG))
    labels = [demo._label(leg, start) for leg, start in demo._side_by_side(measured)]
    assert labels == [
        "mlp with a C compiler, empty caches: stock",
        "mlp with a C compiler, empty caches: optdb",
        "mlp with a C compiler, full caches: stock",
        "mlp with a C compiler, full caches: optdb",
        "mlp on the OpenCL device, full caches",
    ]


@pytest.mark.parametrize("device", [None, "Some Device"])
@pytest.mark.parametrize("compiler", [True, False])
def test_what_it_prints(monkeypatch, tmp_path, device, compiler):
    calls = []

    def call(function, name, began, count, flags, env, timeout):
        calls.append(flags)
        return *parts(1.0 if "optdb.topo=True" in flags else 5.0), [[1.0]] * count

    monkeypatch.setattr(isolated, "call", call)
    monkeypatch.setattr(demo, "_device", lambda: device)
    monkeypatch.setattr(demo.shutil, "which", lambda program: f"/usr/bin/{program}" if compiler else None)
    path = tmp_path / "new" / "demo.png"
    result = CliRunner().invoke(demo.main, ["--plot", str(path)])
    assert result.exit_code == 0, result.output
    for leg in demo.LEGS:
        assert leg.model in result.output
    assert "5.0x" in result.output
    assert ("Some Device" in result.output) == (device is not None)
    assert ("there is no OpenCL device" in result.output) == (device is None)
    assert ("with a C compiler, is skipped" in result.output) == (not compiler)
    assert sum("optdb.device" in flags for flags in calls) == (len(demo.DEVICE_LEG.caches) if device else 0)
    assert path.stat().st_size > 1000


def test_a_difference_fails(monkeypatch, tmp_path):
    def call(function, name, began, count, flags, env, timeout):
        return *parts(), [[1.0 if "optdb.topo=True" in flags else 2.0]]

    monkeypatch.setattr(isolated, "call", call)
    monkeypatch.setattr(demo, "_device", lambda: None)
    result = CliRunner().invoke(demo.main, ["--plot", str(tmp_path / "demo.png")])
    assert result.exit_code == 1
    assert "too much" in result.output


def test_a_process_that_fails_ends_the_demo_in_words(monkeypatch):
    def call(*arguments, **options):
        raise isolated.Failed("killed by SIGKILL")

    monkeypatch.setattr(isolated, "call", call)
    result = CliRunner().invoke(demo.main, [])
    assert result.exit_code == 1
    assert "Error: a process failed:\nstock, cold caches: killed by SIGKILL" in result.output
