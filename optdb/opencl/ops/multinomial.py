"""Draws from distributions that the rows of a matrix give, by uniform random numbers.

A work item takes a row, and goes through its draws in the host's order, so that the
results are the host's: probabilities add up in double precision, and the first outcome
at which the sum is larger than the random number is drawn. "The host" is its C code;
its Python code adds up in single precision where outcomes are drawn without replacement.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from optdb.codegen.fp16 import load_w, write_w
from optdb.codegen.layout import launch_striding
from optdb.codegen.scalars.types import c_type
from optdb.host.graph import Apply
from optdb.host.random import ChoiceFromUniform, MultinomialFromUniform
from optdb.opencl.kernels import (
    ARRAY,
    SIZE,
    SSIZE,
    CompiledKernel,
    Kernel,
    Kernels,
    OpenCLKernelBase,
    Outputs,
    ctype,
    output_array,
)
from optdb.opencl.ops.counterpart import Counterpart
from optdb.runtime.arrays import Array, empty

if TYPE_CHECKING:
    from optdb.runtime.context import Context


_ROWS = """
#pragma OPENCL FP_CONTRACT OFF
OUTLINED_KERNEL void draw(ga_size rows, ga_size outcomes, ga_size draws,
    GLOBAL_MEM {p_stored} *p_mem, ga_size p_off, ga_ssize p_row, ga_ssize p_step,
    GLOBAL_MEM {u_stored} *u_mem, ga_size u_off, ga_ssize u_step,
    GLOBAL_MEM {z_stored} *z_mem, ga_size z_off{more})
{{
GLOBAL_MEM {p_stored} *p_at = (GLOBAL_MEM {p_stored} *)((GLOBAL_MEM char *)p_mem + p_off);
GLOBAL_MEM {u_stored} *u_at = (GLOBAL_MEM {u_stored} *)((GLOBAL_MEM char *)u_mem + u_off);
GLOBAL_MEM {z_stored} *z_at = (GLOBAL_MEM {z_stored} *)((GLOBAL_MEM char *)z_mem + z_off);
{pointers}
for (ga_size row = get_global_id(0); row < rows; row += get_global_size(0)) {{
    const GLOBAL_MEM {p_stored} *p = p_at + (ga_ssize)row * p_row;
    {start}
    for (ga_size c = 0; c < draws; ++c) {{
        const {u_work} u = {u_load}(u_at[(ga_ssize)(c * rows + row) * u_step]);
        double sum = 0;
        for (ga_size m = 0; m < outcomes; ++m) {{
            const {p_work} mine = {mine};
            sum += mine;
            if (sum > u) {{
                {take}
                break;
            }}
        }}
    }}
}}
}}
"""

_COUNT = {
    "start": "GLOBAL_MEM {z_stored} *z = z_at + row * outcomes;\n"
    "for (ga_size m = 0; m < outcomes; ++m) z[m] = {z_store}(0);",
    "mine": "{p_load}(p[(ga_ssize)m * p_step])",
    "take": "z[m] = {z_store}(({z_work})({z_load}(z[m]) + 1));",
    "more": "",
    "pointers": "",
}

# What is left after a draw adds up to 1 again: the sum of what comes before, as the host has it, and of the rest.
_RENORMALIZE = """
if (c + 1 < draws) {{
    {p_work} whole = (sum - mine);
    left[m] = 0;
    for (ga_size k = m; k < outcomes; ++k)
        whole = whole + left[k];
    for (ga_size k = 0; k < outcomes; ++k)
        left[k] = left[k] / whole;
}}
"""

_CHOOSE = {
    "start": "GLOBAL_MEM {p_work} *left = left_at + row * outcomes;\nGLOBAL_MEM {z_stored} *z = z_at + row * draws;\n"
    "for (ga_size m = 0; m < outcomes; ++m) left[m] = {p_load}(p[(ga_ssize)m * p_step]);\n"
    "for (ga_size c = 0; c < draws; ++c) z[c] = {z_store}(({z_work})(-1));",
    "mine": "left[m]",
    "more": ",\n    GLOBAL_MEM {p_work} *left_mem, ga_size left_off",
    "pointers": "GLOBAL_MEM {p_work} *left_at = (GLOBAL_MEM {p_work} *)((GLOBAL_MEM char *)left_mem + left_off);",
}


class _FromUniform(Counterpart, OpenCLKernelBase):
    """What both ops share: probabilities and random numbers on the device, how many draws on the host."""

    device_inputs: ClassVar[slice] = slice(0, 2)

    def code(self) -> dict[str, str]:
        """Return the parts of the kernel that are the op's own."""
        raise NotImplementedError

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        p, u, z = (x.type.dtype for x in (*node.inputs[:2], *node.outputs))
        words = {}
        for letter, dtype in (("p", p), ("u", u), ("z", z)):
            words[f"{letter}_stored"] = ctype(dtype)
            words[f"{letter}_work"] = c_type(dtype)
            words[f"{letter}_load"] = load_w(dtype)
            words[f"{letter}_store"] = write_w(dtype)
        parts = {key: text.format(**words) for key, text in self.code().items()}
        text = _ROWS.format(**parts, **words)
        more = [ARRAY] if parts["more"] else []
        params = [SIZE, SIZE, SIZE, ARRAY, SSIZE, SSIZE, ARRAY, SSIZE, ARRAY, *more]
        return [Kernel(text, "draw", params, Kernel.get_flags(p, u, z, "float64"))]


class OpenCLMultinomialFromUniform(_FromUniform, MultinomialFromUniform):
    """How often each outcome was drawn, for each row of probabilities."""

    host = MultinomialFromUniform

    def code(self) -> dict[str, str]:
        return _COUNT

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        p, u, n = inputs
        _check_draws(p, u, int(n))
        out = output_array(outputs[0], context, p.shape, node.outputs[0].type.dtype)
        if out.size:
            _launch(kernels["draw"], context, p, u, int(n), out)


class OpenCLChoiceFromUniform(_FromUniform, ChoiceFromUniform):
    """Which outcomes were drawn, for each row of probabilities; -1 where the row adds up to too little."""

    host = ChoiceFromUniform

    def code(self) -> dict[str, str]:
        return {**_CHOOSE, "take": "z[c] = {z_store}(m);" + ("" if self.replace else _RENORMALIZE)}

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        p, u, n = inputs
        if n > p.shape[1]:
            raise ValueError(
                "Cannot sample without replacement n samples bigger than the size of the distribution: "
                f"{n} of {p.shape[1]}"
            )
        _check_draws(p, u, int(n))
        out = output_array(outputs[0], context, (p.shape[0], int(n)), node.outputs[0].type.dtype)
        if out.size:
            left = empty(context, p.shape, "float32" if p.dtype == "float16" else p.dtype)
            _launch(kernels["draw"], context, p, u, int(n), out, left)


def _check_draws(p: Array, u: Array, n: int) -> None:
    if u.shape[0] != p.shape[0] * n:
        raise ValueError(
            f"unis.shape[0] != pvals.shape[0] * n: {u.shape[0]} numbers for {n} draws of {p.shape[0]} rows"
        )


def _launch(kernel: CompiledKernel, context: Context, p: Array, u: Array, n: int, *out: Array) -> None:
    rows, outcomes = p.shape
    item = p.dtype.itemsize
    args = [rows, outcomes, n, p, p.strides[0] // item, p.strides[1] // item]
    args += [u, u.strides[0] // u.dtype.itemsize, *out]
    launch_striding(kernel, context, rows, 8, *args)
