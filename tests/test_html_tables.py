"""In notebooks, ``_repr_html_`` shows the same cells as the printed tables, escaped."""

from __future__ import annotations

from collections import Counter
from html.parser import HTMLParser

import numpy as np
import pytest
import theano
import theano.tensor as tt
from rich.console import Group
from rich.table import Table
from rich.text import Text

import optdb
from optdb.cache.stats import Stats
from optdb.html_tables import html_of
from optdb.lifters.report import LiftReport, NodeReport
from optdb.lifters.text_tables import new_table, text_of
from optdb.opencl.simulator import SimulatorOCL
from optdb.runtime.devices import DeviceInfo


class Cells(HTMLParser):
    """A parser that collects the texts of captions and cells, and the names of all elements."""

    def __init__(self, text):
        super().__init__()
        self.texts, self.tags, self._open = [], [], None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag in ("caption", "th", "td", "p"):
            self._open = []

    def handle_data(self, data):
        if self._open is not None:
            self._open.append(data)

    def handle_endtag(self, tag):
        if tag in ("caption", "th", "td", "p"):
            self.texts.append("".join(self._open))
            self._open = None


#: The only elements that tables may contain.
ALLOWED = {"table", "caption", "thead", "tbody", "tr", "th", "td", "p"}


def assert_shows(shown):
    """Assert that an object's HTML has the cells that `rich` prints, in the same order; return the cells."""
    parsed = Cells(shown._repr_html_())
    assert set(parsed.tags) <= ALLOWED
    cells = [text for text in parsed.texts if text]
    assert cells
    printed = text_of(shown, width=4000)
    position = 0
    for cell in cells:
        first, *others = cell.splitlines()
        position = printed.index(first.strip(), position)
        assert all(line.strip() in printed[position:] for line in others)
    return cells


def test_cells_are_escaped_and_headers_and_titles_are_there():
    table = new_table("a <title> & [more]", ("op",), ("nodes",), [("Elemwise<b>[red]&", 3), ("</td><script>", 1_000)])
    parsed = Cells(html_of(table))
    assert parsed.texts == ["a <title> & [more]", "op", "nodes", "Elemwise<b>[red]&", "3", "</td><script>", "1000"]
    assert set(parsed.tags) <= ALLOWED


def test_markup_is_that_of_the_printed_table():
    table = Table("state", show_header=False)
    table.add_row("[green]works[/]")
    table.add_row(Text("[green]"))
    assert Cells(html_of(Group(table, Text("a < b")))).texts == ["works", "[green]", "a < b"]


def test_numbers_are_not_broken_over_lines():
    text = html_of(new_table("t", ("op",), ("bytes",), [("x", "1,000")]))
    assert '<td style="text-align: right; white-space: nowrap">1,000</td>' in text
    assert '<td style="text-align: left; overflow-wrap: anywhere">x</td>' in text


def test_cache_stats():
    stats = Stats(True, 7, 5, 3, {("a.<B>", "no [props]"): 2}, {("a.C", ("x", "y")): 1})
    cells = assert_shows(stats)
    assert "a.<B>" in cells and "not shared: no [props]" in cells and "7" in cells
    assert "no [props]" in str(stats)
    assert repr(stats) == str(stats).rstrip()
    assert optdb.cache.stats()._repr_html_()


def test_lift_reports():
    report = LiftReport("dev", [NodeReport("op<1>", None, "lift_it", None), NodeReport("op2", None, None, "not [yet]")])
    cells = assert_shows(report)
    assert cells[0] == "lifted to dev" and {"op<1>", "lift_it", "not [yet]"} <= set(cells)
    assert "not [yet]" in str(report)
    assert repr(report) == str(report).rstrip()
    assert LiftReport("dev")._repr_html_() == ""
    assert repr(LiftReport("dev")) == "<LiftReport without rows>"


@pytest.fixture(scope="module")
def simulator():
    x = tt.fmatrix("x")
    w = theano.shared(np.ones((3, 2), "float32"), "w<1>")
    f = theano.function([x], tt.tanh(x.dot(w)).sum(), updates=[(w, w * np.float32(0.5))], name="train <b>")
    sim = SimulatorOCL(f)
    sim.add_method("value", theano.function([], w.sum()))
    return sim


@pytest.mark.parametrize("report", ["memory", "check", "profile", "report"])
def test_reports_of_a_simulator(simulator, report):
    shown = getattr(simulator, report)(np.ones((4, 3), "float32"))
    assert_shows(shown)
    assert repr(shown) == str(shown).rstrip()


def test_simulators():
    x = tt.fmatrix("x")
    w = theano.shared(np.ones((3, 2), "float32"), "w<1>")
    f = theano.function([x], tt.tanh(x.dot(w)).sum(), updates=[(w, w * np.float32(0.5))], name="train <b>")
    with SimulatorOCL(f) as sim:
        sim.add_method("render", theano.function([], w.sum()))
        cells = assert_shows(sim)
        assert {"train <b>", "__call__", "render", "w<1>", "(3, 2)", "24"} <= set(cells)
    assert Cells(sim._repr_html_()).texts == [repr(sim)]


def test_explanations():
    x = tt.dvector("x")
    explanation = optdb.explain(theano.function([x], x + 1, name="<f>"))
    assert assert_shows(explanation)[0] == "<f>: where its ops run"
    assert repr(explanation) == str(explanation).rstrip()


def test_devices_are_a_list():
    devices = optdb.devices()
    assert isinstance(devices, list)
    assert devices == list(devices)
    assert all(isinstance(device, DeviceInfo) for device in devices)
    assert repr(devices) == repr(list(devices))
    cells = assert_shows(devices)
    assert devices[0].name in "\n".join(cells) and cells[0] == "optdb: OpenCL devices"
    counts = Counter(cells)
    assert counts["works"] == sum(device.works for device in devices)
