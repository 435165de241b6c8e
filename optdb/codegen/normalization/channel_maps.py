"""Kernels that compute arrays elementwise with per-channel numbers.

They process pieces of rows, in which the per-channel numbers are constant, or of columns, in which each element has its
own. On GPUs, an item processes four aligned neighbours of a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from optdb.codegen.elementwise import QUAD, QUADS
from optdb.codegen.kernels import CompiledKernel, Kernel, ctype
from optdb.codegen.layout import launch_chunks, launch_items
from optdb.codegen.normalization.channels import Channels, Runs
from optdb.codegen.source import ROUND_EACH_STEP, add_offsets, joined, load_w, work_dtype, write_w
from optdb.runtime.arrays import Array

if TYPE_CHECKING:
    from optdb.runtime.context import Context

#: The largest index that kernels compute in 32 bits.
_NARROW = 2**31 - 1


@dataclass(frozen=True)
class ChannelMap:
    """An elementwise expression of arrays and of per-channel numbers."""

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
        """Return whether rows consist of aligned groups of four elements with 32-bit indexes."""
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
