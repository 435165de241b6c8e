"""Kernels that compute arrays element by element with numbers that each channel has.

`ChannelNumbers` are kernels with an item for each channel, `ChannelMap` those that go over all
elements: in pieces of rows, in which the numbers stay the same, or of columns, in which there is
one of each for every element.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from optdb.codegen.batch_norm.channels import Channels, Runs
from optdb.codegen.fp16 import load_w, work_dtype, write_w
from optdb.codegen.kernels import ARRAY, SIZE, CompiledKernel, Kernel, ctype
from optdb.codegen.layout import launch_chunks
from optdb.runtime.arrays import Array

if TYPE_CHECKING:
    from optdb.runtime.context import Context


@dataclass(frozen=True)
class ChannelMap:
    """What is computed of each element.

    Parameters
    ----------
    dtype : str
        Of the arrays.
    runs : Runs
        How many runs their axes make.
    arrays : tuple of str
        What the expression calls an element of each.
    numbers : tuple of str
        What it calls the channel's numbers, which are of the dtype to compute in.
    expression : str
        OpenCL C.
    """

    dtype: str
    runs: Runs
    arrays: tuple[str, ...]
    numbers: tuple[str, ...]
    expression: str

    def kernels(self) -> list[Kernel]:
        """Return the kernels for rows and for columns."""
        kinds = [SIZE] * 3 + [SIZE] * (2 * self.runs.outer) + [ARRAY] * (len(self.arrays) + len(self.numbers) + 1)
        flags = Kernel.get_flags(self.dtype)
        return [
            Kernel(self._kernel("map_rows", False), "map_rows", kinds, flags),
            Kernel(self._kernel("map_columns", True), "map_columns", kinds, flags),
        ]

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
        places = ["ga_size inner", *[f"ga_size n{d}" for d in outer], *[f"ga_size ks{d}" for d in outer]]
        pointers = [(f"a_{x}", stored) for x in self.arrays] + [(f"c_{x}", computed) for x in self.numbers]
        pointers.append(("z", stored))
        params = [f"GLOBAL_MEM {kind} *restrict {x}, ga_size {x}_off" for x, kind in pointers]
        step = "k += at % n{0} * ks{0}; at /= n{0};"
        channel = [step.format(d) for d in reversed(outer)]
        numbers = _lines(f"const {computed} {x} = c_{x}[k];" for x in self.numbers)
        return f"""
#pragma OPENCL FP_CONTRACT OFF
OUTLINED_KERNEL void {name}(ga_size n, ga_size chunk, {", ".join([*places, *params])})
{{
{_lines(f"{x} = (GLOBAL_MEM {kind} *)((GLOBAL_MEM char *){x} + {x}_off);" for x, kind in pointers)}
ga_size i = get_global_id(0) * chunk;
const ga_size end = min(i + chunk, n);
while (i < end) {{
const ga_size column = i % inner;
ga_size at = i / inner, k = {"column" if columns else 0};
const ga_size stop = min(end, i + (inner - column));
{_lines(channel)}
{"" if columns else numbers}
for (; i < stop; ++i{", ++k" if columns else ""}) {{
{numbers if columns else ""}
{_lines(f"const {computed} {x} = {load}(a_{x}[i]);" for x in self.arrays)}
z[i] = {write_w(self.dtype)}({self.expression});
}}
}}
}}
"""


@dataclass(frozen=True)
class ChannelNumbers:
    """What is computed of the numbers of each channel.

    Parameters
    ----------
    scalars : tuple of (str, str)
        Names and dtypes of numbers that all channels share; those of `sizes` come before them.
    arrays : tuple of (str, str)
        Names and dtypes of arrays with an element for each channel, inputs and outputs.
    statements : str
        OpenCL C for channel ``k`` of ``n``.
    sizes : tuple of str
        Names of whole numbers.
    """

    scalars: tuple[tuple[str, str], ...]
    arrays: tuple[tuple[str, str], ...]
    statements: str
    sizes: tuple[str, ...] = ()

    def kernel(self) -> Kernel:
        """Return the kernel."""
        params = [f"ga_size {name}" for name in ("n", *self.sizes)]
        params += [f"{ctype(dtype)} {name}" for name, dtype in self.scalars]
        params += [f"GLOBAL_MEM {ctype(dtype)} *{name}, ga_size {name}_off" for name, dtype in self.arrays]
        pointers = [
            f"{name} = (GLOBAL_MEM {ctype(dtype)} *)((GLOBAL_MEM char *){name} + {name}_off);"
            for name, dtype in self.arrays
        ]
        code = f"""
#pragma OPENCL FP_CONTRACT OFF
OUTLINED_KERNEL void numbers({", ".join(params)})
{{
{_lines(pointers)}
for (ga_size k = get_global_id(0); k < n; k += get_global_size(0)) {{
{self.statements}
}}
}}
"""
        kinds: list[Any] = [SIZE] * (1 + len(self.sizes)) + [dtype for _, dtype in self.scalars]
        dtypes = sorted({dtype for _, dtype in (*self.scalars, *self.arrays)})
        return Kernel(code, "numbers", [*kinds, *[ARRAY] * len(self.arrays)], Kernel.get_flags(*dtypes))

    def launch(self, kernels: Mapping[str, CompiledKernel], context: Context, n: int, *args: Any) -> None:
        """Compute for `n` channels."""
        if context.profile.runs_items_serially:
            kernels["numbers"].call(min(context.profile.compute_units, max(n // 64, 1)), 1, n, *args)
        else:
            kernels["numbers"].scall(n, n, *args)


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(lines)
