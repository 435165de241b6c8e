"""optdb corrects errors in Theano's scalar ops, observers of variables, lock, and convolutions without a compiler."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import weakref
from contextlib import nullcontext

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.gof import compilelock, opt
from theano.gof.graph import Variable
from theano.scalar import Composite, invert, switch
from theano.tensor.elemwise import Elemwise
from theano.tensor.nnet.abstract_conv import AbstractConv2d
from theano.tensor.slinalg import Cholesky

import optdb
from optdb.host.theano.importing.support import UnusableCompiledir
from tests.disks import full_disk

PY = theano.Mode("py", "fast_run")


def test_a_fused_inversion():
    flag, x, y = theano.scalar.bool(), theano.scalar.float64(), theano.scalar.float64()
    choose = Elemwise(Composite([flag, x, y], [switch(invert(flag), x, y)]))
    flags, xs, ys = tt.bvector().astype("bool"), tt.dvector(), tt.dvector()
    f = theano.function([flags.owner.inputs[0], xs, ys], choose(flags, xs, ys), mode=theano.Mode("py", None))
    np.testing.assert_array_equal(f(np.array([0, 1], "int8"), [1, 2], [3, 4]), [1, 4])


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64"])
def test_bits_of_integers(dtype):
    x = tt.TensorType(dtype, [False])()
    values = np.array([0, 1, 100], dtype)
    np.testing.assert_array_equal(theano.function([x], ~x, mode=PY)(values), ~values)


@pytest.mark.parametrize("mode", [PY, optdb.mode(PY)], ids=["stock", "engine"])
def test_the_gradient_of_a_decomposition_that_fails(mode):
    """The graph of this gradient tests an inverted flag several times, to find out whether all steps have succeeded."""
    x = tt.dmatrix()
    f = theano.function([x], tt.grad(Cholesky(lower=True, on_error="nan")(x).sum(), x), mode=mode)
    assert np.isnan(f([[1, 0.2], [0.2, -2]])).all()
    assert np.isfinite(f([[1, 0.2], [0.2, 2]])).all()


def computed(op, *inputs):
    """Return the result of a scalar op in Python."""
    node = op(*[type() for type in op.inputs_type], return_list=True)[0].owner
    op.prepare_node(node, None, None, "py")
    storage = [[None] for _ in node.outputs]
    op.perform(node, inputs, storage)
    return [value for (value,) in storage]


def test_no_part_of_a_graph_is_computed_twice():
    """If each of the 60 levels were computed twice, this would never end."""
    x, y = theano.scalar.float64(), theano.scalar.float64()
    out, expected = x + y, 0.5
    for _ in range(60):
        out, expected = theano.scalar.tanh(out) * (out + x), np.tanh(expected) * (expected + 0.25)
    assert computed(Composite([x, y], [out]), 0.25, 0.25) == [expected]


def test_each_output_is_computed():
    x, y = theano.scalar.float64(), theano.scalar.float64()
    op = Composite([x, y], [x + y, (x + y) * y])
    assert computed(op, 2.0, 5.0) == [7.0, 35.0]


def test_copies_compute_too():
    x = theano.scalar.float64()
    op = pickle.loads(pickle.dumps(Composite([x], [x * x + 1])))
    assert computed(op.make_new_inplace(None, "squares"), 3.0) == [10.0]


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("with_engine", [False, True])
def test_after_a_product_that_would_overwrite_its_own_matrix(with_engine):
    x, w = tt.dmatrix("x"), theano.shared(np.eye(3), "w")
    mode = theano.Mode("py", "fast_run")
    with optdb.enable() if with_engine else nullcontext():
        # In this graph, local_inplace_gemm raises InconsistencyError, so Theano's optimizer leaves the node unchanged.
        f = theano.function([x], w + w.dot(x), mode=mode)
        assert Variable.construction_observers == []
        forgotten = tt.exp(x)
        gone = weakref.ref(forgotten)
        del forgotten
        gc.collect()
        assert gone() is None
    np.testing.assert_array_equal(f(np.eye(3)), 2 * np.eye(3))


def test_traces_are_inherited_within_the_block_alone():
    x, y = tt.dvector("x"), tt.dvector("y")
    x.tag.trace = [[("file.py", 1, "function", "x = tt.dvector()")]]
    with opt.inherit_stack_trace(x):
        inner = tt.exp(y)
    outer = tt.exp(y)
    (inherited,) = x.tag.trace
    assert inherited in inner.tag.trace
    assert inherited not in outer.tag.trace


def test_blocks_within_blocks():
    x, y = tt.dvector("x"), tt.dvector("y")
    with pytest.raises(ZeroDivisionError), opt.inherit_stack_trace(x):
        with pytest.raises(KeyError), opt.inherit_stack_trace(y):
            raise KeyError
        assert len(Variable.construction_observers) == 1
        raise ZeroDivisionError
    assert Variable.construction_observers == []


def test_a_full_disk_is_an_error_that_names_the_folder(tmp_path, monkeypatch):
    def sleep(seconds):
        raise AssertionError("wait for a lock without owner")

    monkeypatch.setattr(compilelock.time, "sleep", sleep)
    with full_disk(tmp_path / "full") as folder:
        with pytest.raises(UnusableCompiledir, match=r"No space left on device: .*/full\nThe cure: free some space"):
            compilelock.lock(str(folder / "lock_dir"), min_wait=0, max_wait=0)
        assert not (folder / "lock_dir").exists()


def test_the_lock_is_taken(tmp_path):
    compilelock.lock(str(tmp_path / "new" / "lock_dir"))
    assert (tmp_path / "new" / "lock_dir" / "lock").read_text()


#: Compute convolutions and their gradients in all border modes. Theano's warning about the missing compiler comes
#: first.
PROGRAM = """
import warnings
import optdb, numpy as np, theano, theano.tensor as tt
warnings.simplefilter("error")

def check(dims, out, *arrays):
    variables = [tt.TensorType("float32", (False,) * array.ndim)() for array in arrays]
    result = out(*variables)
    outputs = [result, *tt.grad((result**2).sum(), variables)]
    expected = theano.function(variables, outputs, mode=theano.Mode("py", None))(*arrays)
    for mode in MODES:
        function = theano.function(variables, outputs, mode=mode if mode != "simulator" else theano.Mode("py"))
        if mode == "simulator":
            function = optdb.SimulatorOCL(function)
        for ours, theirs in zip(function(*arrays), expected):
            np.testing.assert_allclose(ours, theirs, 1e-3, 1e-3)
    with optdb.enable():
        for ours, theirs in zip(theano.function(variables, outputs)(*arrays), expected):
            np.testing.assert_allclose(ours, theirs, 1e-3, 1e-3)

rng = np.random.RandomState(0)
def array(*shape):
    return rng.uniform(0.5, 1, shape).astype("float32")
"""

FLAT = """
MODES = ["OPENCL", "TOPO", "FAST_RUN", "FAST_COMPILE", theano.Mode("py"), optdb.mode("FAST_RUN"), "simulator"]
for border in ("valid", "half", "full", 1, (1, 2), ((0, 1), (2, 0))):
    for step in (1, 2):
        how = {"border_mode": border, "subsample": (step, step), "filter_flip": step == 1}
        check(2, lambda x, w: tt.nnet.conv2d(x, w, **how), array(2, 3, 5, 5), array(2, 3, 3, 2))
check(2, lambda x, w: tt.nnet.conv2d(x, w, num_groups=2, filter_dilation=(2, 1)), array(2, 4, 5, 5), array(4, 2, 2, 2))
check(2, lambda x, w: tt.nnet.conv2d(x, w, unshared=True), array(2, 4, 4, 4), array(4, 2, 2, 4, 3, 3))
"""

DEEP = """
MODES = ["OPENCL", "TOPO", "FAST_RUN", "simulator"]
for border in ("valid", "half", "full", (1, 2, 0)):
    how = {"border_mode": border, "subsample": (2, 1, 1)}
    check(3, lambda x, w: tt.nnet.conv3d(x, w, **how), array(2, 2, 4, 4, 4), array(3, 2, 2, 2, 2))
"""


def in_a_process(program, **flags):
    """Run a program without a compiler; return its output on stderr."""
    names = {"cxx": "", "floatX": "float32", **flags}
    given = os.environ.get("THEANO_FLAGS", "")
    flags = ",".join([*([given] if given else []), *(f"{name}={value}" for name, value in names.items())])
    process = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "THEANO_FLAGS": flags},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not process.returncode, process.stderr
    return process.stderr


@pytest.mark.thorough_cases("flat")
@pytest.mark.slow
@pytest.mark.parametrize("cases", [FLAT, DEEP], ids=["flat", "deep"])
def test_convolutions_are_compiled_quietly(cases):
    written = in_a_process(PROGRAM + cases)
    assert "no c++ compiler" in written
    assert "ERROR" not in written


@pytest.fixture
def half():
    """Return variables, and a padded convolution of them."""
    x, w = tt.ftensor4(), tt.ftensor4()
    return [x, w], tt.nnet.conv2d(x, w, border_mode="half")


@pytest.mark.parametrize("mode", [optdb.mode(theano.Mode("py")), theano.Mode("py")], ids=["engine", "Theano"])
def test_without_a_compiler_a_padded_convolution_stays(mode, half):
    with theano.change_flags(cxx=""):
        function = theano.function(*half, mode=mode)
    assert [type(node.op) for node in function.maker.fgraph.apply_nodes] == [AbstractConv2d]
    x, w = np.ones((1, 1, 2, 2), "float32"), np.ones((1, 1, 3, 3), "float32")
    np.testing.assert_array_equal(function(x, w), np.full((1, 1, 2, 2), 4, "float32"))


def test_with_a_compiler_the_host_refuses_as_before(half):
    mode = theano.Mode("py").excluding("conv_gemm")
    with (
        theano.change_flags(cxx="a-compiler", on_opt_error="ignore"),
        pytest.raises(AssertionError, match="there is no implementation available"),
    ):
        theano.function(*half, mode=mode)


@pytest.mark.parametrize("cxx", ["", theano.config.cxx])
def test_a_device_convolves_float16_with_a_compiler_and_without(cxx):
    x, w = (tt.TensorType("float16", (False,) * 4)() for _ in range(2))
    with theano.change_flags(cxx=cxx):
        function = theano.function([x, w], tt.nnet.conv2d(x, w, border_mode="half"), mode="OPENCL")
        got = function(np.ones((1, 1, 2, 2), "float16"), np.ones((1, 1, 3, 3), "float16"))
    np.testing.assert_array_equal(got, np.full((1, 1, 2, 2), 4, "float16"))
