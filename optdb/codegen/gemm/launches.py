"""A planned product, what runs it, and what the kernels of all plans share.

A plan is a list of launches, made from numbers alone and remembered, and the memory that they need besides the arrays.
`run` hands them the arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from optdb.codegen.kernels import SSIZES, CompiledKernel, Kernel
from optdb.codegen.scratch import scratch
from optdb.codegen.source import functions, typed
from optdb.runtime.arrays import Array

if TYPE_CHECKING:
    from optdb.runtime.context import Context


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel."""

    #: Its name.
    kernel: str
    #: How many work items, and how many of them in a group.
    items: tuple[int, ...]
    group: tuple[int, ...]
    #: Its numbers, packed.
    sizes: tuple[np.ndarray, ...]
    #: What it works on, a letter each: a, b, y, z, or w for the memory besides.
    arrays: str
    #: Which factors it takes: nothing; 'ab', alpha and beta; 'a1', alpha and 1.
    factors: str = ""


@dataclass(frozen=True)
class GemmPlan:
    """Launches one after the other."""

    #: In order.
    launches: Sequence[Launch]
    #: Numbers of the dtype computed in that they need besides the arrays.
    memory: int = 0


def product_kernel(code: str, dtype: str, **words: Any) -> Kernel:
    """Return a kernel of products of matrices of a dtype, from code with its types and other words left open."""
    return Kernel("#pragma OPENCL FP_CONTRACT ON\n" + typed(code, dtype, **words))


def total_kernel(dtype: str) -> Kernel:
    """Return the kernel that adds up the parts of sums that were too long for one item."""
    return product_kernel(functions("gemm/vector.cl")["matmul_total"], dtype)


def pack(*numbers: int) -> np.ndarray:
    """Return numbers as a launch takes them."""
    return SSIZES.pack(numbers)


def total(
    m: int,
    n: int,
    batch: int,
    parts: int,
    add: bool,
    y: Sequence[int],
    z: Sequence[int],
    columns: int = 1,
    group: int = 1,
    w_at: int = 0,
) -> Launch:
    """Return the launch that adds up the parts of sums; `y` and `z` are where these arrays begin, and their strides."""
    sizes = pack(m, n, parts, batch * m * n, int(add), w_at), pack(*y, *z)
    return Launch("matmul_total", (columns, batch * m), (group, 1), sizes, "yzw", "ab")


def run(
    plan: GemmPlan,
    kernels: Mapping[str, CompiledKernel],
    context: Context,
    arrays: Mapping[str, Array],
    alpha: float,
    beta: float,
    work: str,
) -> None:
    """Launch what was planned, for arrays by the letters a, b, y and z, and compute in the dtype `work`."""
    factors = {"": (), "ab": (alpha, beta), "a1": (alpha, 1.0)}

    def launch(arrays: Mapping[str, Array]) -> None:
        for step in plan.launches:
            given = [arrays[letter] for letter in step.arrays]
            kernels[step.kernel].call(step.items, step.group, *step.sizes, *factors[step.factors], *given)

    if not plan.memory:
        launch(arrays)
        return
    with scratch(context, work, plan.memory) as (w,):
        launch({**arrays, "w": w})
