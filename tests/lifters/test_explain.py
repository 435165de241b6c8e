"""optdb explains, as text and as a picture, on which device each op of a function runs, and why."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import theano
import theano.tensor as tt

import optdb
from optdb.lifters import Explanation
from optdb.lifters.explain import placement_of
from tests.lifters.paper import paper_lifters
from tests.processes import output, python, python_path


class OnPaperMode(theano.Mode):
    """A mode that lifts graphs to paper, and has no other rewriters."""

    def __init__(self):
        super().__init__("py", None)

    @property
    def optimizer(self):
        return paper_lifters.query()


@pytest.fixture
def function():
    x = tt.dmatrix("x")
    middle = tt.nlinalg.matrix_inverse(tt.dot(x, x))
    return theano.function([x], tt.dot(middle, middle), mode=OnPaperMode(), name="square")


def test_tables_name_lifters_and_reasons(function):
    text = str(optdb.explain(function))
    for words in ("square", "any_op", "MatrixInverse", "no lifter", "paper sheet", "host", "FromPaper"):
        assert words in text, words


def test_counts(function):
    explanation = optdb.explain(function)
    assert explanation.places == {"host": 1, "paper sheet": 2}
    assert explanation.transfers == {"ToPaper{context_name='sheet'}": 2, "FromPaper": 2}
    assert explanation.traffic is None


def test_bytes_of_a_call(function):
    explanation = optdb.explain(function, np.eye(4))
    assert explanation.traffic.transfers == {"ToPaper": 2, "FromPaper": 2}
    assert explanation.traffic.nbytes == {"ToPaper": 256, "FromPaper": 256}
    assert "256 bytes" in str(explanation)


def test_a_function_without_a_device():
    x = tt.dvector()
    explanation = optdb.explain(theano.function([x], x + 1, mode=theano.Mode("py", None)))
    assert set(explanation.places) == {"host"}
    assert isinstance(explanation, Explanation)


def test_what_is_no_function():
    with pytest.raises(TypeError, match="explain takes a function"):
        optdb.explain(3)


def test_a_picture_as_text(function, tmp_path):
    pytest.importorskip("graphviz")
    path = optdb.explain(function).picture(tmp_path / "graph.dot")
    text = path.read_text()
    assert text.startswith("digraph")
    assert text.count("MatrixInverse") == 1
    assert "paper sheet" in text


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz's program dot is not installed")
def test_a_picture(function, tmp_path):
    pytest.importorskip("graphviz")
    assert b"<svg" in optdb.explain(function).picture(tmp_path / "graph.svg").read_bytes()


def test_a_picture_without_the_program(function, tmp_path, monkeypatch):
    pytest.importorskip("graphviz")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="apt install graphviz"):
        optdb.explain(function).picture(tmp_path / "graph.svg")


def test_places(function):
    assert {placement_of(node) for node in function.maker.fgraph.apply_nodes} == {"host", "paper sheet"}


@pytest.mark.slow
def test_the_command(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, theano, theano.tensor as tt\n"
        "x = tt.dvector('x')\n"
        "f = theano.function([x], x * 2, name='double', mode='FAST_COMPILE')\n"
        "print(f([1.0]), sys.argv[1:])\n"
    )
    done = python("-m", "optdb", "explain", str(script), "a", "-b")
    assert done.stdout.strip() == "[2.] ['a', '-b']"
    assert "function 0: double" in done.stderr
    assert "where its ops run" in done.stderr


@pytest.mark.slow
def test_the_command_for_a_script_that_fails(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import theano\nf = theano.function([], 1 + theano.shared(1))\nraise SystemExit(3)\n")
    done = python("-m", "optdb", "explain", str(script))
    assert done.returncode == 3
    assert "function 0" in done.stderr


@pytest.fixture
def doubling(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import theano\nf = theano.function([], 2 * theano.shared(1.0), mode='FAST_COMPILE')\nprint(f())\n"
    )
    return script


@pytest.mark.slow
def test_the_command_draws_text_where_the_program_is_missing(doubling, tmp_path):
    pytest.importorskip("graphviz")
    folder = tmp_path / "my pictures"
    done = python("-m", "optdb", "explain", "--pictures", str(folder), str(doubling), env={"PATH": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert (folder / "0.dot").read_text().startswith("digraph")
    assert "apt-get install graphviz" in done.stderr
    assert f"'{folder}'/*.dot" in done.stderr


def test_the_command_asks_for_the_package_before_the_script_runs(doubling, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as util\n"
        "find = util.find_spec\n"
        "util.find_spec = lambda name, *args: None if name == 'graphviz' else find(name, *args)\n"
    )
    done = python(
        "-m", "optdb", "explain", "--pictures", str(tmp_path), str(doubling), env={"PYTHONPATH": python_path(tmp_path)}
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "pip install 'optdb[picture]'" in done.stderr and "Traceback" not in done.stderr


def test_without_a_call_there_is_no_column_for_one(function):
    assert "in a call" not in str(optdb.explain(function))
    assert "in a call" in str(optdb.explain(function, np.eye(2)))


def test_explain_imports_nothing_early():
    assert output("import sys, optdb; print('theano' in sys.modules, 'pyopencl' in sys.modules)") == "False False"


def test_brackets_in_names_are_shown():
    x = tt.fvector("x")
    assert str(optdb.explain(theano.function([x], x + 1, name="step[b]"))).startswith("step[b]: where its ops run")
