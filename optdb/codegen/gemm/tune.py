"""Tuning: measures the choices for products on a device, and records the measurements in the device's tuning table.

Functions that are already compiled keep their choices. All functions raise OSError if results cannot be saved.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from optdb.codegen.gemm import blocks, tensor_cores, tuning_table, warpgroups
from optdb.codegen.gemm.blocks import LIBRARY, Block, table_class
from optdb.codegen.gemm.launches import GemmPlan, by_tiles, run
from optdb.codegen.gemm.problem import CLASSES, FEW, SMALL, TINY, Problem, steps
from optdb.codegen.gemm.products import kernels_of, plan_with
from optdb.codegen.gemm.tensor_kernels import Arithmetic, TensorBlock, dtype_of, kernel_name, tensor_kernel
from optdb.codegen.gemm.warpgroups import Speed
from optdb.codegen.kernels import CompiledKernel, try_compile
from optdb.codegen.source import work_dtype
from optdb.runtime import clblast
from optdb.runtime.arrays import empty, from_host, to_host

if TYPE_CHECKING:
    from optdb.runtime.context import Context

#: Number of timings of each candidate, and time limit in seconds for the repetitions in one timing.
TURNS, SECONDS = 3, 0.05
#: Rows, columns and terms of the product that checks a block shape; no block size divides any of them.
_TRIAL = (131, 77, 67)
#: Maximum error of a product in TF32, relative to the product of absolute values.
_TENSOR_ERROR = 2.0**-9
#: Number of terms in the timed products with tiles on tensor cores, and in the shorter product with packed matrices.
_TERMS, _PACKED_TERMS = 1024, 2048
#: Maximum number of groups per compute unit, and minimum speedup for an additional group.
_MOST_GROUPS, _GROUP_GAIN = 8, 1.02


@dataclass(frozen=True)
class Result:
    """The result of tuning one class of products."""

    #: The class of products.
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
    """Return rows, columns and terms of typical products in a class, on a device of `units` compute units."""
    if name == "flat":
        return [(16, 4096, 144), (20, 800, 200)]
    if name == "narrow":
        return [(4096, 10, 144), (800, 20, 200)]
    if name == "square":
        side = 1024
        while side * side < SMALL * units:
            side *= 2
        return [(side, side, side), (side, side, 256)]
    # A product with fewer rows or columns would be flat or narrow.
    side = max(math.isqrt(units * (TINY // 2 if name == "tiny" else SMALL // 2)), FEW + 2)
    side = max(side // 32, 1) * 32 if side > 64 else side
    return [(side, side, side), (side + 4, side + 8, 4 * side)]


def tune(context: Context, dtype: str, library: bool = True) -> list[Result]:
    """Measure block shapes for each class of products, record the times, and make later functions use the best shapes.

    With `library`, CLBlast is also measured if it is installed; its first product takes some seconds.
    """
    defaults = blocks.defaults(context, dtype)
    trials = _Trials(context, dtype, {*blocks.candidates(context, dtype), *defaults.values()})
    rows, results = {}, []
    for name in CLASSES:
        products = typical(name, context.profile.compute_units)
        seconds, of_library = trials.time(products), math.inf
        times = {block.name: [taken] for block, taken in seconds.items()}
        if library and clblast.find() is not None:
            of_library = trials.time_library(products)
            times |= {LIBRARY: [of_library]} if of_library < math.inf else {}
        rows[table_class(dtype, name)] = times
        best = blocks.fastest(seconds, defaults[name])
        work = 2e-9 * math.exp(sum(math.log(m * n * k) for m, n, k in products) / len(products))
        speeds = {block: work / taken for block, taken in seconds.items()}
        default_speed = speeds.get(defaults[name], 0.0)
        results.append(Result(name, best, defaults[name], speeds[best], default_speed, work / of_library))
    tuning_table.record(context, rows)
    blocks.choose(context, dtype, None)
    return results


class _Trials:
    """The block shapes that compute a product correctly, and their timing."""

    def __init__(self, context: Context, dtype: str, candidates: Iterable[Block]) -> None:
        self.context = context
        self.dtype = dtype
        self.kernels: dict[Block, Mapping[str, CompiledKernel]] = {}
        self._error = 8 * float(np.finfo(dtype).eps)
        for block in sorted(candidates, key=lambda block: block.name):
            name = f"the candidate {block.name}"
            kernels = try_compile(kernels_of({block}, dtype, context), context, name, f"{name} is skipped")
            if kernels is None:
                continue
            trial = TrialProduct(context, dtype, *_TRIAL)
            trial.compute(self._plan(block, trial.problem), kernels)
            if trial.is_correct(self._error):
                self.kernels[block] = kernels
        if not self.kernels:
            raise RuntimeError(f"no candidate multiplies matrices of {dtype} correctly on {context.profile.name}")

    def time(self, products: list[tuple[int, int, int]]) -> dict[Block, float]:
        """Return the geometric mean of each candidate's times for some products, in seconds."""
        seconds = {block: [math.inf] * len(products) for block in self.kernels}
        for i, lengths in enumerate(products):
            trial = TrialProduct(self.context, self.dtype, *lengths)
            computing = {
                block: functools.partial(trial.compute, self._plan(block, trial.problem), kernels)
                for block, kernels in self.kernels.items()
            }
            for _ in range(TURNS):
                for block, compute in computing.items():
                    seconds[block][i] = min(seconds[block][i], best_seconds(self.context, compute))
        return {block: math.exp(sum(map(math.log, each)) / len(each)) for block, each in seconds.items()}

    def time_library(self, products: list[tuple[int, int, int]]) -> float:
        """Return CLBlast's time for products, like `time`; infinity if CLBlast refuses them, or a result is wrong."""
        logs = []
        for lengths in [_TRIAL, *products]:
            trial = TrialProduct(self.context, self.dtype, *lengths)
            a, b, z = (trial.arrays[letter] for letter in "abz")
            compute = functools.partial(clblast.multiply, self.context.queue, a, b, z)
            if not compute() or (lengths == _TRIAL and not trial.is_correct(self._error)):
                return math.inf
            logs.append(math.log(min(best_seconds(self.context, compute) for _ in range(TURNS))))
        return math.exp(sum(logs[1:]) / len(products))

    def _plan(self, block: Block, problem: Problem) -> GemmPlan:
        return plan_with(dict.fromkeys(CLASSES, block), self.context, self.dtype, problem)


def tune_tensor_cores(context: Context, terms: int = _TERMS) -> tensor_cores.Rates:
    """Measure the rates of each shape of tiles on tensor cores, and use them from now on.

    A shape whose kernel does not build or returns wrong results has no rates. If no shape has rates, nothing changes.
    """
    rates = {}
    for block in tensor_cores.fitting(context, tensor_cores.CANDIDATES):
        needed = [tensor_kernel(block, "tf32", (True, False), context.options.instructions)]
        kernels = try_compile(needed, context, block.name, "This tile shape is not used")
        if kernels is None:
            continue
        trial, compute = _tensor_trial(context, block, kernels, 1, 3 * block.depth + 4)
        compute()
        if trial.is_correct(_TENSOR_ERROR):
            rates[block] = _rates(context, block, kernels, terms)
    if rates:
        tuning_table.record(context, {tensor_cores.TILES: {block.name: of for block, of in rates.items()}})
    return rates


def _rates(
    context: Context, block: TensorBlock, kernels: Mapping[str, CompiledKernel], terms: int
) -> tuple[float, ...]:
    rates: list[float] = []
    for groups in range(1, _MOST_GROUPS + 1):
        _, compute = _tensor_trial(context, block, kernels, groups, terms)
        rate = 2e-12 * block.rows * block.cols * groups * terms / best_seconds(context, compute)
        if rates and rate < _GROUP_GAIN * rates[-1]:
            break
        rates.append(rate)
    return tuple(rates)


def _tensor_trial(
    context: Context, block: TensorBlock, kernels: Mapping[str, CompiledKernel], groups: int, terms: int
) -> tuple[TrialProduct, Callable[[], None]]:
    """Return a product with `groups` tiles for each compute unit, and the function that computes the product."""
    trial = TrialProduct(context, "float32", block.rows * context.profile.compute_units, block.cols * groups, terms)
    plan = by_tiles(trial.problem, kernel_name(block, "tf32", (True, False)), block, 1)
    return trial, functools.partial(trial.compute, plan, kernels)


def tune_packed(context: Context, arithmetic: Arithmetic, terms: int = _PACKED_TERMS) -> Speed | None:
    """Measure the speeds of packing matrices and of multiplying packed matrices, and use them for later choices.

    The difference between products of different lengths excludes launch overhead. Return None, and change nothing, if
    the device does not support such products, returns wrong results, or is too busy for valid measurements.
    """
    if not warpgroups.is_possible(context):
        return None
    needed = warpgroups.kernels(context, arithmetic)
    kernels = try_compile(needed, context, f"packed products by {arithmetic}", "Matrix products use other tiles")
    if kernels is None:
        return None
    # Each stage of the ring is used twice, and the first one partially a third time.
    block = warpgroups.block_of(context)
    uneven = _PackedTrial(context, arithmetic, 2 * block.stages * warpgroups.terms_of(arithmetic, block.depth) + 4)
    uneven.compute(uneven.plan, kernels)
    if not uneven.is_correct(_TENSOR_ERROR):
        return None
    short, long = (_PackedTrial(context, arithmetic, n).timed(kernels) for n in (terms, 2 * terms))
    operations, nbytes, packing, whole = (b - a for a, b in zip(short, long, strict=True))
    if not 0 < packing < whole:
        return None
    speed = Speed(1e-12 * operations / (whole - packing), 1e-9 * nbytes / packing)
    tuning_table.record(context, {warpgroups.packed_class(arithmetic): {block.name: speed}})
    return speed


class TrialProduct:
    """A product of random C-contiguous matrices."""

    def __init__(self, context: Context, dtype: str, m: int, n: int, terms: int) -> None:
        rng = np.random.default_rng(terms)
        self._context, self._dtype = context, dtype
        self._values = [rng.uniform(-1, 1, shape).astype(dtype) for shape in ((m, terms), (terms, n))]
        a, b = (from_host(context, value) for value in self._values)
        z = empty(context, (m, n), dtype)
        #: The matrices and the result, by letter.
        self.arrays = {"a": a, "b": b, "y": z, "z": z}
        self.problem = Problem(1, m, n, terms, steps(a, 1), steps(b, 1), steps(z, 1), steps(z, 1), False)

    def compute(self, plan: GemmPlan, kernels: Mapping[str, CompiledKernel]) -> None:
        """Enqueue a plan's launches."""
        run(plan, kernels, self._context, self.arrays, 1.0, 0.0, work_dtype(self._dtype))

    def is_correct(self, error: float) -> bool:
        """Return whether the result's error, relative to the product of absolute values, is within a bound."""
        a, b = (value.astype("float64") for value in self._values)
        return bool((abs(to_host(self.arrays["z"]) - a @ b) <= error * (abs(a) @ abs(b))).all())


class _PackedTrial(TrialProduct):
    """A product of packed matrices that gives each compute unit one tile."""

    def __init__(self, context: Context, arithmetic: Arithmetic, terms: int) -> None:
        block, units = warpgroups.block_of(context), context.profile.compute_units
        high = math.gcd(units, 12)
        super().__init__(context, dtype_of(arithmetic), block.rows * high, block.cols * (units // high), terms)
        self.plan = warpgroups.plan(self.problem, arithmetic, block)
        self._packed_bytes = warpgroups.packed_bytes(self.problem, arithmetic, block)

    def timed(self, kernels: Mapping[str, CompiledKernel]) -> tuple[float, float, float, float]:
        """Return the operations per unit, the bytes that packing moves, the time for packing, and the total time."""
        packing = GemmPlan(self.plan.launches[:2], copies=self.plan.copies)
        packing_s, all_s = (
            best_seconds(self._context, functools.partial(self.compute, plan, kernels)) for plan in (packing, self.plan)
        )
        p, units = self.problem, self._context.profile.compute_units
        return 2.0 * p.m * p.n * p.k / units, 2.0 * self._packed_bytes, packing_s, all_s


def best_seconds(context: Context, enqueue: Callable[[], object]) -> float:
    """Return the shortest run time of `work`, after a warm-up in which drivers compile and allocate."""
    enqueue()
    context.queue.finish()
    best, begin = float("inf"), time.perf_counter()
    while time.perf_counter() - begin < SECONDS:
        start = time.perf_counter()
        enqueue()
        context.queue.finish()
        best = min(best, time.perf_counter() - start)
    return best
