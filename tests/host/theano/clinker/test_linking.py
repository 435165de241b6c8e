"""The C code of functions is built in batches; each test uses a separate process and compiledir."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.processes import ROOT, run_code, with_extensions

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")

#: Compiler flags for tests that do not depend on optimized code.
UNOPTIMIZED = "gcc.cxxflags=-O0"

#: A program that defines ops whose C code would clash in one file if it were not separated. Each op multiplies x by a
#: number.
OPS = textwrap.dedent("""
    import optdb
    from optdb.host.theano.clinker import plug
    import json, sys
    import numpy as np
    import theano, theano.tensor as tt
    from theano.gof import Apply, Op
    plug.install()

    class Times(Op):
        __props__ = ("factor", "support", "own")

        def __init__(self, factor, support="", own="", version=(1,)):
            self.factor, self.support, self.own, self.version = factor, support, own, version

        def make_node(self, x):
            return Apply(self, [tt.as_tensor_variable(x)], [tt.dscalar()])

        def c_support_code(self):
            return self.support

        def c_support_code_apply(self, node, name):
            return self.own

        def c_code_cache_version(self):
            return self.version

        def c_code(self, node, name, inputs, outputs, sub):
            (x,), (z,), fail, factor = inputs, outputs, sub["fail"], self.factor
            return f\"\"\"
                Py_XDECREF({z});
                {z} = (PyArrayObject*) PyArray_EMPTY(0, NULL, NPY_FLOAT64, 0);
                if (!{z}) {fail}
                if (((double*) PyArray_DATA({x}))[0] < 0) {{ PyErr_SetString(PyExc_ValueError, "below zero"); {fail} }}
                ((double*) PyArray_DATA({z}))[0] = ((double*) PyArray_DATA({x}))[0] * ({factor});
            \"\"\"

    def cache():
        return theano.gof.cc.get_module_cache()

    x = tt.dscalar("x")
""")


def run(code, folder, flags="", ops=OPS, **env):
    """Run `OPS` and then `code` in a process with users' compiler settings; return the code's output, which is JSON."""
    as_for_users = "gcc.cxxflags=,optdb.clinker=auto"
    flags = f"base_compiledir={with_extensions(folder)},{as_for_users},{flags}"
    done = run_code(ops + textwrap.dedent(code), flags=flags, env=env)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def compiler_log(tmp_path, monkeypatch):
    """Install a g++ that logs each call before it compiles; return the log file."""
    log = tmp_path / "log"
    script = tmp_path / "bin" / "g++"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\necho "$@" >> {log}\nexec {shutil.which("g++")} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}{os.pathsep}{os.environ['PATH']}")
    log.touch()
    return log


@pytest.mark.slow
def test_code_that_clashes_shares_units_or_not_and_computes_the_same(tmp_path):
    code = """
        ops = [
            Times("FACTOR", own="#define FACTOR 2.0"),
            Times("FACTOR", own="#define FACTOR 3.0\\n#define OTHER"),
            Times("factor()", own="static double factor() { return 4.0; }"),
            Times("factor()", own="static double factor() { return 5.0; }"),
            Times("table[0]", own="static double table[] = {6.0};"),
            Times("table[0]", own="static double table[] = {7.0};\\nstruct Thing { int a; };"),
            Times("sizeof(Thing)", own="struct Thing { char a[8]; };"),
            Times("scale(1)", support="static double scale(double x) { return 9 * x; }"),
            Times("scale(1)", support='extern "C" { double scale(double x) { return 10 * x; } }'),
            Times("VALUE", own="#include <errno.h>\\n#define VALUE 11.0"),
            # An overload of a function of the headers, to be found beside those.
            Times("pow(Big(), 1) + pow(2.0, 0)", support="struct Big {}; static double pow(Big, int) { return 11; }"),
            Times("13.0", own="#ifdef FACTOR\\n#error leaked\\n#endif\\n#ifdef OTHER\\n#error leaked\\n#endif"),
        ]
        f = theano.function([x], [op(x) for op in ops])
        print(json.dumps([[float(v) for v in f(1.5)], cache().stats[2] >= len(ops)]))
    """
    values, were_compiled = run(code, tmp_path)
    assert values == [1.5 * factor for factor in range(2, 14)]
    assert were_compiled


@pytest.mark.slow
def test_many_modules_need_few_compilers_and_a_second_process_none(tmp_path, compiler_log):
    code = """
        rows = tt.dmatrix("rows")
        sums = [(rows.T + n * x).sum(axis=0) for n in (1, 2)]
        f = theano.function([x, rows], [Times(str(n))(x) for n in range(8)] + sums)
        values = f(2.0, [[1.0, 2.0], [3.0, 4.0]])
        print(json.dumps([[np.asarray(v).tolist() for v in values], cache().stats[2]]))
    """
    first, compiled = run(code, tmp_path / "compiledir", XDG_CACHE_HOME=str(tmp_path / "cache"))
    runs = len(compiler_log.read_text().splitlines())
    assert compiled >= 10
    units = [line for line in compiler_log.read_text().splitlines() if "unit.cpp" in line]
    assert 1 <= len(units) < compiled / 2
    second = run(code, tmp_path / "compiledir", XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert second == [first, 0]
    assert len(compiler_log.read_text().splitlines()) == runs


@pytest.mark.slow
def test_a_compiler_that_fails_where_another_part_of_the_program_waits_for_children(tmp_path, compiler_log):
    script = tmp_path / "bin" / "g++"
    first, *others = script.read_text().splitlines(True)
    # The first unit does not compile.
    failing = f'case "$*" in *unit.cpp*) mkdir {tmp_path}/failed 2>/dev/null && exit 1 ;; esac\n'
    script.write_text("".join([first, failing, *others]))
    code = """
        import signal
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the status of each child is lost
        f = theano.function([x], [Times(str(n))(x) for n in range(8)])
        print(json.dumps([float(value) for value in f(2.0)]))
    """
    assert run(code, tmp_path / "compiledir") == [2.0 * n for n in range(8)]
    assert (tmp_path / "failed").exists()


@pytest.mark.slow
def test_a_theano_without_optdbs_linker_uses_the_same_modules(tmp_path):
    code = """
        # No DimShuffle: Theano alone compiles ops that have their C code in a file in each process.
        rows = tt.dmatrix("rows")
        f = theano.function([rows], [tt.exp(rows).sum(axis=0), tt.tanh(rows + rows).sum()])
        print(json.dumps([[np.asarray(v).tolist() for v in f([[1.0, 2.0]])], cache().stats[2], plug.is_installed()]))
    """
    first, compiled, installed = run(code, tmp_path)
    assert compiled
    assert installed
    assert run(code, tmp_path, flags="optdb.clinker=False") == [first, 0, False]


@pytest.mark.slow
def test_modules_of_a_theano_without_optdbs_linker_are_used(tmp_path):
    code = """
        # No DimShuffle: Theano alone gives ops that have their C code in a file another version in each process.
        rows = tt.dmatrix("rows")
        f = theano.function([rows], [tt.exp(rows).sum(axis=0), tt.tanh(rows + rows).sum()])
        print(json.dumps([[np.asarray(v).tolist() for v in f([[1.0, 2.0]])], cache().stats[2]]))
    """
    first, _ = run(code, tmp_path, f"{UNOPTIMIZED},optdb.clinker=False")
    assert run(code, tmp_path, UNOPTIMIZED) == [first, 0]


@pytest.mark.slow
def test_where_one_module_does_not_compile_the_error_is_theanos_and_names_its_node(tmp_path):
    code = """
        good = [Times(str(n))(x) for n in range(3)]
        bad = Times("no_such_name")(x)
        bad.name = "bad"
        try:
            theano.function([x], [*good[:2], bad, good[2]])
        except Exception as error:
            node = [arg for arg in error.args if isinstance(arg, Apply)]
            reported = [str(error.args), node[0].op.factor]
        f = theano.function([x], good)
        print(json.dumps([reported, [float(v) for v in f(2)], cache().stats[2]]))
    """
    (text, factor), values, compiled = run(code, tmp_path)
    assert "no_such_name" in text
    assert "Compilation failed (return status=1)" in text
    assert "The following error happened while compiling the node" in text
    assert factor == "no_such_name"
    assert values == [0.0, 2.0, 4.0]
    assert compiled == 3  # the valid ones, once


@pytest.mark.slow
def test_an_error_at_run_time_is_the_same(tmp_path):
    code = """
        results = {}
        for linker in ["cvm", "c|py", "c", "vm"]:
            f = theano.function([x], Times("2")(x) + 1, mode=theano.Mode(linker))
            try:
                f(-1.0)
            except Exception as error:
                reported = [type(error).__name__, str(error).splitlines()[:2]]
            results[linker] = [reported, float(f(1.0))]
        print(json.dumps(results))
    """
    node = "Apply node that caused the error: Times{factor='2', support='', own=''}(x)"
    expected = [["ValueError", ["below zero", node]], 3.0]
    assert run(code, tmp_path) == dict.fromkeys(["cvm", "c|py", "c", "vm"], expected)


@pytest.mark.slow
def test_inputs_that_are_no_arrays_are_refused_with_theanos_words(tmp_path):
    code = """
        rows = tt.fmatrix("rows")
        f = theano.function([rows], rows + 1, mode=theano.Mode("cvm", optimizer=None))
        unaligned = np.frombuffer(bytes(33), dtype=np.uint8)[1:].view(np.float32).reshape(2, 4)
        values = [None, "text", np.zeros((2, 2)), unaligned]
        reported = []
        for value in values:
            f.input_storage[0].storage[0] = value
            try:
                f.fn()
            except Exception as error:
                reported.append([type(error).__name__, str(error).splitlines()[0]])
        print(json.dumps(reported))
    """
    shared = run(code, tmp_path / "a", UNOPTIMIZED)
    assert shared == run(code, tmp_path / "b", f"{UNOPTIMIZED},optdb.clinker=False")
    assert [kind for kind, _ in shared] == ["ValueError", "ValueError", "TypeError", "NotImplementedError"]


@pytest.mark.slow
def test_references_are_counted_as_by_theanos_own_code(tmp_path):
    code = """
        import gc
        rows, row = tt.fmatrix("rows"), tt.fvector("row")
        outputs = [rows + 1, tt.exp(rows) * row, rows.sum(axis=0), rows.T, tt.dot(rows, row), rows[0], row ** 2]
        f = theano.function([rows, row], outputs, mode=theano.Mode("cvm", "fast_compile"))
        values = np.ones((3, 3), "float32"), np.ones(3, "float32")
        unaligned = np.frombuffer(bytes(61), dtype=np.uint8)[1:37].view(np.float32).reshape(3, 3)

        def count():
            gc.collect()
            return [sys.getrefcount(value) for value in (*values, unaligned, *kept)]

        def fail(cell, value):
            before, cell[0] = cell[0], value
            try:
                f.fn()
            except Exception as error:
                return type(error).__name__
            finally:
                cell[0] = before

        kept = f(*values)
        nothing = sys.getrefcount(None)
        counts = [count()]
        for _ in range(1000):
            f(*values)
        counts.append(count())
        # None lives forever since Python 3.12.
        drift = sys.getrefcount(None) - nothing
        errors = set()
        for _ in range(100):
            f.input_storage[0].storage[0], f.input_storage[1].storage[0] = values
            errors |= {fail(f.input_storage[0].storage, value) for value in (None, "text", values[1], unaligned)}
        f.input_storage[0].storage[0] = f.input_storage[1].storage[0] = None
        counts.append(count())
        f2 = theano.function([rows, row], outputs, mode=theano.Mode("cvm", "fast_compile"))
        cells = list(f2.fn.storage_map.values())
        del f2
        gc.collect()
        left = max(map(sys.getrefcount, cells))
        print(json.dumps([[now == counts[0] for now in counts], drift < 100, sorted(errors), left]))
    """
    counts_are_equal, no_drift, errors, left = run(code, tmp_path, UNOPTIMIZED)
    assert counts_are_equal == [True, True, True]
    assert no_drift
    # Theano's own code raises the same errors. Only the list `cells` and `getrefcount` still refer to a cell.
    assert errors == ["NotImplementedError", "ValueError"]
    assert left <= 2


@pytest.mark.slow
def test_an_op_without_a_version_is_compiled_in_each_process_and_leaves_nothing(tmp_path):
    code = """
        f = theano.function([x], Times("2", version=())(x))
        print(json.dumps([float(f(1.5)), cache().stats[2], theano.config.compiledir]))
    """
    for _ in range(2):
        value, compiled, compiledir = run(code, tmp_path)
        assert (value, compiled) == (3.0, 1)
        assert not list(Path(compiledir).glob("tmp*"))
        assert not [*Path(compiledir, "optdb").glob("staging/*"), *Path(compiledir, "optdb").glob("locks/*")]


@pytest.mark.slow
def test_ops_without_c_code_are_computed_in_python(tmp_path):
    code = """
        class Python(Op):
            __props__ = ()
            def make_node(self, x):
                return Apply(self, [x], [tt.dscalar()])
            def perform(self, node, inputs, outputs):
                outputs[0][0] = np.asarray(inputs[0] * 7)

        f = theano.function([x], [Python()(x), Python()(x + 1), Times("2")(x)])
        print(json.dumps([float(v) for v in f(1.0)]))
    """
    assert run(code, tmp_path) == [7.0, 14.0, 2.0]


@pytest.mark.slow
def test_the_inner_functions_of_nested_scans_are_built_with_the_others(tmp_path, compiler_log):
    code = """
        rows = tt.dmatrix("rows")
        optdb.enable()  # folds constants without C code
        inner = lambda row: theano.scan(lambda v, total: Times("3")(v) + total, row, outputs_info=[tt.zeros(())])[0][-1]
        f = theano.function([rows], theano.scan(inner, rows)[0], profile=True)
        inner_profile = [node for node in f.maker.fgraph.apply_nodes if type(node.op).__name__ == "Scan"]
        again = theano.function([rows], theano.scan(inner, rows)[0] + 1)
        print(json.dumps([f([[1, 2], [3, 4]]).tolist(), again([[1, 2]]).tolist(), len(inner_profile)]))
    """
    assert run(code, tmp_path / "c", UNOPTIMIZED, XDG_CACHE_HOME=str(tmp_path / "cache")) == [[9.0, 21.0], [10.0], 1]
    units = [line for line in compiler_log.read_text().splitlines() if "unit.cpp" in line]
    assert len(units) <= 4


@pytest.mark.slow
def test_a_fused_op_may_be_deeper_than_pythons_stack(tmp_path):
    """The second process finds the module by the module's content, since the module's key cannot be pickled."""
    code = """
        import optdb
        import theano
        import theano.tensor as tt
        x = tt.dvector("x")
        out = x
        for _ in range(400):
            out = tt.tanh(out)
        f = theano.function([x], out, mode="TOPO")
        assert len(f.maker.fgraph.apply_nodes) == 1
        print(f([0.0]).tolist())
    """
    flags = f"{UNOPTIMIZED},base_compiledir={tmp_path},optdb.trace=compilers"
    first, second = (run_code(code, flags=flags) for _ in range(2))
    assert first.stdout == second.stdout == "[0.0]\n"
    assert "tanh" in first.stderr
    assert "tanh" not in second.stderr


@pytest.mark.thorough
@pytest.mark.slow
def test_processes_on_one_empty_compiledir_some_of_them_killed(tmp_path):
    code = OPS + textwrap.dedent("""
        rows = tt.dmatrix("rows")
        sums, _ = theano.scan(lambda row: row.sum(), rows)
        f = theano.function([rows, x], [tt.tanh(rows).sum(axis=0), Times("3")(x), sums])
        print(json.dumps([np.asarray(v).tolist() for v in f([[0.0, 0.0]], 2.0)]))
    """)
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "THEANO_FLAGS": f"base_compiledir={tmp_path}",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    start = lambda: subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True)  # noqa: E731
    processes = [start() for _ in range(5)]
    for delay, process in zip((2.0, 6.0), processes[:2], strict=True):
        try:
            process.wait(delay)
        except subprocess.TimeoutExpired:
            process.kill()
    results = [process.communicate()[0] for process in processes[2:]]
    for process in processes[:2]:
        process.communicate()
    assert [json.loads(result.splitlines()[-1]) for result in results] == [[[0.0, 0.0], 6.0, [0.0]]] * 3
    last = start()
    assert last.communicate()[0] == results[0]
    (compiledir,) = tmp_path.glob("compiledir*")
    assert not list((compiledir / "optdb" / "staging").iterdir())
    assert not list((compiledir / "optdb" / "locks").iterdir())
    assert all((folder / "key.pkl").exists() for folder in compiledir.glob("tmp*"))
