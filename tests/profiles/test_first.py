"""The command measures and shows the time until first results."""

import json

import pytest
from click.testing import CliRunner
from rich.console import Console

from profiles import compare, first, isolated, terminal
from profiles.report import OPTDB, STOCK


def measured(model="mlp"):
    return [
        first.First(model, STOCK, 40.0, 40.0, 0.001, 40.0, 0.001),
        first.First(model, OPTDB, 10.0, 10.0, 0.001, 10.0, 0.001),
        first.First(model, first.TIERED, 0.4, 0.5, 0.02, 11.0, 0.001),
    ]


def shown(given):
    console = Console(width=200)
    with console.capture() as capture:
        console.print(first.render(given))
    return capture.get()


def test_ratios_are_shown():
    text = shown(measured())
    for ratio in ("80.0x", "1.10x", "20.0x"):
        assert text.count(ratio) == 2


def test_models_that_lack_a_side_of_optdb_are_left_out():
    assert "vae" not in shown(measured() + measured("vae")[:2])


def test_without_stock_nothing_is_sooner():
    text = shown(measured()[1:])
    assert "sooner" not in text.splitlines()[2]
    assert "80.0x" not in text
    assert text.count("20.0x") == 2


def test_each_side_starts_with_empty_caches(monkeypatch, tmp_path):
    calls = []

    def call(function, name, is_tiered, sizes, flags, env, timeout):
        assert sizes == {"width": 8}
        calls.append((is_tiered, flags, env["XDG_CACHE_HOME"]))
        return [1.0, 2.0, 3.0, 4.0, 5.0]

    monkeypatch.setattr(isolated, "call", call)
    firsts = first.measure("mlp", sizes={"width": 8})
    assert [item.side for item in firsts] == [STOCK, OPTDB, first.TIERED]
    assert [is_tiered for is_tiered, *_ in calls] == [False, False, True]
    assert len({folder for *_, folder in calls}) == 3
    assert "optdb.tiered=True" in calls[2][1]
    terminal.write_json(firsts, tmp_path / "a" / "numbers.json")
    assert json.loads((tmp_path / "a" / "numbers.json").read_text())[2]["tenth"] == 3.0


def test_models_without_their_library_are_named(monkeypatch):
    monkeypatch.setattr(first, "measure", lambda name, tell, sizes, sides: measured(name))
    monkeypatch.setattr(first, "available", lambda names: (["mlp"], ["keras_lstm"]))
    result = CliRunner().invoke(compare.main, ["--whole", "--first"])
    assert result.exit_code == 0, result.output
    assert "skipped: keras_lstm" in result.output


def test_sizes_that_people_train_and_sides(monkeypatch, tmp_path):
    calls = []

    def measure(name, tell, sizes, sides):
        calls.append((name, sizes, sides))
        return measured(name)[1:]

    monkeypatch.setattr(first, "measure", measure)
    numbers = tmp_path / "numbers.json"
    command = ["--whole", "--first", "--trained", "--no-stock", "--json", str(numbers)]
    result = CliRunner().invoke(compare.main, command)
    assert result.exit_code == 0, result.output
    assert calls == [(name, sizes, [OPTDB, first.TIERED]) for name, sizes in first.TRAINED_SIZES.items()]
    assert len(json.loads(numbers.read_text())) == 2 * len(calls)


@pytest.mark.parametrize("arguments", [["--first"], ["--whole", "--first", "--plot", "a.png"]])
def test_options_that_do_not_go_together(arguments):
    assert CliRunner().invoke(compare.main, arguments).exit_code == 2
