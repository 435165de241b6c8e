"""``python -m optdb explain --html``: observed compilations, the layout of graphs, and the page in a browser."""

from __future__ import annotations

import contextlib
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
from theano.tensor import inplace

from optdb.cli import html_report
from optdb.cli.html_report import document_of, write_html
from optdb.host.theano.functions.call_memory import CallMemory, live_bytes
from optdb.host.theano.functions.observing import ObservedFunction, covered, observe, snapshot
from optdb.opencl.simulator import SimulatorOCL
from optdb.topo import collect, enable
from optdb.trace_log import CompilerRun
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


@pytest.mark.slow
@given(graphs)
def test_users_stand_below_what_they_use_and_nodes_apart(inputs):
    positions = html_report._lay_out(inputs)
    assert len(positions) == len(inputs)
    for node, used in enumerate(inputs):
        assert all(positions[node][1] > positions[other][1] for other in used)
    for (x, layer), (other_x, other_layer) in zip(sorted(positions), sorted(positions)[1:]):
        assert layer != other_layer or abs(x - other_x) >= 1
    assert min((layer for _, layer in positions), default=0) >= 0


def test_lines_do_not_cross_where_they_need_not():
    # The nodes of two parallel chains alternate.
    positions = html_report._lay_out([[], [], [1], [0], [3], [2]])
    assert (positions[4][0] < positions[5][0]) == (positions[0][0] < positions[1][0])


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


def test_nodes_that_were_not_timed_have_no_times():
    seen = []
    with observe(seen.append):
        compiled()
    [one] = seen
    node = next(iter(one.function.maker.fgraph.apply_nodes))
    one.profile.apply_time = {node: 0.0}
    assert one.node_times() == {}


def test_snapshots():
    x, y = tt.dscalar("x"), tt.dscalar("y")
    taken = snapshot([x * y + 1, x])
    assert [node.op for node in taken.nodes if node.is_input] == ["x", "y"]
    assert taken.node_count == 2
    assert taken.nodes[taken.outputs[0]].inputs == (2,)
    assert taken.outputs[1] == 0
    assert snapshot([]).nodes == ()


# The report on calls contains the first call, the time of compilers (without linking), and memory


def test_the_first_call_is_reported_separately():
    seen = []
    with observe(seen.append):
        f = compiled()
        machine = f.fn
        assert not seen[0].inputs_are_known
        with pytest.raises(ValueError, match="no vector"):
            f("no vector")
        assert f.fn is machine and not seen[0].inputs_are_known
        f([1.0, 2.0, 3.0])
        first = seen[0].first_call_seconds
        assert f.fn is machine
        f([1.0, 2.0, 3.0])
    [one] = seen
    assert 0 < first == one.first_call_seconds < one.profile.fct_call_time
    assert one.profile.fct_callcount == 2
    assert [value.shape for value in one.inputs.values()] == [(3,), (3,)]


def test_values_of_calls_are_those_without_observation():
    with observe(lambda seen: None):
        f = compiled()
        observed = [f([1.0, 2.0, 3.0]) for _ in range(3)]
    g = compiled()
    assert observed == [g([1.0, 2.0, 3.0]) for _ in range(3)]


def test_compilers_that_run_side_by_side_count_once():
    assert covered([(0, 2), (1, 3), (5, 6), (5.5, 5.6)]) == 4
    assert covered([]) == 0
    stats = theano.compile.profiling.ProfileStats(atexit_print=False)
    stats.import_time = 1.0
    runs = [
        CompilerRun("C compiler", "", 9, 12),
        CompilerRun("C compiler", "", 11, 13),
        CompilerRun("OpenCL compiler", "", 14, 15),
        CompilerRun("C compiler", "of another function", 30, 40),
    ]
    one = ObservedFunction(snapshot([]), stats, link_span=(10.0, 20.0), compilers=runs)
    times = {"C compiler": 3.0, "OpenCL compiler": 1.0, "loading C code": 1.0, "linking": 5.0}
    assert dict(one.link_times()) == times


@pytest.mark.parametrize("with_engine", [False, True])
def test_host_memory_is_that_of_the_values(with_engine):
    x, n = tt.dmatrix("x"), tt.iscalar("n")
    big = tt.exp(tt.tile(x, (n, 1)))
    f_of = lambda: theano.function([x, n], [big.sum(), tt.dot(x, x.T)], mode="FAST_RUN")  # noqa: E731
    seen = []
    with enable() if with_engine else contextlib.nullcontext(), observe(seen.append):
        f = f_of()
        f(np.ones((20, 30)), 7)
    memory = seen[0].call_memory()
    assert memory.arguments == 20 * 30 * 8 + 4
    assert memory.shared == 0
    # The outputs (the matrix x.x^T and a number) are live until the end.
    assert memory.steps[-1][1] >= 20 * 20 * 8
    assert memory.peak >= 7 * 20 * 30 * 8
    assert [node for node, _ in memory.steps] == f.fn.nodes


def test_liveness_over_nodes():
    """Check the live bytes of a chain a -> b -> c and another output d; b reads a view of `a`, and c overwrites b."""
    x = tt.dvector("x")
    a = tt.exp(x)
    view = a[::2]
    b = tt.sin(view)
    c = inplace.neg_inplace(b)
    d = tt.cos(x)
    order = [var.owner for var in (a, view, b, c, d)]
    sizes = {a: 100, view: 50, b: 10, c: 10, d: 1}
    live, everything = live_bytes(order, [c, d], sizes)
    assert live == [100, 100, 110, 10, 11]
    assert everything == 111
    assert live_bytes(order, [c, d], sizes, frees=False)[0] == [100, 100, 110, 110, 111]
    assert live_bytes(order, [c, d], {**sizes, a: None})[0] == [0, 0, 10, 10, 11]
    assert live_bytes([], [], {}) == ([], 0)


def test_sizes_that_depend_on_values_are_not_guessed():
    x = tt.dvector("x")
    seen = []
    with observe(seen.append):
        f = theano.function([x], tt.exp(tt.nonzero(x)[0]).sum(), mode=theano.Mode("py", "fast_run"))
        f(np.arange(5.0))
    memory = seen[0].call_memory()
    assert memory.unknown > 0
    assert memory.arguments == 40


def test_device_memory_is_that_of_the_plan():
    x = tt.fmatrix("x")
    f_of = theano.function([x], tt.dot(tt.exp(x), tt.tanh(x).T).sum(), mode="OPENCL")
    with SimulatorOCL(theano.function([x], tt.dot(tt.exp(x), tt.tanh(x).T).sum())) as sim:
        data = np.ones((50, 60), "float32")
        assert f_of.fn.call_memory() is None
        f_of(data)
        memory = f_of.fn.call_memory()
        report = sim.memory(data)
    assert memory.buffers == report.values
    assert memory.separately == report.separately
    assert 0 < memory.peak <= memory.buffers
    assert max(nbytes for _, nbytes in memory.steps) == memory.peak


def test_large_calls_are_drawn_with_fewer_bars(monkeypatch):
    monkeypatch.setattr(html_report, "MAX_MEMORY_BARS", 3)
    node = tt.exp(tt.dvector()).owner
    memory = CallMemory([(node, nbytes) for nbytes in (1, 5, 2, 9, 3, 4, 8)], 0, 0, 0, 0, 32)
    drawn = html_report._memory(memory)
    assert [(number, nbytes) for number, _, nbytes in drawn["bars"]] == [(1, 5), (3, 9), (6, 8)]
    assert drawn["peak"] == 9 and drawn["nodes"] == 7


# The page


def data_of(path):
    """Return the data that an HTML page contains."""
    [text] = re.findall(r"^const DATA = (.*);$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return json.loads(text)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page that explains a script with a training step and a loop on the device."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "script.py").write_text(SCRIPT)
    arguments = ("-m", "optdb", "explain", "--html", "report.html", "script.py")
    done = python(*arguments, cwd=folder, flags="cxx=,optdb.device=opencl,floatX=float32")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "(2,)\n"
    assert done.stderr.splitlines()[-1] == "open report.html in a browser"
    return folder / "report.html"


@pytest.mark.slow
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
    seconds = [seconds for _, seconds in train["compile"]]
    assert seconds == sorted(seconds, reverse=True)
    assert {"OpenCL compiler", "linking"} <= set(dict(train["compile"]))
    assert 0 < train["first_call_seconds"] < train["call_seconds"]
    sums = dict(train["memory"]["sums"])
    assert sums["shared variables"] >= 24
    assert 0 < sums["peak live values"] <= sums["buffers assigned to values"]
    assert len(train["memory"]["bars"]) == train["memory"]["nodes"] > 0
    # The last call repeated a plan, so the page shows a note about plans instead of nodes with 0 calls.
    assert train["nodes"] == []


def test_the_page_needs_no_network_and_cannot_be_broken_by_names(page):
    text = page.read_text(encoding="utf-8")
    assert set(re.findall(r"https?://[^\s\"']+", text)) == {"http://www.w3.org/2000/svg"}
    assert "alert(1)</script>" not in text
    assert text.count("</script>") == 1
    assert 'src="' not in text


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_script_that_fails_leaves_a_page(tmp_path):
    (tmp_path / "script.py").write_text("import theano\nf = theano.function([], theano.tensor.constant(1))\n1 / 0\n")
    done = python("-m", "optdb", "explain", "--html", "r.html", "script.py", cwd=tmp_path, flags="cxx=")
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
    assert len(data_of(tmp_path / "r.html")["functions"]) == 1


CLICKS = """<script>
const failures = [];
window.onerror = message => { failures.push(message); };
const found = {}, barCounts = {};
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
  document.querySelectorAll("td").forEach(cell => {
    const range = document.createRange();
    range.selectNodeContents(cell);
    const isShort = cell.textContent.length <= 36 && !cell.querySelector(".bar");
    if (isShort && cell.textContent && range.getClientRects().length > 1) failures.push("broken: " + cell.textContent);
  });
  barCounts[button.textContent] = document.querySelectorAll(".memory rect").length;
});
const pre = document.createElement("pre");
pre.id = "result";
const details = document.querySelector(".details").textContent;
pre.textContent = JSON.stringify({ failures, found, bars: barCounts, details });
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
        assert result["bars"][name] == len((made["memory"] or {"bars": []})["bars"])
    assert result["details"]


def test_a_script_without_functions():
    assert document_of([], "nothing") == {
        "title": "nothing",
        "version": html_report.optdb.__version__,
        "failed": 0,
        "functions": [],
    }
