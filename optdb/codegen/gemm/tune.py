"""Tuning: measures the choices for products on a device, and records the measurements in the device's tuning table.

Functions that are already compiled keep their choices. All functions raise OSError if results cannot be saved.
"""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from optdb.codegen.gemm import blocks, tensor_cores, tuning_table, warpgroups
from optdb.codegen.gemm.blocks import LIBRARY, Block, table_class
from optdb.codegen.gemm.launches import GemmPlan, by_tiles, run
from optdb.codegen.gemm.problem import CLASSES, FEW, SMALL, TINY, Arithmetic, Problem, dtype_of, steps
from optdb.codegen.gemm.products import kernels_of, plan_with
from optdb.codegen.gemm.tensor_cores import instructions_of, kernel_name, tensor_kernel
from optdb.codegen.gemm.warpgroups import WarpgroupTile
from optdb.codegen.kernels import Kernel, try_compile
from optdb.runtime import clblast
from optdb.runtime.arrays import empty, from_host, to_host

if TYPE_CHECKING:
    from optdb.runtime.context import Context

#: Computes a product with one of the choices; returns False if the choice does not support the product.
Compute = Callable[["TrialProduct"], object]
#: Number of measurements of each choice, and the seconds for which each measurement repeats the product.
TURNS, SECONDS = 3, 0.05
#: Numbers of rows, columns and terms of the product that checks a block shape; no block size divides any of them.
_TRIAL = (131, 77, 67)
#: Maximum error of a product in TF32, relative to the product of the matrices' absolute values.
_TENSOR_ERROR = 2.0**-9
#: Number of terms in the products that measure tiles on tensor cores. For warpgroups, the number of terms in the
#: shorter one of the two products that measure a stage, and the number of tiles per work group in the product that
#: measures the time per tile.
_TERMS, _WARPGROUP_TERMS, _ROUNDS = 1024, 1 << 14, 9
#: A tile's measured times are used only if the time per additional term varies by less than this factor.
_UNEVEN = 1.5
#: Maximum number of work groups per compute unit, and the speedup that each additional group must bring.
_MOST_GROUPS, _GROUP_GAIN = 8, 1.02


@dataclass(frozen=True)
class Result:
    """The result of tuning one class of products."""

    #: The class of products.
    name: str
    #: The fastest block and the default block.
    block: Block
    default: Block
    #: Speeds of the fastest and the default block on typical products of the class, in 1e9 operations per second.
    speed: float
    default_speed: float
    #: Speed of CLBlast; 0 if it is not installed, or was not requested.
    library_speed: float = 0.0


def typical(name: str, units: int) -> list[tuple[int, int, int]]:
    """Return rows, columns and terms of typical products in a class, on a device with `units` compute units."""
    if name == "flat":
        return [(16, 4096, 144), (20, 800, 200)]
    if name == "narrow":
        return [(4096, 10, 144), (800, 20, 200)]
    if name == "square":
        side = 1024
        while side * side < SMALL * units:
            side *= 2
        return [(side, side, side), (side, side, 256)]
    # With fewer rows or columns, a product would be classified as flat or narrow.
    side = max(math.isqrt(units * (TINY // 2 if name == "tiny" else SMALL // 2)), FEW + 2)
    side = max(side // 32, 1) * 32 if side > 64 else side
    return [(side, side, side), (side + 4, side + 8, 4 * side)]


def tune(context: Context, dtype: str, library: bool = True) -> list[Result]:
    """Measure block shapes for each class of products, record the times, and make later functions use the best shapes.

    If `library` is true, CLBlast is also measured if it is installed; its first product takes several seconds.
    """
    defaults = blocks.defaults(context, dtype)
    candidates = {*blocks.candidates(context, dtype), *defaults.values()}
    choices = correct_choices(context, dtype, candidates, library and clblast.find() is not None)
    rows, results = {}, []
    for name, default in defaults.items():
        lengths = typical(name, context.profile.compute_units)
        seconds = times(choices, [TrialProduct(context, dtype, *each) for each in lengths])
        rows[table_class(dtype, name)] = {choice: [taken] for choice, taken in seconds.items() if taken < math.inf}
        of_blocks = {block: seconds[block.name] for block in candidates if block.name in seconds}
        best = blocks.fastest(of_blocks, default)
        work = 2e-9 * math.exp(sum(math.log(m * n * k) for m, n, k in lengths) / len(lengths))
        speeds = [work / seconds.get(choice, math.inf) for choice in (best.name, default.name, LIBRARY)]
        results.append(Result(name, best, default, *speeds))
    tuning_table.record(context, rows)
    blocks.choose(context, dtype, None)
    return results


def correct_choices(context: Context, dtype: str, candidates: set[Block], library: bool) -> dict[str, Compute]:
    """Return functions that multiply correctly, keyed by name: one for each block, and optionally one for CLBlast."""
    error = 8 * float(np.finfo(dtype).eps)
    choices: dict[str, Compute] = {}
    for block in sorted(candidates, key=lambda block: block.name):
        plan_of = functools.partial(plan_with, dict.fromkeys(CLASSES, block), context, dtype)
        name, trial = f"the candidate {block.name}", TrialProduct(context, dtype, *_TRIAL)
        compute = _correct(trial, error, kernels_of({block}, dtype, context), plan_of, name)
        if compute is not None:
            choices[block.name] = compute
    if not choices:
        raise RuntimeError(f"no candidate multiplies matrices of {dtype} correctly on {context.profile.name}")
    trial = TrialProduct(context, dtype, *_TRIAL)
    if library and _by_library(trial) and trial.is_correct(error):
        choices[LIBRARY] = _by_library
    return choices


def _by_library(trial: TrialProduct) -> bool:
    a, b, z = (trial.arrays[letter] for letter in "abz")
    return clblast.multiply(trial.context.queue, a, b, z)


def _correct(
    trial: TrialProduct, error: float, needed: Sequence[Kernel], plan_of: Callable[[Problem], GemmPlan], name: str
) -> Compute | None:
    """Return a function that runs the plan of a product; None if kernels do not build, or compute `trial` wrongly."""
    kernels = try_compile(needed, trial.context, name, f"{name} is skipped")
    if kernels is None:
        return None

    def compute(trial: TrialProduct) -> None:
        run(plan_of(trial.problem), kernels, trial.context, trial.arrays, 1.0, 0.0)

    compute(trial)
    return compute if trial.is_correct(error) else None


def times(choices: Mapping[str, Compute], products: Sequence[TrialProduct]) -> dict[str, float]:
    """Return the geometric mean of each choice's seconds for the products; infinity if a product is unsupported."""
    logs = dict.fromkeys(choices, 0.0)
    for trial in products:
        shortest = dict.fromkeys(choices, math.inf)
        for _ in range(TURNS):
            for name, compute in choices.items():
                if compute(trial) is not False:
                    shortest[name] = min(shortest[name], trial.seconds(compute))
        for name, taken in shortest.items():
            logs[name] += math.log(taken) / len(products)
    return {name: math.exp(log) for name, log in logs.items()}


def tune_tensor_cores(context: Context, terms: int = _TERMS) -> tensor_cores.Rates:
    """Measure how fast tensor cores are with each tile shape, and use these rates for later choices.

    A shape whose kernel does not build or returns wrong results has no rates. If no shape has rates, nothing changes.
    """
    found, along, units = {}, (True, False), context.profile.compute_units
    for block in tensor_cores.fitting(context, tensor_cores.CANDIDATES):
        needed, m = [tensor_kernel(block, "tf32", along, instructions_of(context))], block.rows * units
        plan_of = functools.partial(by_tiles, kernel=kernel_name(block.name, "tf32", along), tile=block, parts=1)
        trial = TrialProduct(context, "float32", m, block.cols, 3 * block.depth + 4)
        compute = _correct(trial, _TENSOR_ERROR, needed, plan_of, block.name)
        if compute is None:
            continue
        rates: list[float] = []
        for groups in range(1, _MOST_GROUPS + 1):
            taken = TrialProduct(context, "float32", m, block.cols * groups, terms).seconds(compute)
            rate = 2e-12 * block.rows * block.cols * groups * terms / taken
            if rates and rate < _GROUP_GAIN * rates[-1]:
                break
            rates.append(rate)
        found[block] = tuple(rates)
    if found:
        tuning_table.record(context, {tensor_cores.TILES: {block.name: rates for block, rates in found.items()}})
    return found


def tune_warpgroups(
    context: Context, arithmetic: Arithmetic, terms: int = _WARPGROUP_TERMS
) -> Mapping[WarpgroupTile, warpgroups.TileTimes]:
    """Measure the times of tiles for warpgroup instructions, and use the times for later choices.

    The times exclude launch overhead, because they are differences between products of different lengths. A tile keeps
    its default times if its kernel does not build or returns wrong results, or if the measured times do not grow evenly
    with the terms. If no tile can be measured, nothing changes.
    """
    found: dict[WarpgroupTile, warpgroups.TileTimes] = {}
    if not warpgroups.is_possible(context):
        return found
    units, dtype = context.profile.compute_units, dtype_of(arithmetic)
    for tile in warpgroups.times_of(context, arithmetic):
        groups, stage_terms = tile.resident * units, warpgroups.terms_of(arithmetic, tile.depth)
        # Each group gets one tile. In TF32, the transposed product is computed, because the terms of the right matrix
        # are not contiguous.
        high = math.gcd(groups, 12)
        lengths = (tile.rows * high, tile.cols * (groups // high))
        m, n = lengths[::-1] if arithmetic == "tf32" else lengths

        # The trial product fills each stage in local memory twice, and a part of the first stage a third time.
        trial = TrialProduct(context, dtype, m, n, 2 * tile.stages * stage_terms + 8)
        plan_of = functools.partial(warpgroups.plan, arithmetic=arithmetic, tile=tile, groups=groups)
        needed = warpgroups.kernels_of(plan_of(trial.problem), tile, arithmetic, context)
        compute = _correct(trial, _TENSOR_ERROR, needed, plan_of, tile.name)
        if compute is None:
            continue
        few = max(terms // 32, stage_terms)
        kinds = ((terms, 1), (2 * terms, 1), (few, 1), (few, _ROUNDS))
        trials = [TrialProduct(context, dtype, m * rounds, n, length) for length, rounds in kinds]
        turns = [[trial.seconds(compute) for trial in trials] for _ in range(TURNS)]
        once, longer, short, many = map(min, zip(*turns, strict=True))
        stage = (longer - once) * stage_terms / terms
        of_tile = (many - short) / (_ROUNDS - 1) - stage * few / stage_terms
        if stage > 0 and of_tile > 0 and _grows_evenly((few, short), (terms, once), (2 * terms, longer)):
            found[tile] = warpgroups.TileTimes(stage, of_tile)
    if found:
        names = {tile.name: times for tile, times in found.items()}
        tuning_table.record(context, {warpgroups.table_class(arithmetic): names})
    return found


def _grows_evenly(*measured: tuple[int, float]) -> bool:
    """Return whether the time per additional term is nearly constant, given pairs (terms, seconds) in ascending order.

    A product can take a quarter longer, depending on where the driver allocates its matrices.
    """
    pairs = itertools.pairwise(measured)
    rates = [(late - early) / (more - fewer) for (fewer, early), (more, late) in pairs if more > fewer]
    return max(rates) < _UNEVEN * min(rates)


class TrialProduct:
    """A product of random C-contiguous matrices."""

    def __init__(self, context: Context, dtype: str, m: int, n: int, terms: int) -> None:
        rng = np.random.default_rng(terms)
        self.context, self.dtype = context, dtype
        self._values = [rng.uniform(-1, 1, shape).astype(dtype) for shape in ((m, terms), (terms, n))]
        a, b = (from_host(context, value) for value in self._values)
        z = empty(context, (m, n), dtype)
        #: Maps letters to the matrices and to the result.
        self.arrays = {"a": a, "b": b, "y": z, "z": z}
        self.problem = Problem(1, m, n, terms, steps(a, 1), steps(b, 1), steps(z, 1), steps(z, 1), False)

    def seconds(self, compute: Compute) -> float:
        """Return the shortest measured time in which `compute` computes this product."""
        return best_seconds(self.context, lambda: compute(self))

    def is_correct(self, error: float) -> bool:
        """Return whether all errors, relative to the product of the matrices' absolute values, are within a bound."""
        a, b = (value.astype("float64") for value in self._values)
        return bool((abs(to_host(self.arrays["z"]) - a @ b) <= error * (abs(a) @ abs(b))).all())


def best_seconds(context: Context, enqueue: Callable[[], object]) -> float:
    """Return the shortest time of the commands that `enqueue` enqueues, after a warm-up that compiles and allocates."""
    enqueue()
    context.queue.finish()
    best, begin = float("inf"), time.perf_counter()
    while time.perf_counter() - begin < SECONDS:
        start = time.perf_counter()
        enqueue()
        context.queue.finish()
        best = min(best, time.perf_counter() - start)
    return best
