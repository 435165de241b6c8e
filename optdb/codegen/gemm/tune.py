"""Tuning of block shapes: measures candidates on a device, and saves the best ones.

Each class of products has a few typical ones. A candidate must first compute a product correctly. Then candidates are
timed in turns, so that other load on the machine affects all of them equally.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from optdb.codegen.gemm import blocks
from optdb.codegen.gemm.blocks import Block
from optdb.codegen.gemm.launches import run
from optdb.codegen.gemm.problem import CLASSES, FEW, SMALL, TINY, Problem, steps
from optdb.codegen.gemm.products import kernels_of, plan_with
from optdb.codegen.gemm.trials import best_seconds
from optdb.codegen.kernels import CompiledKernel, try_compile
from optdb.codegen.source import work_dtype
from optdb.runtime import clblast
from optdb.runtime.arrays import Array, from_host, to_host

if TYPE_CHECKING:
    from optdb.runtime.context import Context

#: Number of turns of each candidate.
TURNS = 3
#: The speedup that a block needs to replace the default.
GAIN = 1.05

#: Rows, columns and terms of the product that checks a candidate: no block divides them.
_TRIAL = (131, 77, 67)


@dataclass(frozen=True)
class Result:
    """The result of tuning one class of products."""

    #: Class of products.
    name: str
    #: The best block, and the default one.
    block: Block
    default: Block
    #: Speeds of both blocks on the typical products, in 1e9 operations per second.
    speed: float
    default_speed: float
    #: Speed of CLBlast; 0 if it is not installed, or was not requested.
    library_speed: float = 0.0


def typical(name: str, units: int) -> list[tuple[int, int, int]]:
    """Return rows, columns and terms of typical products of a class, on a device of `units` compute units."""
    if name == "flat":
        return [(16, 4096, 144), (20, 800, 200)]
    if name == "narrow":
        return [(4096, 10, 144), (800, 20, 200)]
    if name == "square":
        side = 1024
        while side * side < SMALL * units:
            side *= 2
        return [(side, side, side), (side, side, 256)]
    # Fewer rows or columns would be flat or narrow.
    side = max(math.isqrt(units * (TINY // 2 if name == "tiny" else SMALL // 2)), FEW + 2)
    side = max(side // 32, 1) * 32 if side > 64 else side
    return [(side, side, side), (side + 4, side + 8, 4 * side)]


def tune(context: Context, dtype: str, library: bool = True) -> list[Result]:
    """Measure all candidates; save the best block shape of each class on disk, and use them from now on.

    Functions compiled before keep their blocks. `library` says whether to also measure CLBlast, if it is installed;
    its first product takes some seconds. Raise OSError if the results cannot be saved.
    """
    defaults = blocks.defaults(context, dtype)
    trials = _Trials(context, dtype, {*blocks.candidates(context, dtype), *defaults.values()})
    results = [_best(trials, name, defaults[name], library) for name in CLASSES]
    best_blocks = {result.name: result.block for result in results}
    by_library = frozenset(result.name for result in results if result.library_speed > GAIN * result.speed)
    blocks.save(context, dtype, blocks.TunedBlocks(best_blocks, by_library))
    blocks.choose(context, dtype, None)
    return results


def _best(trials: _Trials, name: str, default: Block, library: bool) -> Result:
    products = typical(name, trials.context.profile.compute_units)
    seconds = trials.time(products)
    best = min(seconds, key=seconds.__getitem__)
    if default in seconds and seconds[best] * GAIN > seconds[default]:
        best = default
    work = 2e-9 * math.exp(sum(math.log(m * n * k) for m, n, k in products) / len(products))
    speeds = {block: work / seconds[block] for block in seconds}
    library_speed = work / trials.time_library(products) if library and clblast.find() is not None else 0.0
    return Result(name, best, default, speeds[best], speeds.get(default, 0.0), library_speed)


class _Trials:
    """The candidates that compute a product correctly, and their timing."""

    def __init__(self, context: Context, dtype: str, candidates: Iterable[Block]) -> None:
        self.context = context
        self.dtype = dtype
        self.kernels: dict[Block, Mapping[str, CompiledKernel]] = {}
        for block in sorted(candidates, key=lambda block: block.name):
            name = f"the candidate {block.name}"
            kernels = try_compile(kernels_of({block}, dtype, context), context, name, f"{name} is left out")
            if kernels is None:
                continue
            arrays = self._arrays(*_TRIAL)
            self._computing(block, kernels, *arrays)()
            if self._is_right(*arrays):
                self.kernels[block] = kernels
        if not self.kernels:
            raise RuntimeError(f"no candidate multiplies matrices of {dtype} correctly on {context.profile.name}")

    def time(self, products: list[tuple[int, int, int]]) -> dict[Block, float]:
        """Return the geometric mean of each candidate's times for some products, in seconds."""
        seconds = {block: [math.inf] * len(products) for block in self.kernels}
        for i, lengths in enumerate(products):
            arrays = self._arrays(*lengths)
            computing = {block: self._computing(block, kernels, *arrays) for block, kernels in self.kernels.items()}
            for _ in range(TURNS):
                for block, compute in computing.items():
                    seconds[block][i] = min(seconds[block][i], best_seconds(self.context, compute))
        return {block: math.exp(sum(map(math.log, each)) / len(each)) for block, each in seconds.items()}

    def time_library(self, products: list[tuple[int, int, int]]) -> float:
        """Return CLBlast's time for some products, like `time`; infinity if it refuses them, or a result is wrong."""
        logs = []
        for lengths in [_TRIAL, *products]:
            arrays = self._arrays(*lengths)
            compute = functools.partial(clblast.multiply, self.context.queue, *arrays)
            if not compute() or (lengths == _TRIAL and not self._is_right(*arrays)):
                return math.inf
            logs.append(math.log(min(best_seconds(self.context, compute) for _ in range(TURNS))))
        return math.exp(sum(logs[1:]) / len(products))

    def _is_right(self, a: Array, b: Array, z: Array) -> bool:
        want = np.dot(to_host(a).astype("float64"), to_host(b).astype("float64"))
        return bool(np.allclose(to_host(z), want, rtol=0, atol=8 * float(np.finfo(self.dtype).eps) * a.shape[1]))

    def _computing(
        self, block: Block, kernels: Mapping[str, CompiledKernel], a: Array, b: Array, z: Array
    ) -> Callable[[], None]:
        """Return a function that computes a product with blocks of one shape."""
        (m, k), n = a.shape, b.shape[1]
        problem = Problem(1, m, n, k, steps(a, 1), steps(b, 1), steps(z, 1), steps(z, 1), False)
        plan = plan_with(dict.fromkeys(CLASSES, block), self.context, self.dtype, problem)
        arrays, work = {"a": a, "b": b, "y": z, "z": z}, work_dtype(self.dtype)
        return lambda: run(plan, kernels, self.context, arrays, 1.0, 0.0, work)

    def _arrays(self, m: int, n: int, k: int) -> tuple[Array, Array, Array]:
        rng = np.random.default_rng(m + n + k)
        shapes = ((m, k), (k, n), (m, n))
        a, b, z = (from_host(self.context, rng.uniform(-1, 1, shape).astype(self.dtype)) for shape in shapes)
        return a, b, z
