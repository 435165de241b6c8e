"""The speed of packing matrices and of multiplying packed ones, which decides whether a product uses packed matrices.

An untuned device gets the speeds of an NVIDIA H100. `measure` measures those of a device, and saves them on disk, see
`optdb.runtime.tuning`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from optdb import __version__
from optdb.codegen.gemm import warpgroups
from optdb.codegen.gemm.launches import LAUNCH_S, GemmPlan
from optdb.codegen.gemm.problem import Problem
from optdb.codegen.gemm.tensor_kernels import Arithmetic, dtype_of
from optdb.codegen.gemm.trials import TrialProduct, best_seconds
from optdb.codegen.kernels import CompiledKernel, try_compile
from optdb.runtime import tuning

if TYPE_CHECKING:
    from optdb.runtime.context import Context


class Speed(NamedTuple):
    """The speed of products of packed matrices."""

    #: Arithmetic throughput of one compute unit, in 1e12 operations per second.
    multiplying: float
    #: Memory throughput of packing (reads and writes) on all units, in 1e9 bytes per second.
    packing: float


#: The kind of tuning under which speeds are saved.
KIND = "packed products"
#: Speeds of an NVIDIA H100. For 4096 cubed, TF32 takes 347 us, and 50 us to pack each matrix; float16 198 us and 42 us.
DEFAULTS: Mapping[Arithmetic, Speed] = {"tf32": Speed(3.15, 2600.0), "float16": Speed(5.4, 1700.0)}
#: Packed matrices may take up to 1 / `_SHARE` of the device's memory.
_SHARE = 16
#: Terms of the shorter of the two products that are timed.
_TERMS = 2048


def packs_all(context: Context) -> bool:
    """Tell whether a context's options ask for packed matrices wherever they are possible."""
    return context.options.packed_tiles == "all"


def suits(context: Context, problem: Problem, arithmetic: Arithmetic) -> bool:
    """Tell whether a device can compute a product with packed matrices, and most of its units would be busy."""
    if arithmetic not in DEFAULTS:
        return False
    if packs_all(context):
        return True
    if not _is_possible(context):
        return False
    profile = context.profile
    most = min(profile.global_memory_bytes // _SHARE, profile.max_allocation_bytes)
    block = warpgroups.block_of(context)
    tiles = problem.tiles(block.rows, block.cols)
    return warpgroups.packed_bytes(problem, arithmetic, block) <= most and 2 * tiles > profile.compute_units


def seconds(context: Context, problem: Problem, arithmetic: Arithmetic) -> float:
    """Return the estimated time of packing, and of the compute unit with the most tiles."""
    block, speed = warpgroups.block_of(context), speed_of(context, arithmetic)
    rounds = -(-problem.tiles(block.rows, block.cols) // context.profile.compute_units)
    multiplying = 2e-12 * block.rows * block.cols * rounds * problem.k / speed.multiplying
    return multiplying + 2e-9 * warpgroups.packed_bytes(problem, arithmetic, block) / speed.packing + 3 * LAUNCH_S


def speed_of(context: Context, arithmetic: Arithmetic) -> Speed:
    """Return the measured or default speed of a device."""
    kept: dict[Arithmetic, Speed] = context.kept.setdefault(__name__, {})
    if arithmetic not in kept:
        kept.setdefault(arithmetic, _from_disk(context, arithmetic) or DEFAULTS[arithmetic])
    return kept[arithmetic]


def key_of(context: Context, arithmetic: Arithmetic) -> dict[str, Any]:
    """Return the key under which a speed is saved."""
    return tuning.key_of(context.device, KIND, arithmetic, __version__)


def measure(context: Context, arithmetic: Arithmetic, terms: int = _TERMS) -> Speed | None:
    """Measure the speed of a device, save it on disk, and use it from now on.

    Two products, one with twice the terms of the other, give each compute unit one tile. The speed is computed from the
    difference of their times, which excludes launch overhead and host latency. Return None, and change nothing, if the
    device does not support such products, returns wrong results, or is too busy for valid measurements. Functions
    compiled before keep their speeds. Raise OSError if the speed cannot be saved.
    """
    if not _is_possible(context):
        return None
    needed = warpgroups.kernels(context, arithmetic)
    kernels = try_compile(needed, context, f"packed products by {arithmetic}", "Products take other tiles")
    if kernels is None:
        return None
    if not _TimedProduct(context, arithmetic, kernels, _uneven_terms(context, arithmetic)).is_right():
        return None
    short, long = (_TimedProduct(context, arithmetic, kernels, n).timed() for n in (terms, 2 * terms))
    operations, nbytes, packing, whole = (b - a for a, b in zip(short, long, strict=True))
    if not 0 < packing < whole:
        return None
    speed = Speed(1e-12 * operations / (whole - packing), 1e-9 * nbytes / packing)
    tuning.save(key_of(context, arithmetic), speed._asdict())
    context.kept.pop(__name__, None)
    return speed


def _uneven_terms(context: Context, arithmetic: Arithmetic) -> int:
    """Return a number of terms that uses each stage of the ring twice, and the first one a third time, partially."""
    block = warpgroups.block_of(context)
    return 2 * block.stages * warpgroups.terms_of(arithmetic, block.depth) + 4


def _is_possible(context: Context) -> bool:
    profile, block = context.profile, warpgroups.block_of(context)
    return (profile.has_warpgroup_products or packs_all(context)) and block.local_bytes <= profile.most_local_bytes


class _TimedProduct:
    """A product that gives each unit of a device a tile."""

    def __init__(
        self, context: Context, arithmetic: Arithmetic, kernels: Mapping[str, CompiledKernel], terms: int
    ) -> None:
        block, units = warpgroups.block_of(context), context.profile.compute_units
        high = math.gcd(units, 12)
        m, n = block.rows * high, block.cols * (units // high)
        self._product = TrialProduct(context, dtype_of(arithmetic), m, n, terms)
        self._context, self._kernels = context, kernels
        self._packed_bytes = warpgroups.packed_bytes(self._product.problem, arithmetic, block)
        self._plan = warpgroups.plan(self._product.problem, arithmetic, block)

    def timed(self) -> tuple[float, float, float, float]:
        """Return a unit's operations, the bytes that packing moves, and the times of packing and of everything."""
        packing = GemmPlan(self._plan.launches[:2], copies=self._plan.copies)
        packing_s, all_s = (
            best_seconds(self._context, functools.partial(self._compute, plan)) for plan in (packing, self._plan)
        )
        p, units = self._product.problem, self._context.profile.compute_units
        return 2.0 * p.m * p.n * p.k / units, 2.0 * self._packed_bytes, packing_s, all_s

    def is_right(self) -> bool:
        """Compute the product, and tell whether the result is right."""
        self._compute(self._plan)
        return self._product.is_right()

    def _compute(self, plan: GemmPlan) -> None:
        self._product.compute(plan, self._kernels)


def _from_disk(context: Context, arithmetic: Arithmetic) -> Speed | None:
    """Return the speed on disk; None if there is no valid one."""
    stored = tuning.load(key_of(context, arithmetic)) or {}
    try:
        speed = Speed(*(float(stored[name]) for name in Speed._fields))
    except (KeyError, TypeError, ValueError):
        return None
    return speed if all(0 < number < math.inf for number in speed) else None
