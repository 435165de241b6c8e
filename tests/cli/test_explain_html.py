"""``python -m optdb explain --html``: what is observed, how graphs are drawn, and the page in a browser."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given
from hypothesis import strategies as st
from theano.compile.function_module import FunctionMaker

from optdb.cli import html_report
from optdb.cli.graph_layout import lay_out
from optdb.cli.html_report import document_of, write_html
from optdb.host.observing import observe, snapshot
from optdb.topo import collect, enable
from tests.processes import python

SCRIPT = """
import numpy as np, theano, theano.tensor as tt
x = tt.fmatrix("</script><script>alert(1)</script>")
w = theano.shared(np.ones((3, 2), "float32"), "w")
loss = tt.tanh(x.dot(w)).sum() * 1
train = theano.function([x], loss, updates=[(w, w - np.float32(0.1) * tt.grad(loss, w))], name="train <b>")
for _ in range(4):
    train(np.ones((2, 3), "float32"))
states, _ = theano.scan(lambda a, s: tt.tanh(a + s), sequences=x.sum(1), outputs_info=[tt.zeros((), "float32")])
loop = theano.function([x], states, name="loop")
print(loop(np.ones((2, 3), "float32")).shape)
"""


# Layout

graphs = st.integers(0, 30).flatmap(
    lambda n: st.tuples(*[st.sets(st.integers(0, max(i - 1, 0)), max_size=3 if i else 0).map(sorted) for i in range(n)])
)


@given(graphs)
def test_users_stand_below_what_they_use_and_nodes_apart(inputs):
    places = lay_out(inputs)
    assert len(places) == len(inputs)
    for node, used in enumerate(inputs):
        assert all(places[node][1] > places[other][1] for other in used)
    for (x, layer), (other_x, other_layer) in zip(sorted(places), sorted(places)[1:]):
        assert layer != other_layer or abs(x - other_x) >= 1
    assert min((layer for _, layer in places), default=0) >= 0


def test_lines_do_not_cross_where_they_need_not():
    # Two chains side by side, whose nodes come in turns.
    places = lay_out([[], [], [1], [0], [3], [2]])
    assert (places[4][0] < places[5][0]) == (places[0][0] < places[1][0])


# Observation


def compiled(mode="FAST_RUN"):
    x = tt.dvector("x")
    s = theano.shared(np.zeros(3), "s")
    return theano.function([x], (tt.neg(tt.neg(x)) + s).sum() * 1, updates=[(s, s + x)], mode=mode, name="f")


def test_what_is_observed():
    seen = []
    with enable(), observe(seen.append, around=collect):
        f = compiled()
    [one] = seen
    assert one.function is f
    assert one.name == "f"
    assert "Elemwise{neg,no_inplace}" in {node.op for node in one.before.nodes}
    assert len(one.before.outputs) == 2
    after = snapshot(f.maker.fgraph.outputs)
    assert after.node_count == len(f.maker.fgraph.apply_nodes) < one.before.node_count
    assert not any("neg" in node.op for node in after.nodes)
    assert "canonicalize" in dict(one.phases())
    assert any(rule.applications for run in one.around for rule in run.rules)
    assert any("test_explain_html.py" in node.line for node in one.before.nodes)
    for _ in range(3):
        f(np.ones(3))
    assert one.profile.fct_callcount == 3
    assert {calls for _, calls in one.node_times().values()} == {3}
    assert set(one.node_times()) <= set(f.maker.fgraph.apply_nodes)


def test_observation_changes_nothing_and_ends():
    before = FunctionMaker.__init__, FunctionMaker.create
    seen = []
    with observe(seen.append):
        f, g = compiled(), None
    g = compiled()
    assert (FunctionMaker.__init__, FunctionMaker.create) == before
    assert len(seen) == 1
    assert [type(node.op) for node in f.maker.fgraph.toposort()] == [
        type(node.op) for node in g.maker.fgraph.toposort()
    ]
    assert f([1.0, 2.0, 3.0]) == g([1.0, 2.0, 3.0])


def test_a_function_that_fails_to_compile_is_counted():
    seen = []
    x, y = tt.dvector(), tt.dvector()
    with observe(seen.append), pytest.raises(theano.gof.fg.MissingInputError):
        theano.function([x], x + y)
    assert document_of(seen, "title")["failed"] == 1
    assert document_of(seen, "title")["functions"] == []


def test_the_users_own_profile_stays():
    seen, stats = [], theano.compile.profiling.ProfileStats(atexit_print=False)
    x = tt.dvector()
    with observe(seen.append):
        f = theano.function([x], x + 1, profile=stats)
    f([1.0])
    assert stats.fct_callcount == 1
    assert seen == []


def test_snapshots():
    x, y = tt.dscalar("x"), tt.dscalar("y")
    taken = snapshot([x * y + 1, x])
    assert [node.op for node in taken.nodes if node.is_input] == ["x", "y"]
    assert taken.node_count == 2
    assert taken.nodes[taken.outputs[0]].inputs == (2,)
    assert taken.outputs[1] == 0
    assert snapshot([]).nodes == ()


# The page


def data_of(path):
    """Return what a page shows."""
    [text] = re.findall(r"^const DATA = (.*);$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return json.loads(text)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page about a script that trains and loops, on the device."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "script.py").write_text(SCRIPT)
    arguments = ("-m", "optdb", "explain", "--html", "report.html", "script.py")
    done = python(*arguments, cwd=folder, flags="cxx=,optdb.device=opencl,floatX=float32")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "(2,)\n"
    assert f"the page is {folder / 'report.html'}" in done.stderr
    return folder / "report.html"


def test_the_page_has_it_all(page):
    data = data_of(page)
    train = next(made for made in data["functions"] if made["name"] == "train <b>")
    assert train["calls"] == 4
    assert train["before"]["count"] > 5
    assert any("opencl" in place for place in train["places"])
    assert any(node["kind"].startswith("opencl") for node in train["after"]["nodes"])
    assert train["lifted"][0]["lifted"]
    assert any(rule["applied"] for rule in train["rewriters"])
    assert sum(seconds for _, seconds in train["compile"]) > 0
    assert any(made["name"] == "loop" for made in data["functions"])


def test_the_page_needs_no_network_and_cannot_be_broken_by_names(page):
    text = page.read_text(encoding="utf-8")
    assert set(re.findall(r"https?://[^\s\"']+", text)) == {"http://www.w3.org/2000/svg"}
    assert "alert(1)</script>" not in text
    assert text.count("</script>") == 1
    assert 'src="' not in text


def test_a_function_of_the_mode_opencl_shows_what_the_device_computes(tmp_path):
    seen = []
    with observe(seen.append):
        x = tt.fvector("x")
        f = theano.function([x], tt.exp(x) + 1, mode="OPENCL", name="f")
    f(np.ones(3, "float32"))
    write_html(seen, tmp_path / "page.html", "title")
    [made] = [made for made in data_of(tmp_path / "page.html")["functions"] if made["name"] == "f"]
    assert any(node["op"].startswith("OpenCLElemwise") for node in made["after"]["nodes"])
    assert not any(node["op"].startswith("OpenCL") for node in made["before"]["nodes"])
    assert made["lifted"][0]["lifted"]


def test_large_graphs_are_counted_and_not_drawn(monkeypatch, tmp_path):
    monkeypatch.setattr(html_report, "MAX_DRAWN_NODES", 3)
    seen = []
    with observe(seen.append):
        compiled()
    write_html(seen, tmp_path / "new" / "page.html", "title")
    [made] = data_of(tmp_path / "new" / "page.html")["functions"]
    assert made["before"]["nodes"] is None
    assert made["before"]["count"] > 3
    assert made["rewriters"] == []


def test_a_script_that_fails_leaves_a_page(tmp_path):
    (tmp_path / "script.py").write_text("import theano\nf = theano.function([], theano.tensor.constant(1))\n1 / 0\n")
    done = python("-m", "optdb", "explain", "--html", "r.html", "script.py", cwd=tmp_path, flags="cxx=")
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
    assert len(data_of(tmp_path / "r.html")["functions"]) == 1


CLICKS = """<script>
const failures = [];
window.onerror = message => { failures.push(message); };
const found = {};
document.querySelectorAll("#functions button").forEach(button => {
  button.click();
  for (const which of ["before", "after"]) {
    [...document.querySelectorAll("main button")].find(b => b.textContent.startsWith(which)).click();
    const svg = document.querySelector("svg"), start = svg.getAttribute("viewBox");
    document.querySelector("[aria-label='zoom in']").click();
    const zoomed = svg.getAttribute("viewBox");
    const size = box => Number(box.split(" ")[2]);
    if (!(size(zoomed) < size(start))) failures.push("zoom");
    svg.dispatchEvent(new WheelEvent("wheel", { deltaY: 1, clientX: 5, clientY: 5, cancelable: true }));
    if (svg.getAttribute("viewBox") === zoomed) failures.push("wheel");
    [...document.querySelectorAll("main button")].find(b => b.textContent === "fit").click();
    if (svg.getAttribute("viewBox") !== start) failures.push("fit");
    const search = document.querySelector("input[type=search]");
    search.value = "e"; search.dispatchEvent(new Event("input"));
    document.querySelectorAll("g.node").forEach(node => node.dispatchEvent(new MouseEvent("click")));
    found[button.textContent + " " + which] = document.querySelectorAll("g.node").length;
  }
  document.querySelectorAll("th").forEach(head => head.click());
});
const pre = document.createElement("pre");
pre.id = "result";
pre.textContent = JSON.stringify({ failures, found, details: document.querySelector(".details").textContent });
document.body.append(pre);
</script>"""


@pytest.mark.slow
def test_a_browser_shows_it(page, tmp_path):
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no browser: apt-get install chromium (Debian)")
    clicked = tmp_path / "clicked.html"
    clicked.write_text(page.read_text(encoding="utf-8").replace("</body>", CLICKS + "</body>"), encoding="utf-8")
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}", "--dump-dom"]
    done = subprocess.run([*command, clicked.as_uri()], capture_output=True, text=True, timeout=200)
    [result] = re.findall(r'<pre id="result">(.*?)</pre>', done.stdout, re.DOTALL)
    result = json.loads(html.unescape(result))
    assert result["failures"] == []
    drawn = {f"{i}: {made['name']}": made for i, made in enumerate(data_of(page)["functions"])}
    for name, made in drawn.items():
        for which in ("before", "after"):
            assert result["found"][f"{name} {which}"] == len(made[which]["nodes"])
    assert result["details"]


def test_a_script_without_functions():
    assert document_of([], "nothing") == {
        "title": "nothing",
        "version": html_report.optdb.__version__,
        "failed": 0,
        "functions": [],
    }
