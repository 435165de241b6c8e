"""How fast a device packs matrices and multiplies packed ones, which decides whether a product takes that way.

The speeds of an NVIDIA H100 apply where a device was not tuned. `measure` finds those of a device. They are kept on
disk, see `optdb.runtime.tuning`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from optdb import __version__
from optdb.codegen.gemm import warpgroups
from optdb.codegen.gemm.launches import GemmPlan, run
from optdb.codegen.gemm.problem import Problem, steps
from optdb.codegen.gemm.tensor_kernels import Arithmetic, dtype_of
from optdb.codegen.gemm.trials import best_seconds
from optdb.codegen.kernels import CompiledKernel
from optdb.runtime import tuning
from optdb.runtime.arrays import empty, from_host, to_host

if TYPE_CHECKING:
    from optdb.runtime.context import Context


class Speed(NamedTuple):
    """How fast products of packed matrices are."""

    #: What a unit multiplies, in 1e12 operations a second.
    multiplying: float
    #: What all units read and write to pack, in 1e9 bytes a second.
    packing: float


#: The kind of tuning under which speeds are saved.
KIND = "packed products"
#: Of an NVIDIA H100: a product of 4096 cubed of TF32 takes 347 us, and 50 to pack each matrix; of float16 198 and 42.
DEFAULTS: Mapping[Arithmetic, Speed] = {"tf32": Speed(3.15, 2600.0), "float16": Speed(5.4, 1700.0)}
#: What three launches take, in seconds, besides what they do.
_LAUNCHES_S = 15e-6
#: Packed matrices take at most one of so many parts of the device's memory.
_SHARE = 16
#: Terms of the shorter one of two products that are timed.
_TERMS = 2048
#: The largest error of a product of two numbers that are rounded to TF32.
_ERROR = 2.0**-9


def suits(context: Context, problem: Problem, arithmetic: Arithmetic) -> bool:
    """Tell whether a device can compute a product by packed matrices, and has work for most of its units then."""
    if arithmetic not in DEFAULTS:
        return False
    if warpgroups.choice.takes_all:
        return True
    if not _is_possible(context):
        return False
    profile = context.profile
    most = min(profile.global_memory_bytes // _SHARE, profile.max_allocation_bytes)
    tiles = problem.tiles(warpgroups.choice.block.rows, warpgroups.choice.block.cols)
    return warpgroups.packed_bytes(problem, arithmetic) <= most and 2 * tiles > profile.compute_units


def seconds(context: Context, problem: Problem, arithmetic: Arithmetic) -> float:
    """Return about how long packing takes, and the unit with the most tiles; 0 where all products are packed."""
    if warpgroups.choice.takes_all:
        return 0.0
    block, speed = warpgroups.choice.block, speed_of(context, arithmetic)
    rounds = -(-problem.tiles(block.rows, block.cols) // context.profile.compute_units)
    multiplying = 2e-12 * block.rows * block.cols * rounds * problem.k / speed.multiplying
    return multiplying + 2e-9 * warpgroups.packed_bytes(problem, arithmetic) / speed.packing + _LAUNCHES_S


def speed_of(context: Context, arithmetic: Arithmetic) -> Speed:
    """Return the speed of a device: as measured, or the default."""
    kept = context.kept.setdefault(__name__, {})
    if arithmetic not in kept:
        kept.setdefault(arithmetic, _from_disk(context, arithmetic) or DEFAULTS[arithmetic])
    return kept[arithmetic]


def key_of(context: Context, arithmetic: Arithmetic) -> dict[str, Any]:
    """Return the key under which a speed is saved."""
    return tuning.key_of(context.device, KIND, arithmetic, __version__)


def measure(context: Context, arithmetic: Arithmetic, terms: int = _TERMS) -> Speed | None:
    """Measure the speed of a device, keep it on disk, and use it from now on.

    Two products, one with twice the terms of the other, give each unit a tile. What the longer one takes besides is
    what counts, so that launches and the host's waiting do not. None, and nothing changes, where the device has no such
    products, computes something else, or is so busy with other work that times make no sense. Functions compiled before
    continue to use what they have. Raise OSError if the speed cannot be saved.
    """
    kernels = warpgroups.kernels(context, arithmetic) if _is_possible(context) else None
    if (
        kernels is None
        or not _TimedProduct(context, arithmetic, kernels, 3 * warpgroups.choice.block.depth + 4).is_right()
    ):
        return None
    short, long = (_TimedProduct(context, arithmetic, kernels, n).timed() for n in (terms, 2 * terms))
    operations, nbytes, packing, whole = (b - a for a, b in zip(short, long, strict=True))
    if not 0 < packing < whole:
        return None
    speed = Speed(1e-12 * operations / (whole - packing), 1e-9 * nbytes / packing)
    tuning.save(key_of(context, arithmetic), speed._asdict())
    context.kept.pop(__name__, None)
    return speed


def _uneven_terms(arithmetic: Arithmetic) -> int:
    """Return so many terms that all stages have two turns, and the first one has a third, which is not whole."""
    block = warpgroups.choice.block
    return 2 * block.stages * warpgroups.terms_of(arithmetic, block.depth) + 4


def _is_possible(context: Context) -> bool:
    profile, block = context.profile, warpgroups.choice.block
    can_multiply = profile.has_warpgroup_products or warpgroups.choice.takes_all
    return can_multiply and block.local_bytes <= profile.most_local_bytes


class _TimedProduct:
    """A product that gives each unit of a device a tile."""

    def __init__(
        self, context: Context, arithmetic: Arithmetic, kernels: Mapping[str, CompiledKernel], terms: int
    ) -> None:
        block, units, rng = warpgroups.choice.block, context.profile.compute_units, np.random.default_rng(terms)
        high = math.gcd(units, 12)
        m, n = block.rows * high, block.cols * (units // high)
        shapes = ((m, terms), (terms, n))
        self._values = [rng.uniform(-1, 1, shape).astype(dtype_of(arithmetic)) for shape in shapes]
        self._arrays = dict(zip("ab", (from_host(context, value) for value in self._values), strict=True))
        z = self._arrays["y"] = self._arrays["z"] = empty(context, (m, n), dtype_of(arithmetic))
        of_z = steps(z, 1)
        self._problem = Problem(1, m, n, terms, *(steps(self._arrays[x], 1) for x in "ab"), of_z, of_z, False)
        self._context, self._arithmetic, self._kernels = context, arithmetic, kernels
        self._plan = warpgroups.plan(self._problem, arithmetic)

    def timed(self) -> tuple[float, float, float, float]:
        """Return a unit's operations, the bytes that packing moves, and the seconds of packing, and of all."""
        packing = GemmPlan(self._plan.launches[:2], copies=self._plan.copies)
        times = (best_seconds(self._context, lambda p=plan: self._compute(p)) for plan in (packing, self._plan))
        p, units = self._problem, self._context.profile.compute_units
        return 2.0 * p.m * p.n * p.k / units, 2.0 * warpgroups.packed_bytes(p, self._arithmetic), *times

    def is_right(self) -> bool:
        """Compute the product, and tell whether it is what it should be."""
        self._compute(self._plan)
        a, b = (value.astype("float64") for value in self._values)
        return bool((abs(to_host(self._arrays["z"]) - a @ b) <= _ERROR * (abs(a) @ abs(b))).all())

    def _compute(self, plan: GemmPlan) -> None:
        run(plan, self._kernels, self._context, self._arrays, 1.0, 0.0, "float32")


def _from_disk(context: Context, arithmetic: Arithmetic) -> Speed | None:
    """Return the speed on disk, None if there is none that makes sense."""
    stored = tuning.load(key_of(context, arithmetic))
    try:
        speed = Speed(*(float(stored[name]) for name in Speed._fields))
    except (KeyError, TypeError, ValueError):
        return None
    return speed if all(0 < number < math.inf for number in speed) else None
