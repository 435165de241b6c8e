"""The throughput of a compute unit with tiles of each shape on tensor cores, which decides the tile shape of a product.

An untuned device gets the rates of an NVIDIA H200. `measure` measures those of a device, with products that give each
unit one tile, two, and so on, until another one gains nothing, and saves them on disk, see `optdb.runtime.tuning`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from optdb import __version__
from optdb.codegen.gemm.launches import by_tiles
from optdb.codegen.gemm.tensor_kernels import Arithmetic, TensorBlock, kernel_name, tensor_kernel
from optdb.codegen.gemm.trials import TrialProduct, best_seconds
from optdb.codegen.kernels import CompiledKernel, try_compile
from optdb.runtime import tuning

if TYPE_CHECKING:
    from optdb.runtime.context import Context

#: The kind of tuning under which rates are saved.
KIND = "tensor cores"
#: The only arithmetic with measured rates.
_ARITHMETIC: Arithmetic = "tf32"
#: Throughput of a compute unit with one resident work group, with two, and so on, in 1e12 operations per second. The
#: length is the number of groups that fit.
Rates = Mapping[TensorBlock, tuple[float, ...]]
#: Rates of an NVIDIA H200; the first one is of an H100. Tiles of 32 terms take 96 or 64 KiB of local memory.
DEFAULTS: Rates = {
    TensorBlock(128, 128, 32, 3, 64, 64): (1.05, 1.7),
    TensorBlock(128, 128, 32, 2, 64, 64): (1.05, 1.67),
    TensorBlock(128, 128, 16, 3, 64, 64): (1.0, 1.59),
    TensorBlock(128, 64, 16, 4, 64, 32): (0.72, 1.08, 1.22, 1.35),
    TensorBlock(64, 64, 32, 3, 64, 32): (0.55, 0.98, 1.1, 1.24),
}
#: Shapes that are measured.
_CANDIDATES = (
    *DEFAULTS,
    TensorBlock(128, 128, 16, 3, 64, 32),
    TensorBlock(64, 128, 16, 4, 32, 64),
    TensorBlock(64, 64, 32, 3, 32, 32),
)
#: Terms of the timed products, the most groups on a unit, and the speedup that an additional group must achieve.
_TERMS, _MOST_GROUPS, _GAIN = 1024, 8, 1.02


def rates_of(context: Context) -> Rates:
    """Return the measured or default rates of a device."""
    kept: dict[str, Rates] = context.kept.setdefault(__name__, {})
    if KIND not in kept:
        kept.setdefault(KIND, _from_disk(context) or {block: DEFAULTS[block] for block in _fitting(context, DEFAULTS)})
    return kept[KIND]


def key_of(context: Context) -> dict[str, Any]:
    """Return the key under which the rates are saved."""
    return tuning.key_of(context.device, KIND, "float32", __version__)


def measure(context: Context, terms: int = _TERMS) -> Rates:
    """Measure the rates of a device that has tensor cores, save them on disk, and use them from now on.

    A shape whose kernel does not build, or returns wrong results, has no rates. If no shape has, nothing changes, and
    the result is empty. Functions compiled before keep their rates. Raise OSError if the rates cannot be saved.
    """
    rates = {}
    for block in _fitting(context, _CANDIDATES):
        needed = [tensor_kernel(block, _ARITHMETIC, (True, False), context.options.instructions)]
        kernels = try_compile(needed, context, block.name, "This shape of tiles is not used")
        if kernels is not None and _Trial(context, block, kernels, 1, 3 * block.depth + 4).is_right():
            rates[block] = _rates(context, block, kernels, terms)
    if not rates:
        return {}
    found = [{"block": asdict(block), "rates": list(of_groups)} for block, of_groups in rates.items()]
    tuning.save(key_of(context), {"shapes": found})
    context.kept.pop(__name__, None)
    return rates


def _rates(
    context: Context, block: TensorBlock, kernels: Mapping[str, CompiledKernel], terms: int
) -> tuple[float, ...]:
    rates: list[float] = []
    for groups in range(1, _MOST_GROUPS + 1):
        trial = _Trial(context, block, kernels, groups, terms)
        rate = 2e-12 * block.rows * block.cols * groups * terms / best_seconds(context, trial.compute)
        if rates and rate < _GAIN * rates[-1]:
            break
        rates.append(rate)
    return tuple(rates)


class _Trial:
    """A product that gives each unit of a device some tiles."""

    def __init__(
        self, context: Context, block: TensorBlock, kernels: Mapping[str, CompiledKernel], groups: int, terms: int
    ) -> None:
        m, n = block.rows * context.profile.compute_units, block.cols * groups
        self._product, self._kernels = TrialProduct(context, "float32", m, n, terms), kernels
        problem, name = self._product.problem, kernel_name(block, _ARITHMETIC, (True, False))
        self._plan = by_tiles(problem, name, problem.tiles(block.rows, block.cols), block.items, 1, block.depth)

    def compute(self) -> None:
        """Enqueue the product."""
        self._product.compute(self._plan, self._kernels)

    def is_right(self) -> bool:
        """Compute the product, and tell whether the result is right."""
        self.compute()
        return self._product.is_right()


def fits(context: Context, block: TensorBlock) -> bool:
    """Tell whether a device supports the work-group size and the local memory of a block."""
    profile = context.profile
    return block.items <= profile.max_local_size and block.local_bytes <= profile.most_local_bytes


def _fitting(context: Context, candidates: Iterable[TensorBlock]) -> list[TensorBlock]:
    return [block for block in candidates if fits(context, block)]


def _from_disk(context: Context) -> Rates:
    """Return the rates on disk, without blocks that the device does not support; empty if there are none."""
    stored = tuning.load(key_of(context))
    shapes = stored.get("shapes") if stored is not None else None
    found = dict(filter(None, map(_shape_from, shapes))) if isinstance(shapes, list) else {}
    return {block: found[block] for block in _fitting(context, found)}


def _shape_from(value: Any) -> tuple[TensorBlock, tuple[float, ...]] | None:
    """Return a shape and its rates from their serialized form; None if that is invalid."""
    try:
        block = TensorBlock(**{name: int(number) for name, number in value["block"].items()})
        rates = tuple(float(rate) for rate in value["rates"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    return (block, rates) if block.unsupported_reason() is None and rates and min(rates) > 0 else None
