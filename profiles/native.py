"""C functions, compiled by g++ for this processor: a reference in addition to Theano and NumPy."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

FLAGS = ("-O3", "-march=native", "-fopenmp", "-fPIC")
#: Only for the compiler: given to the linker, it makes the whole process flush subnormal numbers to zero.
FAST_MATH = "-ffast-math"

_EXP_TIMES = """
#include <cmath>
extern "C" void exp_times(const float *x, const float *y, float *z, long n) {
    #pragma omp parallel for simd
    for (long i = 0; i < n; ++i)
        z[i] = std::exp(x[i]) * y[i];
}
"""


def available() -> bool:
    """Whether there is a g++."""
    return shutil.which("g++") is not None


def exp_times(x: np.ndarray, y: np.ndarray) -> Callable[[], np.ndarray]:
    """Return a function that computes ``exp(x) * y`` for contiguous float32 arrays into one array."""
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
        subprocess.run(["g++", *FLAGS, FAST_MATH, "-c", str(code), "-o", str(compiled)], check=True)
        subprocess.run(["g++", *FLAGS, "-shared", str(compiled), "-o", str(library)], check=True)
        # A loaded library stays mapped when its file is removed.
        return ctypes.CDLL(str(library))
