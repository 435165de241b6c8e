"""Draws from distributions that the rows of a matrix give, by uniform random numbers.

A work item takes a row, and goes through its draws in the host's order, so that the
results are the host's: probabilities add up in double precision, and the first outcome
at which the sum is larger than the random number is drawn. "The host" is its C code;
its Python code adds up in single precision where outcomes are drawn without replacement.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optdb.codegen.fp16 import type_words, work_dtype
from optdb.codegen.layout import launch_striding, steps_of
from optdb.host.graph import Apply
from optdb.host.random import ChoiceFromUniform, MultinomialFromUniform
from optdb.opencl.kernels import (
    CompiledKernel,
    Context,
    Kernel,
    Kernels,
    OpenCLKernelBase,
    Outputs,
    output_array,
)
from optdb.opencl.ops.counterpart import Counterpart
from optdb.runtime.arrays import Array, empty

_ROWS = """
#pragma OPENCL FP_CONTRACT OFF
OUTLINED_KERNEL void draw(ga_size rows, ga_size outcomes, ga_size draws,
    ARRAY {p_stored} *p_at, ga_ssize p_row, ga_ssize p_step, ARRAY {u_stored} *u_at, ga_ssize u_step,
    ARRAY {z_stored} *z_at{more})
{{
for (ga_size row = get_global_id(0); row < rows; row += get_global_size(0)) {{
    const GLOBAL_MEM {p_stored} *p = p_at + (ga_ssize)row * p_row;
    {start}
    for (ga_size c = 0; c < draws; ++c) {{
        const {u_work} u = {u_load}(u_at[(ga_ssize)(c * rows + row) * u_step]);
        ga_double sum = 0;
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
    "more": ", ARRAY {p_work} *left_at",
}


class _FromUniform(Counterpart, OpenCLKernelBase):
    """What both ops share: probabilities and random numbers on the device, how many draws on the host."""

    device_inputs = slice(0, 2)

    def code(self) -> dict[str, str]:
        """Return the parts of the kernel that are the op's own."""
        raise NotImplementedError

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        p, u, z = (x.type.dtype for x in (*node.inputs[:2], *node.outputs))
        words = {**type_words(p, "p_"), **type_words(u, "u_"), **type_words(z, "z_")}
        parts = {key: text.format(**words) for key, text in self.code().items()}
        return [Kernel(_ROWS.format(**parts, **words))]


class OpenCLMultinomialFromUniform(_FromUniform, MultinomialFromUniform):
    """How often each outcome was drawn, for each row of probabilities."""

    def code(self) -> dict[str, str]:
        return _COUNT

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        p, u, n = inputs
        _check_draws(p, u, int(n))
        out = output_array(outputs[0], context, p.shape, node.outputs[0].type.dtype)
        _launch(kernels["draw"], context, p, u, int(n), out)


class OpenCLChoiceFromUniform(_FromUniform, ChoiceFromUniform):
    """Which outcomes were drawn, for each row of probabilities; -1 where the row adds up to too little."""

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
        _launch(kernels["draw"], context, p, u, int(n), out, empty(context, p.shape, work_dtype(p.dtype)))


def _check_draws(p: Array, u: Array, n: int) -> None:
    if u.shape[0] != p.shape[0] * n:
        raise ValueError(
            f"unis.shape[0] != pvals.shape[0] * n: {u.shape[0]} numbers for {n} draws of {p.shape[0]} rows"
        )


def _launch(kernel: CompiledKernel, context: Context, p: Array, u: Array, n: int, *out: Array) -> None:
    launch_striding(kernel, context, *p.shape, n, p, *steps_of(p), u, *steps_of(u), *out)
