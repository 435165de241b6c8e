"""Invented measurements get the right verdict."""

import json
import math

import pytest

from profiles import files, measure, screen, terminal
from profiles.check import Agreement
from profiles.measure import Measurement
from profiles.report import Comparison, geometric_mean


def measurement(way="stock", seconds=4.0, after=10, inplace=3, failures=()):
    phases = dict.fromkeys(measure.PHASES, 0.0) | {"canonicalize": seconds / 2, "fusion": seconds / 2}
    return Measurement(way, seconds, phases, 20, after, inplace, 0, list(failures), graph=None)


def comparison(agreement=None, **ours):
    runs = {"stock": [measurement()], "optdb": [measurement("optdb", **{"seconds": 2.0, **ours})]}
    return Comparison("made up", runs, agreement)


def test_as_good_as_stock():
    assert not comparison(Agreement(True, 1e-15, "output 0")).faults()


def test_better_than_stock():
    assert not comparison(after=9, inplace=4).faults()


@pytest.mark.parametrize(
    ("ours", "fault"),
    [
        ({"after": 11}, "11 apply nodes instead of 10"),
        ({"inplace": 2}, "2 in-place ops instead of 3"),
        ({"failures": ["it broke"]}, "1 errors logged, first: it broke"),
        ({"agreement": Agreement(False, 0.5, "output 1")}, "values disagree by 5.0e-01 in output 1"),
    ],
)
def test_worse_than_stock(ours, fault):
    assert comparison(**ours).faults() == [fault]


def test_ratios():
    found = comparison()
    assert found.ratio == pytest.approx(2.0)
    assert found.rewriting("optdb") == pytest.approx(1.0)
    assert found.rewriting_ratio == pytest.approx(2.0)


def test_median_of_the_runs():
    runs = {"stock": [measurement(seconds=s) for s in (1.0, 9.0, 2.0)], "optdb": [measurement("optdb")]}
    assert Comparison("made up", runs, None).seconds("stock") == 2.0


def test_geometric_mean():
    assert geometric_mean([1.0, 4.0]) == pytest.approx(2.0)
    assert math.isnan(geometric_mean([]))


def test_screen_shows_figures_and_faults(capsys):
    good, bad = comparison(Agreement(True, 0.0, "nowhere")), comparison(after=11)
    terminal.console().print(screen.render([good, bad], "fast_run"))
    shown = capsys.readouterr().out
    for text in ("made up", "10 / 11", "4.00 / 2.00", "2.00x", "identical", "not run", "11 apply nodes instead of 10"):
        assert text in shown


def test_json_holds_every_run(tmp_path):
    path = tmp_path / "new" / "numbers.json"
    terminal.write_json(files.numbers([comparison(Agreement(True, 0.0, "nowhere"))], "fast"), path)
    document = json.loads(path.read_text())
    assert document["baseline"] == "fast"
    assert document["environment"]["theano"]
    [model] = document["models"]
    assert model["ways"]["optdb"]["runs"][0]["phases"]["fusion"] == 1.0
    assert document["geometric_mean"]["whole"] == pytest.approx(2.0)


def test_plot_is_a_picture(tmp_path):
    path = tmp_path / "plot.png"
    files.write_plot([comparison(), comparison()], "fast_run", path)
    assert path.read_bytes().startswith(b"\x89PNG")
