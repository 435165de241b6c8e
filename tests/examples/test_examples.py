"""Each program in examples/ runs, and its ops compute what it says."""

from __future__ import annotations

import importlib.util
import pickle
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given
from hypothesis import strategies as st

from optdb.opencl import OpenCLArrayType, contexts
from tests.processes import python

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
#: This example starts processes, and has a separate test.
SPAWNING = "several_processes.py"
#: The documentation runs this example from a command line.
SCRIPT = "train.py"
#: This example needs PyTensor and PyMC, so tests/pytensor runs it.
SAMPLING = "sample.py"
PROGRAMS = sorted({path.name for path in EXAMPLES.glob("*.py")} - {SPAWNING, SCRIPT, SAMPLING})
CHECKS = ["check1.py", "check2.py", "check3.py"]
MODE = theano.Mode(theano.config.linker, "fast_compile")


@pytest.fixture(scope="module", autouse=True)
def default_context():
    before = contexts.default
    contexts.register("examples", "opencl")
    contexts.default = "examples"
    yield
    contexts.forget("examples")
    contexts.default = before


def load(name):
    """Return the module of an example, imported under a unique name."""
    spec = importlib.util.spec_from_file_location(f"examples_{name}", EXAMPLES / f"{name}.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def matrix(seed, shape=(4, 5)):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


@pytest.mark.slow_cases("exported_step.py")
@pytest.mark.parametrize("name", PROGRAMS)
def test_runs(name, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [name, "2"])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert capsys.readouterr().out


@pytest.mark.thorough
@pytest.mark.slow
def test_the_script_that_does_not_import_optdb_learns_the_same_in_every_way():
    assert "import optdb" not in (EXAMPLES / SCRIPT).read_text()
    ways = [([], ""), (["--no-topo"], ""), ([], ",optdb.device=opencl")]
    shares = []
    for options, flags in ways:
        command = ["-m", "optdb", "run", *options, str(EXAMPLES / SCRIPT), "--epochs", "5"]
        done = python(*command, flags=f"floatX=float32{flags}")
        assert "theano.function took" in done.stdout, done.stderr
        shares.append(float(done.stdout.split()[-1].rstrip("%")))
    assert min(shares) > 80
    assert max(shares) - min(shares) < 3


@pytest.mark.parametrize("name", CHECKS)
def test_checks_compute_exp(name, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [name, "2"])
    left = runpy.run_path(str(EXAMPLES / name))
    value = left["x"].get_value()
    np.testing.assert_allclose(np.asarray(left["r"]), np.exp(value), rtol=1e-6)
    assert capsys.readouterr().out.splitlines()[-1] in ("Used the host", "Used the device")


@pytest.mark.slow
def test_check1_uses_the_cpu_unless_told_otherwise():
    done = python(str(EXAMPLES / "check1.py"), "2", flags="floatX=float32")
    assert done.stdout.splitlines()[-1] == "Used the host", done.stderr


@pytest.mark.thorough_cases("check2.py", "check3.py")
@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKS)
def test_checks_use_the_device(name):
    done = python(str(EXAMPLES / name), "2", flags="floatX=float32,optdb.device=opencl")
    assert done.stdout.splitlines()[-1] == "Used the device", done.stderr
    # Only check1.py copies its result to the host; the other checks request results on the device.
    assert ("HostFromOpenCL" in done.stdout.splitlines()[0]) == (name == "check1.py")


@pytest.mark.thorough
@pytest.mark.slow
def test_several_processes_come_to_the_same(tmp_path):
    pytest.importorskip("distributed")
    done = python(str(EXAMPLES / SPAWNING), "2", cwd=tmp_path)
    *workers, last = done.stdout.splitlines()
    assert last == "All agree", done.stderr
    first, second = (line.partition(": ")[2] for line in workers)
    assert "loss 14.0965 -> " in first and first.split("sum")[0] == second.split("sum")[0]


@pytest.mark.slow
def test_the_step_that_is_sent_is_theanos():
    example = load("several_processes")
    step = example.compile_step()
    losses = [float(step(x, y)) for x, y in example.batches()]
    device, ours, w = example.train(example.compile_step(), 1, 1)
    assert device
    np.testing.assert_allclose(ours, losses, rtol=1e-5)
    np.testing.assert_allclose(w, step.get_shared()[0].get_value(), rtol=1e-4, atol=1e-5)


def test_multiply_them():
    example = load("multiply_them")
    a, b = matrix(1, (400,)), matrix(2, (400,))
    np.testing.assert_array_equal(example.multiply_them(a, b), a * b)
    a, b = matrix(1, (20, 10)), matrix(2, (20, 10))
    np.testing.assert_array_equal(example.multiply_matrices(a, b), a * b)


@pytest.fixture(scope="module")
def double():
    x = tt.fmatrix()
    return theano.function([x], load("double").PyOpenCLDoubleOp()(x), mode=MODE)


@given(rows=st.integers(0, 70), columns=st.integers(0, 3))
def test_double(double, rows, columns):
    value = matrix(rows, (rows, columns))
    np.testing.assert_array_equal(double(value).get(), value * 2)


def test_double_of_a_view_is_of_a_copy_in_c_order():
    x = OpenCLArrayType("float32", (False, False))("x")
    f = theano.function([x], load("double").PyOpenCLDoubleOp()(x), mode=MODE)
    value = matrix(0)
    array = x.type.filter(value)
    np.testing.assert_array_equal(f(array.T).get(), value.T * 2)
    np.testing.assert_array_equal(f(array[1:]).get(), value[1:] * 2)


def test_double_takes_float32_only():
    with pytest.raises(TypeError, match="float32, not float64: cast it first"):
        load("double").PyOpenCLDoubleOp()(tt.dmatrix())


def test_first_exercise():
    x, y = tt.fmatrices("x", "y")
    f = theano.function([x, y], load("double_exercise_1").PyOpenCLMultiplyOp()(x, y), mode=MODE)
    np.testing.assert_array_equal(f(matrix(1), matrix(2)).get(), matrix(1) * matrix(2))
    with pytest.raises(ValueError, match="different shapes"):
        f(matrix(1), matrix(2, (4, 4)))


def test_second_exercise():
    x, y = tt.fmatrices("x", "y")
    f = theano.function([x, y], load("double_exercise_2").PyOpenCLSumAndDifferenceOp()(x, y), mode=MODE)
    total, difference = f(matrix(1), matrix(2))
    np.testing.assert_array_equal(total.get(), matrix(1) + matrix(2))
    np.testing.assert_array_equal(difference.get(), matrix(1) - matrix(2))


VIEWS = {
    "as it is": np.s_[:, :],
    "part": np.s_[1:3, 2:],
    "steps": np.s_[::2, ::3],
    "backwards": np.s_[::-1, ::-1],
    "empty": np.s_[2:2, :],
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("transposed", [False, True])
def test_third_exercise(view, transposed):
    x = OpenCLArrayType("float32", (False, False))("x")
    f = theano.function([x], load("double_exercise_3").PyOpenCLStridedDoubleOp()(x), mode=MODE)
    value = matrix(0)
    array = x.type.filter(value)[view]
    expected = value[view] * 2
    if transposed:
        array, expected = array.T, expected.T
    np.testing.assert_array_equal(f(array).get(), expected)


@pytest.mark.parametrize("dtype", ["float64", "int8"])
@pytest.mark.parametrize(("n", "m", "k"), [(3, 3, 0), (3, 5, 1), (5, 3, -2), (0, 3, 0), (3, 3, 3), (3, 3, -7)])
def test_eye_in_python(dtype, n, m, k):
    made = theano.function([], load("eye_in_python").EyeInPython(dtype)(n, m, k), mode=MODE)()
    assert made.dtype == dtype
    np.testing.assert_array_equal(made.get(), np.eye(n, m, k))


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8"])
@pytest.mark.parametrize(("n", "m", "k"), [(3, 3, 0), (3, 5, 1), (5, 3, -2), (0, 3, 0), (3, 3, 3), (3, 3, -7)])
def test_eye_from_file(dtype, n, m, k):
    op = load("eye_from_file").EyeFromFile(dtype)
    made = theano.function([], op(n, m, k), mode=MODE)()
    assert made.dtype == dtype
    np.testing.assert_array_equal(made.get(), np.eye(n, m, k))


def test_eye_from_file_takes_its_kernel_along():
    module = load("eye_from_file")
    op = pickle.loads(pickle.dumps(module.EyeFromFile("float32")))
    assert op == module.EyeFromFile("float32")
    assert "KERNEL void eye" in op.text


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize("flags", ["", ",optdb.device=opencl"], ids=["host", "device"])
def test_a_first_run_prints_what_the_script_prints(tmp_path, flags):
    """The first run finds no cache folder, so every compiler runs."""
    env = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), "POCL_CACHE_DIR": str(tmp_path / "pocl")}
    flags = f"floatX=float32,base_compiledir={tmp_path / 'theano'}{flags}"
    done = python("-m", "optdb", "run", str(EXAMPLES / SCRIPT), "--epochs", "1", flags=flags, env=env)
    assert done.stderr == ""
    assert re.fullmatch(r"theano.function took .* s\nepoch 1: loss .*\n", done.stdout)
