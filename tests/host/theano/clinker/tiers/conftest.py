"""Fixtures: a compiler that waits for the test, and an op whose module is always missing."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import threading

import pytest
import theano
import theano.tensor as tt
from theano.gof import Apply, Op

from optdb.host.theano.clinker import plug
from optdb.host.theano.clinker.tiers.background import background
from optdb.host.theano.clinker.tiers.runner import Cancelled

_numbers = itertools.count()


class Gate:
    """A compiler that starts when the test opens the gate."""

    def __init__(self):
        self.is_open = threading.Event()
        self.started = threading.Event()
        self.cancelled = threading.Event()
        self.commands = []
        self.fails = False

    def run(self, command, is_needed, env=None):
        self.commands.append(command)
        self.started.set()
        while not self.is_open.wait(0.01):
            if not is_needed():
                self.cancelled.set()
                raise Cancelled
        if self.fails:
            return False
        return subprocess.run(command, env=env, check=False, capture_output=True).returncode == 0


@pytest.fixture
def gate(monkeypatch):
    """Enable tiers, and make the background compiler wait until the test opens the returned gate."""
    if shutil.which("g++") is None or not theano.config.cxx:
        pytest.skip("there is no g++")
    gate = Gate()
    monkeypatch.setattr(background, "run", gate.run)
    plug.install()
    with theano.change_flags(**{"optdb.tiered": True}):
        yield gate
    gate.is_open.set()
    background.wait(list(background._jobs.values()))


class Times(Op):
    """An op that multiplies by a number; its C code has no version, so each process builds it."""

    __props__ = ("factor", "number", "in_place")

    def __init__(self, factor, in_place=False):
        self.factor, self.number, self.in_place = factor, next(_numbers), in_place
        if in_place:
            self.destroy_map = {0: [0]}

    def make_node(self, x):
        x = tt.as_tensor_variable(x)
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        (x,) = inputs
        outputs[0][0] = x * self.factor

    def c_code_cache_version(self):
        return ()

    def c_code(self, node, name, inputs, outputs, sub):
        (x,), (z,) = inputs, outputs
        return f"""
            /* {self.number} */
            if (!{z} || PyArray_SIZE({z}) != PyArray_SIZE({x})) {{
                Py_XDECREF({z});
                {z} = (PyArrayObject*) PyArray_EMPTY(PyArray_NDIM({x}), PyArray_DIMS({x}), NPY_FLOAT64, 0);
            }}
            for (npy_intp i = 0; i < PyArray_SIZE({x}); ++i)
                ((double*) PyArray_DATA({z}))[i] = *(double*) PyArray_GETPTR1({x}, i) * {self.factor};
        """


class TimesInC(Times):
    """`Times` without Python code."""

    def perform(self, node, inputs, outputs):
        raise NotImplementedError("only C code")


@pytest.fixture
def times():
    """Return a function that makes a new op."""
    return Times


@pytest.fixture
def times_in_c():
    """Return a function that makes a new op without Python code."""
    return TimesInC
