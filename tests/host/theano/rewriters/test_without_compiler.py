"""Without a C compiler, everything that Python or a device can compute is compiled, and without warnings."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.tensor.nnet.abstract_conv import AbstractConv2d

import optdb

#: Convolutions and their gradients in all modes. Theano's warning about the missing compiler comes before.
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
