"""The time of the whole start of theano.function is shown."""

import json

from rich.console import Console

from profiles import isolated, terminal, whole
from profiles import starts as starting
from profiles.report import OPTDB, STOCK


def starts(model="mlp"):
    seconds = {STOCK: {"cold": 40.0, "warm": 10.0}, OPTDB: {"cold": 10.0, "warm": 2.0}}
    return [
        starting.Start(
            *(model, side, cache, dict.fromkeys(whole.PARTS, total / 5)),
            wall=dict.fromkeys(starting.WALL_PARTS, total / 2),
            compilers=int(total),
        )
        for side, caches in seconds.items()
        for cache, total in caches.items()
    ]


def shown(given):
    console = Console(width=200)
    with console.capture() as capture:
        console.print(whole.render(given))
    return capture.get()


def test_ratios_and_compiler_runs_are_shown():
    text = shown(starts())
    assert "4.0x" in text
    assert "5.0x" in text
    assert "40 / 10" in text


def test_models_that_lack_a_side_are_left_out():
    assert "vae" not in shown(starts() + starts("vae")[:2])


def test_files(tmp_path):
    terminal.write_json(whole.numbers(starts()), tmp_path / "a" / "numbers.json")
    whole.write_plot(starts(), tmp_path / "b" / "plot.png")
    assert json.loads((tmp_path / "a" / "numbers.json").read_text())[0]["cpu_total"] == 40.0
    assert (tmp_path / "b" / "plot.png").stat().st_size > 1000


def test_both_sides_start_with_empty_and_full_caches(monkeypatch):
    calls, steps = [], []

    def call(function, name, began, count, flags, env, timeout):
        calls.append(flags.partition(",base_compiledir")[0])
        return dict.fromkeys(starting.CPU_PARTS, 1.0), dict.fromkeys(starting.WALL_PARTS, 2.0), []

    monkeypatch.setattr(isolated, "call", call)
    measured = whole.measure("mlp", tell=steps.append)
    assert [(start.side, start.cache) for start in measured] == [
        (side, cache) for side in (STOCK, OPTDB) for cache in ("cold", "warm")
    ]
    assert steps == [f"{start.side}, {start.cache}" for start in measured]
    assert "optdb.clinker=False" in calls[0]
    assert "optdb.topo=True" in calls[2]
