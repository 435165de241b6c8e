"""What is shown of starts of theano.function as a whole."""

import json

from rich.console import Console

from profiles import isolated, whole
from profiles.report import OPTDB, STOCK


def starts(model="mlp"):
    seconds = {STOCK: {"cold": 40.0, "warm": 10.0}, OPTDB: {"cold": 10.0, "warm": 2.0}}
    return [
        whole.Start(model, side, cache, dict.fromkeys(whole.PARTS, total / 5), wall=2 * total, compilers=int(total))
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
    whole.write_json(starts(), tmp_path / "a" / "numbers.json")
    whole.write_plot(starts(), tmp_path / "b" / "plot.png")
    assert json.loads((tmp_path / "a" / "numbers.json").read_text())[0]["total"] == 40.0
    assert (tmp_path / "b" / "plot.png").stat().st_size > 1000


def test_each_side_has_caches_of_its_own_that_are_full_the_second_time(monkeypatch):
    calls = []

    def call(function, name, began, flags, env, timeout):
        folder = flags.partition("base_compiledir=")[2]
        calls.append((flags.partition(",base_compiledir")[0], folder, env["XDG_CACHE_HOME"]))
        return dict.fromkeys(whole.PARTS, 1.0), 2.0

    monkeypatch.setattr(isolated, "call", call)
    measured = whole.measure("mlp")
    assert [(start.side, start.cache) for start in measured] == [
        (side, cache) for side in (STOCK, OPTDB) for cache in ("cold", "warm")
    ]
    assert calls[0] == calls[1]
    assert calls[2] == calls[3]
    assert len({folder for _, folder, _ in calls}) == 2
    assert "optdb.clinker=False" in calls[0][0]
    assert "optdb.topo=True" in calls[2][0]
