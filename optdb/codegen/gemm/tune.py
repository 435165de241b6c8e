"""Finds the best block shapes for a device, by measuring them, and keeps them.

For each class of products there are a few typical ones. Each candidate has to compute a product right first, and is
then timed in turns with the others, so that what else the machine does disturbs all alike.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from optdb.codegen.fp16 import work_dtype
from optdb.codegen.gemm import blocks
from optdb.codegen.gemm.blocks import Block
from optdb.codegen.gemm.launches import GemmPlan, run
from optdb.codegen.gemm.problem import CLASSES, SMALL, TINY, Problem, classify, steps
from optdb.codegen.gemm.products import kernels_of, plan_with
from optdb.codegen.kernels import CompiledKernel, compile_kernels
from optdb.runtime import clblast
from optdb.runtime.arrays import Array, from_host, to_host

if TYPE_CHECKING:
    from optdb.runtime.context import Context

#: How often each candidate's turn comes, and for how many seconds it is timed then, at most.
TURNS, SECONDS = 3, 0.05
#: Another block than the default has to be so much faster.
GAIN = 1.05

#: Rows, columns and terms of the product that a candidate has to get right: none that a block divides.
_TRIAL = (131, 77, 67)


@dataclass(frozen=True)
class Result:
    """What was found for one class of products."""

    #: The class.
    name: str
    #: The best one, and the one used without tuning.
    block: Block
    default: Block
    #: Of both, in 1e9 operations a second, over the typical products.
    speed: float
    default_speed: float
    #: Of CLBlast; 0 where it is not there, or was not asked for.
    library_speed: float = 0.0


def typical(name: str, units: int) -> list[tuple[int, int, int]]:
    """Return rows, columns and terms of products of a class, on a device of so many units."""
    if name == "flat":
        return [(16, 4096, 144), (20, 800, 200)]
    if name == "narrow":
        return [(4096, 10, 144), (800, 20, 200)]
    if name == "square":
        side = 1024
        while side * side < SMALL * units:
            side *= 2
        return [(side, side, side), (side, side, 256)]
    side = math.isqrt(units * (TINY // 2 if name == "tiny" else SMALL // 2))
    side = max(side // 32, 1) * 32 if side > 64 else side
    return [(side, side, side), (side + 4, side + 8, 4 * side)]


def tune(context: Context, dtype: str, library: bool = True) -> list[Result]:
    """Measure all candidates; keep the best block shape of each class on disk, and use them from now on.

    Functions compiled before go on with those that they have.

    Parameters
    ----------
    context : Context
        Of the device.
    dtype : str
        Of the matrices.
    library : bool
        Whether to measure CLBlast, too, if it is installed. Its first product takes it some seconds.

    Raises
    ------
    OSError
        If what was found cannot be kept.
    """
    defaults = blocks.defaults(context, dtype)
    trials = _Trials(context, dtype, {*blocks.candidates(context, dtype), *defaults.values()})
    results = [_best(trials, name, defaults[name], library) for name in CLASSES]
    found = {result.name: result.block for result in results}
    library = frozenset(result.name for result in results if result.library_speed > GAIN * result.speed)
    blocks.save(context, dtype, blocks.Choice(found, library))
    blocks.choose(context, dtype, None)
    return results


def _best(trials: _Trials, name: str, default: Block, library: bool) -> Result:
    products = typical(name, trials.context.profile.compute_units)
    seconds = trials.time(name, products)
    best = min(seconds, key=seconds.__getitem__)
    if default in seconds and seconds[best] * GAIN > seconds[default]:
        best = default
    work = 2e-9 * math.exp(sum(math.log(m * n * k) for m, n, k in products) / len(products))
    speeds = {block: work / seconds[block] for block in seconds}
    theirs = work / trials.time_library(products) if library and clblast.find() is not None else 0.0
    return Result(name, best, default, speeds[best], speeds.get(default, 0.0), theirs)


class _Trials:
    """Candidates that compute the right thing, to be timed."""

    def __init__(self, context: Context, dtype: str, candidates: Iterable[Block]) -> None:
        self.context = context
        self.dtype = dtype
        self.kernels: dict[Block, Mapping[str, CompiledKernel]] = {}
        for block in sorted(candidates, key=lambda block: block.name):
            kernels = compile_kernels(kernels_of({block}, dtype, context), context, f"the candidate {block.name}")
            if self._is_right(block, kernels):
                self.kernels[block] = kernels

    def time(self, name: str, products: list[tuple[int, int, int]]) -> dict[Block, float]:
        """Return for each candidate how long products of a class take: the geometric mean, in seconds."""
        seconds = {block: [math.inf] * len(products) for block in self.kernels}
        for i, (m, n, k) in enumerate(products):
            a, b, z = (self._array(*shape) for shape in ((m, k), (k, n), (m, n)))
            plans = {block: self._plan(block, a, b, z, name) for block in self.kernels}
            for turn in range(TURNS):
                for block, kernels in self.kernels.items():
                    took = self._once(plans[block], kernels, a, b, z, warm=turn == 0)
                    seconds[block][i] = min(seconds[block][i], took)
        return {block: math.exp(sum(map(math.log, each)) / len(each)) for block, each in seconds.items()}

    def time_library(self, products: list[tuple[int, int, int]]) -> float:
        """Return how long CLBlast takes for some products, like `time`; infinity if it refuses, or gets them wrong."""
        queue, logs = self.context.queue, []
        for m, n, k in [(*_TRIAL[:2], _TRIAL[2]), *products]:
            a, b, z = (self._array(*shape) for shape in ((m, k), (k, n), (m, n)))
            if not clblast.multiply(queue, a, b, z) or ((m, n, k) == _TRIAL and not self._fits(a, b, z)):
                return math.inf
            logs.append(math.log(min(self._best_of(lambda: clblast.multiply(queue, a, b, z)) for _ in range(TURNS))))  # noqa: B023
        return math.exp(sum(logs[1:]) / len(products))

    def _once(
        self, planned: tuple[GemmPlan, bool], kernels: Mapping[str, CompiledKernel], *arrays: Array, warm: bool
    ) -> float:
        if warm:  # drivers compile and allocate at the first launch
            self._run(planned, kernels, *arrays)
            self.context.queue.finish()
        return self._best_of(lambda: self._run(planned, kernels, *arrays))

    def _best_of(self, compute: Callable[[], object]) -> float:
        best, begin = math.inf, time.perf_counter()
        while time.perf_counter() - begin < SECONDS:
            start = time.perf_counter()
            compute()
            self.context.queue.finish()
            best = min(best, time.perf_counter() - start)
        return best

    def _is_right(self, block: Block, kernels: Mapping[str, CompiledKernel]) -> bool:
        m, n, k = _TRIAL
        a, b, z = (self._array(*shape) for shape in ((m, k), (k, n), (m, n)))
        self._run(self._plan(block, a, b, z, None), kernels, a, b, z)
        return self._fits(a, b, z)

    def _fits(self, a: Array, b: Array, z: Array) -> bool:
        want = np.dot(to_host(a).astype("float64"), to_host(b).astype("float64"))
        return bool(np.allclose(to_host(z), want, rtol=0, atol=8 * np.finfo(self.dtype).eps * a.shape[1]))

    def _plan(self, block: Block, a: Array, b: Array, z: Array, name: str | None) -> tuple[GemmPlan, bool]:
        (m, k), n = a.shape, b.shape[1]
        problem = Problem(1, m, n, k, steps(a, 1), steps(b, 1), steps(z, 1), steps(z, 1), False)
        units = self.context.profile.compute_units
        if name is not None and classify(1, m, n, units) != name:
            raise ValueError(f"{m} by {n} is no typical product of the class {name} on a device of {units} units")
        return plan_with(dict.fromkeys(CLASSES, block), self.context, self.dtype, problem)

    def _run(
        self, planned: tuple[GemmPlan, bool], kernels: Mapping[str, CompiledKernel], a: Array, b: Array, z: Array
    ) -> None:
        arrays = {"a": a, "b": b, "y": z, "z": z}
        run(planned[0], kernels, self.context, arrays, 1.0, 0.0, work_dtype(self.dtype))

    def _array(self, *shape: int) -> Array:
        values = np.random.default_rng(sum(shape)).uniform(-1, 1, shape)
        return from_host(self.context, values.astype(self.dtype))
