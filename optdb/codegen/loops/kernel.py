"""Fused loops: kernels that compute any number of tensors in one pass over a domain.

A kernel runs a :class:`LoopBody` for each point, in vectors on a CPU, and passes the results to *targets*. `LoopCode`
in ``code.py`` writes the code of a kernel.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from optdb.codegen.elementwise import QUAD, WIDTH, has_quad_rows
from optdb.codegen.loops.body import Buffer, Index, LengthValue, Load, LoopBody, LoopIndex, RowProduct
from optdb.codegen.loops.grids import GROUP, LoopGrid
from optdb.codegen.loops.sizes import NARROW
from optdb.codegen.loops.targets import ColumnSum, ElementStore, Fold, Scatter, ScatterStore, Target, results_of
from optdb.codegen.scalars.code import computed_dtypes
from optdb.codegen.scalars.types import is_complex
from optdb.runtime.arrays import Array
from optdb.runtime.device_profiles import DeviceProfile
from optdb.runtime.sizes import SymInt, is_same

#: Maximum number of scalar operations per point for which a GPU's item computes four points.
_MOST_SCALARS = 32


def collapsed(domain: Sequence[int], indices: Iterable[Index]) -> tuple[tuple[int, ...], dict[int, tuple[int, int]]]:
    """Merge the axes of a domain as far as the indices allow; return the new domain and a mapping of axes.

    For each old axis, the mapping contains the new axis, and the last of the old axes that the new axis replaces. Axes
    of length 1 are dropped.
    """
    indices = list(indices)
    groups: list[list[int]] = []
    for axis, length in enumerate(domain):
        if is_same(length, 1):
            continue
        if groups and all(is_same(index.factor(groups[-1][-1]), index.factor(axis) * length) for index in indices):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return tuple(math.prod(domain[axis] for axis in group) for group in groups), {
        axis: (number, group[-1]) for number, group in enumerate(groups) for axis in group
    }


def _is_divisible(number: int) -> bool:
    """Return whether a number consists of quads; False for symbolic numbers, as in `has_quad_rows`."""
    return not isinstance(number, SymInt) and not number % QUAD


@dataclass(eq=False)
class LoopKernel:
    """A kernel that computes targets over a body's domain.

    With `takes_quads`, an item of a GPU may access four neighbours at once if the arrays are aligned (`in_quads`).
    """

    body: LoopBody
    targets: Sequence[Target]
    profile: DeviceProfile
    takes_quads: bool = True

    def __post_init__(self) -> None:
        body = self.body
        self.program = body.build([x for target in self.targets for x in results_of(target)])
        sources = body.sources
        affine = [source.index for source in sources if isinstance(source, Load | LoopIndex)]
        affine += [target.index for target in self.targets if isinstance(target, ElementStore)]
        #: The results of `collapsed`: the lengths of the merged axes, and the mapping from old axes to merged axes.
        self.domain, self._axes = collapsed(body.domain, affine)
        self.is_scalar = not self.domain
        self.points = math.prod(self.domain)
        #: Whether indices fit in 32 bits.
        self.is_narrow = self.points < NARROW and all(self._extent(index) < NARROW for index in affine)
        complex_numbers = any(map(is_complex, computed_dtypes(self.program)))
        self.is_serial = self.profile.runs_items_serially
        self.group = min(GROUP, self.profile.max_local_size)
        is_lanes = self.profile.needs_explicit_vectors and not complex_numbers and not self.is_scalar
        self.width = WIDTH if is_lanes and self.is_serial else 1
        self.in_quads = self.takes_quads and not complex_numbers and self._fits_quads()

    def __str__(self) -> str:
        kinds = Counter(type(target).__name__ for target in self.targets)
        targets = ", ".join(kind if n == 1 else f"{n} {kind}" for kind, n in kinds.items())
        domain = " x ".join(map(str, self.domain)) or "1"
        return f"a loop over {domain} points, {len(self.program.steps)} scalars a point: {targets}"

    @property
    def accumulates(self) -> bool:
        """Whether results are accumulated; each work item or work group then has a part of its own."""
        return any(isinstance(target, Fold | ColumnSum | Scatter) for target in self.targets)

    def overwritable(self, stored: Buffer) -> set[Buffer]:
        """Return the buffers that can share memory with `stored`.

        In a loop with several points, these are buffers of which each point reads only the elements that it overwrites.
        A loop with one point loads everything before it stores anything, but on GPUs, all items of a group load, and
        one of them may have stored before another one loads.
        """
        if self.is_scalar and not self.is_serial:
            return set()
        if any(target.buffer is stored for target in self.targets if isinstance(target, ScatterStore)):
            return set()
        sources, targets = self.body.sources, self.targets
        loads = [source for source in sources if isinstance(source, Load)]
        anywhere = {*self.body.tables, *(target.matrix for target in targets if isinstance(target, ColumnSum))}
        anywhere.update(
            x for source in sources if isinstance(source, RowProduct) for x in (source.matrix, source.vector)
        )
        if not self.is_scalar:
            places = {
                target.index for target in targets if isinstance(target, ElementStore) and target.buffer is stored
            }
            anywhere.update(load.buffer for load in loads if load.index not in places)
        return {load.buffer for load in loads} - anywhere

    def _fits_quads(self) -> bool:
        # If a GPU starts all items at once, one point per item is faster.
        at_once = self.profile.items_at_once * self.profile.compute_units
        if self.profile.device_kind != "gpu" or self.is_scalar or self.points <= at_once:
            return False
        if len(self.program.steps) > _MOST_SCALARS or (len(self.domain) > 1 and not _is_divisible(self.domain[-1])):
            return False
        # Scattered access takes most of the time, and reading four points of a column at once makes it slower.
        loads = [source.index for source in self.body.sources if isinstance(source, Load)]
        is_scattered = any(isinstance(target, Scatter | ScatterStore) for target in self.targets)
        if self.body.tables or is_scattered or any(abs(self.factors(index)[-1]) > 1 for index in loads):
            return False
        stored = [self.is_quad(target.index) for _, target in self.stores()]
        return all(stored) and any([*stored, *map(self.is_quad, loads)])

    def is_quad(self, index: Index) -> bool:
        """Return whether an index selects adjacent, aligned elements at each group of four neighbouring points."""
        factors = self.factors(index)
        return is_same(factors[-1], 1) and _is_divisible(index.const) and has_quad_rows(factors)

    def fits(self, arrays: Sequence[Array]) -> bool:
        """Return whether the kernel can access `arrays`, which must begin at aligned addresses if it uses quads."""
        return not self.in_quads or not any(array.offset % (QUAD * array.dtype.itemsize) for array in arrays)

    def items(self, grid: LoopGrid) -> int:
        """Return the number of work items of a launch."""
        if not self.in_quads or self.accumulates:
            return grid.items
        return -(-self.points // (QUAD * grid.group)) * grid.group

    def is_uniform(self, source: object) -> bool:
        """Return whether a source has the same value at all points."""
        if isinstance(source, RowProduct):
            return False
        return self.is_scalar or isinstance(source, LengthValue) or (isinstance(source, Load) and source.index.is_const)

    def is_constant_in_rows(self, source: object) -> bool:
        """Return whether a source, which is not uniform, is read once per row: items of CPUs compute whole rows."""
        if not self.is_serial or len(self.domain) < 2 or self.is_uniform(source):
            return False
        return isinstance(source, Load | LoopIndex) and not self.factors(source.index)[-1]

    def _extent(self, index: Index) -> int:
        """Return a number that is larger than any absolute value of an index."""
        steps = ((self.body.domain[axis], by) for axis, by in index.terms if isinstance(axis, int))
        return abs(index.const) + sum(length * abs(by) for length, by in steps) + 1

    def factors(self, index: Index) -> list[int]:
        """Return the factor of each merged axis in an index."""
        factors = [0] * len(self.domain)
        for axis, factor in index.terms:
            if axis in self._axes:
                number, last = self._axes[axis]
                if axis == last:
                    factors[number] = factor
        return factors

    def strided_indices(self, names: Sequence[str]) -> list[tuple[str, Index]]:
        """Return pairs (name, index) for sources and stores (``s<number>``) whose indices depend on the point."""
        indices = [
            (name, source.index)
            for name, source in zip(names, self.body.sources)
            if isinstance(source, Load | LoopIndex) and not self.is_uniform(source)
        ]
        return [*indices, *[(f"s{number}", target.index) for number, target in self.stores()]]

    def stores(self) -> list[tuple[int, ElementStore]]:
        """Return pairs (number, target) for the targets that store results at affine indices."""
        return [(number, target) for number, target in enumerate(self.targets) if isinstance(target, ElementStore)]
