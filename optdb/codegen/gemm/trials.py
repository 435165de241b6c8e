"""Timing of device work for tuning, and products to time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from optdb.codegen.gemm.launches import GemmPlan, run
from optdb.codegen.gemm.problem import Problem, steps
from optdb.codegen.kernels import CompiledKernel
from optdb.runtime.arrays import empty, from_host, to_host

if TYPE_CHECKING:
    from optdb.runtime.context import Context

#: The largest relative error of a product of two numbers that are rounded to TF32.
_ERROR = 2.0**-9

#: Time limit for repetitions, in seconds.
SECONDS = 0.05


def best_seconds(context: Context, enqueue: Callable[[], object]) -> float:
    """Return the shortest time in which work finishes, after a warm-up, in which drivers compile and allocate."""
    enqueue()
    context.queue.finish()
    best, begin = float("inf"), time.perf_counter()
    while time.perf_counter() - begin < SECONDS:
        start = time.perf_counter()
        enqueue()
        context.queue.finish()
        best = min(best, time.perf_counter() - start)
    return best


class TrialProduct:
    """A product of random C-contiguous matrices, for tensor cores."""

    def __init__(self, context: Context, dtype: str, m: int, n: int, terms: int) -> None:
        rng = np.random.default_rng(terms)
        self._context = context
        self._values = [rng.uniform(-1, 1, shape).astype(dtype) for shape in ((m, terms), (terms, n))]
        a, b = (from_host(context, value) for value in self._values)
        self._z = empty(context, (m, n), dtype)
        self._arrays = {"a": a, "b": b, "y": self._z, "z": self._z}
        z = steps(self._z, 1)
        self.problem = Problem(1, m, n, terms, steps(a, 1), steps(b, 1), z, z, False)

    def compute(self, plan: GemmPlan, kernels: Mapping[str, CompiledKernel]) -> None:
        """Enqueue a plan of the product."""
        run(plan, kernels, self._context, self._arrays, 1.0, 0.0, "float32")

    def is_right(self) -> bool:
        """Tell whether the result is right."""
        a, b = (value.astype("float64") for value in self._values)
        return bool((abs(to_host(self._z) - a @ b) <= _ERROR * (abs(a) @ abs(b))).all())
