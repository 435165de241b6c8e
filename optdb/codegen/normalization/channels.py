"""The channels of C-contiguous arrays, and kernels that compute elements from per-channel numbers.

A channel consists of all elements with the same indexes along the kept axes. Neighbouring axes that are all kept, or
all reduced, are merged into a *run*. The elements of a channel are contiguous (in rows) if the last run is reduced;
otherwise, they are in columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from optdb.codegen.elementwise import QUAD, QUADS
from optdb.codegen.kernels import CompiledKernel, Kernel, ctype
from optdb.codegen.layout import launch_chunks, launch_items, size_of
from optdb.codegen.source import ROUND_EACH_STEP, add_offsets, joined, load_w, work_dtype, write_w
from optdb.runtime.arrays import Array
from optdb.runtime.sizes import largest, smallest

if TYPE_CHECKING:
    from optdb.runtime.context import Context


#: Number of columns that a CPU work item reduces at a time.
WIDTH = 16
#: Maximum number of bytes in a part, so that a second pass finds it in the CPU's cache.
PART_BYTES = 1 << 18
PART_ROWS = 1024
#: Work items per compute unit of a CPU; elsewhere, work groups (rows) or work items (columns).
ITEMS_PER_UNIT = 8
GROUPS = 1024
ITEMS = 1 << 16


@dataclass(frozen=True)
class Runs:
    """Numbers of kept and reduced runs; kernels also accept arrays with fewer runs."""

    kept: int
    folded: int

    @classmethod
    def of(cls, ndim: int, axes: Sequence[int]) -> Runs:
        """Return the runs for an array with `ndim` axes, of which `axes` are reduced."""
        kinds = [is_kept for is_kept, _ in groupby(axis not in axes for axis in range(ndim))]
        return cls(max(kinds.count(True), 1), max(kinds.count(False), 1))

    @property
    def outer(self) -> int:
        """The number of runs, except the last one."""
        return self.kept + self.folded - 1


@dataclass(frozen=True)
class Channels:
    """The channels of a C-contiguous array."""

    runs: Runs
    #: Lengths of the runs for this shape, outermost first; no length is 1.
    lengths: tuple[int, ...]
    #: For each run, whether it is kept.
    kept: tuple[bool, ...]

    @classmethod
    def of(cls, shape: Sequence[int], axes: Sequence[int]) -> Channels:
        """Return the channels of an array with a given shape, of which `axes` are reduced."""
        long = [(length, axis not in axes) for axis, length in enumerate(shape) if length != 1]
        lengths, kept_flags = [], []
        for kind, run in groupby(long, key=lambda pair: pair[1]):
            kept_flags.append(kind)
            lengths.append(size_of([length for length, _ in run]))
        return cls(Runs.of(len(shape), axes), tuple(lengths), tuple(kept_flags))

    @property
    def number(self) -> int:
        return size_of([length for length, is_kept in zip(self.lengths, self.kept) if is_kept])

    @property
    def size(self) -> int:
        """The number of elements of each channel."""
        return size_of([length for length, is_kept in zip(self.lengths, self.kept) if not is_kept])

    @property
    def in_columns(self) -> bool:
        """Whether neighbouring elements belong to different channels."""
        return bool(self.kept) and self.kept[-1]

    @property
    def inner(self) -> int:
        """The length of the last run."""
        return self.lengths[-1] if self.lengths else 1

    def steps(self) -> list[int]:
        """Return the stride of each run, in elements."""
        steps, step = [], 1
        for length in reversed(self.lengths):
            steps.append(step)
            step *= length
        return steps[::-1]

    def fold_args(self) -> list[int]:
        """Return the lengths, then the strides, of kept and of reduced runs, for kernels that reduce."""
        runs = list(zip(self.lengths, self.steps(), self.kept))
        kept_runs = _filled([run[:2] for run in runs if run[2]], self.runs.kept)
        folded_runs = _filled([run[:2] for run in runs if not run[2]], self.runs.folded)
        lengths, steps = zip(*kept_runs, *folded_runs)
        return [*lengths, *steps]

    def place_args(self) -> list[int]:
        """Return the length of the last run, the lengths of the other runs, and these runs' strides in channels."""
        outer, channels = [], self.inner if self.in_columns else 1
        for length, is_kept in zip(self.lengths[-2::-1], self.kept[-2::-1]):
            outer.append((length, channels if is_kept else 0))
            channels *= length if is_kept else 1
        lengths, steps = zip(*_filled(outer[::-1], self.runs.outer))
        return [self.inner, *lengths, *steps]

    def parts(self, context: Context, row_bytes: int) -> tuple[int, int]:
        """Return the number of parts per channel, and of elements per part; `row_bytes` is the size of one element."""
        most = self.size
        if not most:
            return 0, 0
        if context.profile.runs_items_serially:
            target_items = context.profile.compute_units * ITEMS_PER_UNIT
            if self.in_columns:
                parts = largest(_shared(target_items, self.blocks, most, 64), -(-most // PART_ROWS))
            else:
                parts = largest(_shared(target_items, self.number, most, 4096), -(-most * row_bytes // PART_BYTES))
        elif self.in_columns:
            parts = _shared(ITEMS, self.number, most, 64)
        else:
            parts = _shared(GROUPS, self.number, most, 4096)
        part = -(-most // parts)
        return -(-most // part), part

    @property
    def blocks(self) -> int:
        """The number of blocks of at most `WIDTH` columns."""
        return self.number // self.inner * -(-self.inner // WIDTH)


def _shared(wanted: int, number: int, size: int, least: int) -> int:
    """Return how many parts of at least `least` elements to split each channel into, to get `wanted` tasks."""
    parts: int = largest(1, smallest(-(-wanted // number), size // least))
    return parts


def _filled(runs: list[tuple[int, int]], number: int) -> list[tuple[int, int]]:
    return [(1, 0)] * (number - len(runs)) + runs


#: The largest index that kernels compute in 32 bits.
_NARROW = 2**31 - 1


@dataclass(frozen=True)
class ChannelMap:
    """An elementwise expression of arrays and of per-channel numbers.

    Kernels process pieces of rows, in which the numbers are constant, or of columns; on GPUs, an item processes four
    neighbours.
    """

    dtype: str
    runs: Runs
    #: Names of the arrays' elements in the expression.
    arrays: tuple[str, ...]
    #: Names of the per-channel numbers in the expression; they have the dtype to compute in.
    numbers: tuple[str, ...]
    expression: str

    def kernels(self, serial: bool) -> list[Kernel]:
        """Return the kernels for rows and for columns; `serial` says whether a device runs work items serially."""
        code = self._kernel("map_rows", False) + self._kernel("map_columns", True)
        if not serial:
            code += self._quads_kernel("map_rows_quads", False) + self._quads_kernel("map_columns_quads", True)
        return Kernel.all_of(ROUND_EACH_STEP + code)

    def launch(
        self, kernels: Mapping[str, CompiledKernel], context: Context, channels: Channels, arrays: Sequence[Array]
    ) -> None:
        """Compute the last array from the other arrays and the numbers; all are C-contiguous."""
        name = "map_columns" if channels.in_columns else "map_rows"
        n = channels.number * channels.size
        if self._in_quads(context, channels, n, arrays):
            kernels[f"{name}_quads"].scall(n // QUAD, n, *channels.place_args(), *arrays)
        else:
            launch_chunks(kernels[name], context, n, *channels.place_args(), *arrays)

    def _in_quads(self, context: Context, channels: Channels, n: int, arrays: Sequence[Array]) -> bool:
        if context.profile.runs_items_serially or n > _NARROW or channels.inner % QUAD:
            return False
        whole = [*arrays[: len(self.arrays)], arrays[-1]]
        return not any(array.offset % (QUAD * array.dtype.itemsize) for array in whole)

    def _params(self, size: str) -> str:
        outer = range(self.runs.outer)
        stored, computed = ctype(self.dtype), ctype(work_dtype(self.dtype))
        params = [f"{size} inner", *[f"{size} n{d}" for d in outer], *[f"{size} ks{d}" for d in outer]]
        params += [f"ARRAY {stored} *restrict a_{x}" for x in self.arrays]
        params += [f"ARRAY {computed} *restrict c_{x}" for x in self.numbers]
        return ", ".join([*params, f"ARRAY {stored} *restrict z"])

    def _quads_kernel(self, name: str, columns: bool) -> str:
        stored, computed, load = ctype(self.dtype), ctype(work_dtype(self.dtype)), load_w(self.dtype)
        raw = QUADS[np.dtype(self.dtype).itemsize]
        numbers = joined(f"const {computed} {x} = c_{x}[k{' + l' if columns else ''}];" for x in self.numbers)
        quads = joined(f"union {{ {raw} v; {stored} s[{QUAD}]; }} q_{x};" for x in (*self.arrays, "z"))
        return f"""
KERNEL void {name}(ga_uint n, {self._params("ga_uint")})
{{
const uint i = (uint)get_global_id(0) * {QUAD};
if (i >= n)
    return;
const uint column = i % inner;
uint at = i / inner, k = {"column" if columns else 0};
{add_offsets("at", "n", self.runs.outer, {"k": "ks"}, "uint")}
{"" if columns else numbers}
{quads}
{joined(f"q_{x}.v = *(const GLOBAL_MEM {raw} *)(a_{x} + i);" for x in self.arrays)}
#pragma unroll
for (uint l = 0; l < {QUAD}; ++l) {{
{numbers if columns else ""}
{joined(f"const {computed} {x} = {load}(q_{x}.s[l]);" for x in self.arrays)}
q_z.s[l] = {write_w(self.dtype)}({self.expression});
}}
*(GLOBAL_MEM {raw} *)(z + i) = q_z.v;
}}
"""

    def _kernel(self, name: str, columns: bool) -> str:
        computed, load = ctype(work_dtype(self.dtype)), load_w(self.dtype)
        numbers = joined(f"const {computed} {x} = c_{x}[k];" for x in self.numbers)
        return f"""
OUTLINED_KERNEL void {name}(ga_size n, ga_size chunk, {self._params("ga_size")})
{{
ga_size i = get_global_id(0) * chunk;
const ga_size end = min(i + chunk, n);
while (i < end) {{
const ga_size column = i % inner;
ga_size at = i / inner, k = {"column" if columns else 0};
const ga_size stop = min(end, i + (inner - column));
{add_offsets("at", "n", self.runs.outer, {"k": "ks"}, "ga_size")}
{"" if columns else numbers}
for (; i < stop; ++i{", ++k" if columns else ""}) {{
{numbers if columns else ""}
{joined(f"const {computed} {x} = {load}(a_{x}[i]);" for x in self.arrays)}
z[i] = {write_w(self.dtype)}({self.expression});
}}
}}
}}
"""


def launch_numbers(kernel: CompiledKernel, context: Context, n: int, *args: Any) -> None:
    """Launch a kernel from numbers.cl for `n` channels."""
    items = min(context.profile.compute_units, max(n // 64, 1)) if context.profile.runs_items_serially else n
    launch_items(kernel, context, items, n, *args)
