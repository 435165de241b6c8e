"""Kernels that compute arrays element by element with numbers that each channel has.

Those of numbers.cl find them, with an item for each channel; those of `ChannelMap` go over all elements: in pieces of
rows, in which the numbers stay the same, or of columns, in which there is one of each for every element.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from optdb.codegen.kernels import CompiledKernel, Kernel, ctype
from optdb.codegen.layout import launch_chunks, launch_items
from optdb.codegen.normalization.channels import Channels, Runs
from optdb.codegen.source import ROUND_EACH_STEP, add_offsets, joined, load_w, work_dtype, write_w
from optdb.runtime.arrays import Array

if TYPE_CHECKING:
    from optdb.runtime.context import Context


@dataclass(frozen=True)
class ChannelMap:
    """An elementwise expression of arrays and of numbers of each channel."""

    #: Of the arrays.
    dtype: str
    #: How many runs their axes make.
    runs: Runs
    #: The expression's name for an element of each array.
    arrays: tuple[str, ...]
    #: Its names for the channel's numbers, which have the dtype to compute in.
    numbers: tuple[str, ...]
    #: OpenCL C.
    expression: str

    def kernels(self) -> list[Kernel]:
        """Return the kernels for rows and for columns."""
        return Kernel.all_of(ROUND_EACH_STEP + self._kernel("map_rows", False) + self._kernel("map_columns", True))

    def launch(
        self, kernels: Mapping[str, CompiledKernel], context: Context, channels: Channels, arrays: Sequence[Array]
    ) -> None:
        """Compute the last array from the others, in C order, and the numbers."""
        kernel = kernels["map_columns" if channels.in_columns else "map_rows"]
        n = channels.number * channels.size
        launch_chunks(kernel, context, n, *channels.place_args(), *arrays)

    def _kernel(self, name: str, columns: bool) -> str:
        stored, computed, load = ctype(self.dtype), ctype(work_dtype(self.dtype)), load_w(self.dtype)
        outer = range(self.runs.outer)
        params = ["ga_size inner", *[f"ga_size n{d}" for d in outer], *[f"ga_size ks{d}" for d in outer]]
        params += [f"ARRAY {stored} *restrict a_{x}" for x in self.arrays]
        params += [f"ARRAY {computed} *restrict c_{x}" for x in self.numbers]
        numbers = joined(f"const {computed} {x} = c_{x}[k];" for x in self.numbers)
        return f"""
OUTLINED_KERNEL void {name}(ga_size n, ga_size chunk, {", ".join(params)}, ARRAY {stored} *restrict z)
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
    """Launch a kernel of numbers.cl for `n` channels."""
    items = min(context.profile.compute_units, max(n // 64, 1)) if context.profile.runs_items_serially else n
    launch_items(kernel, context, items, n, *args)
