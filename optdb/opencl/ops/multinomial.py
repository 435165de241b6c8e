"""Draws from distributions that the rows of a matrix give, by uniform random numbers.

A work item takes a row, and goes through its draws in the host's order, so that the
results are the host's: probabilities add up in double precision, and the first outcome
at which the sum is larger than the random number is drawn. "The host" is its C code;
its Python code adds up in single precision where outcomes are drawn without replacement.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from optdb.codegen.fp16 import work_dtype
from optdb.codegen.layout import launch_striding, steps_of
from optdb.codegen.source import ROUND_EACH_STEP, functions, type_words, typed
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

_KERNELS = functions("rows.cl")


class _FromUniform(Counterpart, OpenCLKernelBase):
    """What both ops share: probabilities and random numbers on the device, how many draws on the host."""

    device_inputs = slice(0, 2)

    #: The kernel.
    kernel: ClassVar[str]

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        p, u, z = (x.type.dtype for x in (*node.inputs[:2], *node.outputs))
        words = {**type_words(p, "P_"), **type_words(u, "U_"), "REPLACE": int(getattr(self, "replace", False))}
        return [Kernel(ROUND_EACH_STEP + typed(_KERNELS[self.kernel], z, **words))]


class OpenCLMultinomialFromUniform(_FromUniform, MultinomialFromUniform):
    """How often each outcome was drawn, for each row of probabilities."""

    kernel = "count_draws"

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        p, u, n = inputs
        _check_draws(p, u, int(n))
        out = output_array(outputs[0], context, p.shape, node.outputs[0].type.dtype)
        _launch(kernels[self.kernel], context, p, u, int(n), out)


class OpenCLChoiceFromUniform(_FromUniform, ChoiceFromUniform):
    """Which outcomes were drawn, for each row of probabilities; -1 where the row adds up to too little."""

    kernel = "choose"

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        p, u, n = inputs
        if n > p.shape[1]:
            raise ValueError(
                "Cannot sample without replacement n samples bigger than the size of the distribution: "
                f"{n} of {p.shape[1]}"
            )
        _check_draws(p, u, int(n))
        out = output_array(outputs[0], context, (p.shape[0], int(n)), node.outputs[0].type.dtype)
        _launch(kernels[self.kernel], context, p, u, int(n), out, empty(context, p.shape, work_dtype(p.dtype)))


def _check_draws(p: Array, u: Array, n: int) -> None:
    if u.shape[0] != p.shape[0] * n:
        raise ValueError(
            f"unis.shape[0] != pvals.shape[0] * n: {u.shape[0]} numbers for {n} draws of {p.shape[0]} rows"
        )


def _launch(kernel: CompiledKernel, context: Context, p: Array, u: Array, n: int, *out: Array) -> None:
    launch_striding(kernel, context, *p.shape, n, p, *steps_of(p), u, *steps_of(u), *out)
