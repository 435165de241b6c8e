"""Single operations that the device, Theano's C code, NumPy and a C program compute, to compare these contenders.

Each contender computes with arrays in the memory that it uses (the device's or the host's), and reuses its output
array, so that measurements exclude transfers. `profiles.stopwatch` times the contenders of a `Task`.
"""

from __future__ import annotations

import ctypes
import itertools
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import theano
import theano.tensor as tt
from theano.compile.mode import get_default_mode
from theano.tensor.var import TensorVariable

import optdb
from optdb import opencl
from profiles import lift, models
from profiles.steps_of_simulators import batches_of

CXX_FLAGS = ("-O3", "-march=native", "-fopenmp", "-fPIC")
#: This option is only passed to the compiler; the linker would make the whole process flush subnormal numbers to zero.
FAST_MATH = "-ffast-math"

_EXP_TIMES = """
#include <cmath>
extern "C" void exp_times(const float *x, const float *y, float *z, long n) {
    #pragma omp parallel for simd
    for (long i = 0; i < n; ++i)
        z[i] = std::exp(x[i]) * y[i];
}
"""


def has_cxx() -> bool:
    """Return whether there is a g++."""
    return shutil.which("g++") is not None


def exp_times(x: np.ndarray, y: np.ndarray) -> Callable[[], np.ndarray]:
    """Return a C function of no arguments that computes ``exp(x) * y`` for contiguous float32 arrays."""
    library = _library(_EXP_TIMES)
    z = np.empty_like(x)
    pointers = [value.ctypes.data_as(ctypes.c_void_p) for value in (x, y, z)]

    def run() -> np.ndarray:
        library.exp_times(*pointers, ctypes.c_long(x.size))
        return z

    return run


def _library(source: str) -> ctypes.CDLL:
    with tempfile.TemporaryDirectory(prefix="optdb-") as folder:
        code, compiled, library = Path(folder, "code.cpp"), Path(folder, "code.o"), Path(folder, "code.so")
        code.write_text(source)
        subprocess.run(["g++", *CXX_FLAGS, FAST_MATH, "-c", str(code), "-o", str(compiled)], check=True)
        subprocess.run(["g++", *CXX_FLAGS, "-shared", str(compiled), "-o", str(library)], check=True)
        # A loaded library stays mapped when its file is removed.
        return ctypes.CDLL(str(library))


DEVICE, THEANO, OPENMP, NUMPY, NATIVE = "device", "Theano C", "Theano C, OpenMP", "NumPy", "g++"
CONTENDERS = (DEVICE, THEANO, OPENMP, NUMPY, NATIVE)

TURN, SETTLE = 0.25, 5.0
"""Seconds of consecutive training steps in a turn, and those of the warm-up, in which plans are made and merged."""

BATCHES = 4
"""A training step gets so many batches in turn, since labels that never change would cost less than others."""

Contender = Callable[[], object]


@dataclass(frozen=True)
class Task:
    """A computation; each contender is a function that makes the computation and waits for the result."""

    name: str
    contenders: dict[str, Contender]
    turn: float = 0.0
    settle: float = 0.0


def tasks(elements: int, side: int, products: Sequence[int], device: str = "opencl") -> Iterator[Task]:
    """Yield the tasks; the arrays of a task are freed before the next task is made.

    `elements` is the length of vectors in elementwise ops. `side` and `products` are the numbers of rows of square
    matrices.
    """
    yield _exp_times(elements, device)
    for what, axis in (("all", None), ("rows", 1), ("columns", 0)):
        yield _sum(side, what, axis, device)
    for n in products:
        yield _product(n, device)


def _exp_times(n: int, device: str) -> Task:
    x, y = _numbers(n), _numbers(n)
    z = np.empty_like(x)

    def by_numpy() -> np.ndarray:
        np.exp(x, out=z)
        return np.multiply(z, y, out=z)

    contenders = _by_theano(device, [x, y], lambda a, b: tt.exp(a) * b)
    with theano.change_flags(openmp=True):
        contenders[OPENMP] = _on_host([x, y], lambda a, b: tt.exp(a) * b)
    contenders[NUMPY] = by_numpy
    if has_cxx():
        contenders[NATIVE] = exp_times(x, y)
    return Task(f"exp(x) * y, {n:,} elements", contenders)


def _sum(side: int, what: str, axis: int | None, device: str) -> Task:
    x = _numbers(side, side)
    contenders = _by_theano(device, [x], lambda a: tt.sum(a, axis=axis))
    # Theano sums float32 in float64, so all other contenders do so too.
    contenders[NUMPY] = lambda: x.sum(axis=axis, dtype="float64")
    return Task(f"sum of {what}, {side} x {side}", contenders)


def _product(n: int, device: str) -> Task:
    a, b = _numbers(n, n), _numbers(n, n)
    z = np.empty_like(a)
    contenders = _by_theano(device, [a, b], tt.dot)
    contenders[NUMPY] = lambda: np.dot(a, b, out=z)
    return Task(f"product, {n} x {n}", contenders)


def _numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).uniform(-1, 1, shape).astype("float32")


Expression = Callable[..., TensorVariable]


def _by_theano(device: str, values: Sequence[np.ndarray], expression: Expression) -> dict[str, Contender]:
    return {DEVICE: _on_device(device, values, expression), THEANO: _on_host(values, expression)}


def _on_host(values: Sequence[np.ndarray], expression: Expression) -> Contender:
    inputs = [theano.shared(value, target="cpu", borrow=True) for value in values]
    return theano.function([], theano.Out(expression(*inputs), borrow=True))


def _on_device(device: str, values: Sequence[np.ndarray], expression: Expression) -> Contender:
    with lift.default_context(device) as name:
        inputs = [theano.shared(value, target=name) for value in values]
        output = theano.Out(expression(*inputs).transfer(name), borrow=True)
        function = theano.function([], output, mode=get_default_mode().including("opencl"))
    queue = opencl.get_context(name).queue

    def run() -> object:
        result = function()
        queue.finish()
        return result

    return run


def training_step(name: str, device: str = "opencl", **sizes: object) -> Task:
    """Return the task of making a training step in floatX, on the device and in C; data and results are on the host."""
    mode = get_default_mode()
    contenders = {}
    with optdb.enable():
        with lift.default_context(device):
            contenders[DEVICE] = _step(models.build(name, **sizes), mode.including("opencl"))
        contenders[THEANO] = _step(models.build(name, **sizes), mode)
    described = ", ".join(f"{size}={value}" for size, value in sizes.items())
    return Task(f"training step, {name}" + (f" ({described})" if described else ""), contenders, TURN, SETTLE)


def _step(model: models.Model, mode: theano.Mode) -> Contender:
    function = theano.function(model.inputs, model.outputs, updates=model.updates, mode=mode)
    batches = itertools.cycle([model.data, *batches_of(model, BATCHES - 1)])
    return lambda: function(*next(batches))
