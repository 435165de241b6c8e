"""Plans of products, the function that runs them, and the kernels that all plans share.

A plan is a list of launches, made from numbers alone and cached, and the size of the scratch memory that they need.
`run` launches them with arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from optdb.codegen.gemm.problem import Problem
from optdb.codegen.kernels import SSIZES, CompiledKernel, Kernel, Packed
from optdb.codegen.scalars.types import C_TYPES
from optdb.codegen.scratch import scratch
from optdb.codegen.source import functions, typed, work_dtype
from optdb.runtime.arrays import Array

if TYPE_CHECKING:
    from optdb.runtime.context import Context

#: About what a launch takes on a GPU, in seconds, besides what it does.
LAUNCH_S = 5e-6
#: How many neighbours an item adds up at once.
_WIDE = 4
#: Where the second numbers of `by_tiles` tell parts, matrices, and how tiles are divided by.
PARTS, BATCH, DIVISORS = 6, 8, slice(9, 11)


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel."""

    #: Its name.
    kernel: str
    #: How many work items, and how many of them in a group.
    items: tuple[int, ...]
    group: tuple[int, ...]
    #: Its numbers, packed.
    sizes: tuple[Packed, ...]
    #: The arrays that it takes, a letter each: a, b, y, z, or w for scratch memory, and others for copies.
    arrays: str
    #: Which factors it takes: nothing; 'ab', alpha and beta; 'a1', alpha and 1.
    factors: str = ""


@dataclass(frozen=True)
class GemmPlan:
    """Launches one after the other."""

    #: In order.
    launches: Sequence[Launch]
    #: Elements of scratch memory, of the dtype to compute in.
    memory: int = 0
    #: The same of copies of matrices, by letter.
    copies: Mapping[str, int] = field(default_factory=dict)


def product_kernel(code: str, dtype: str, **words: Any) -> Kernel:
    """Return a kernel that may round once after a product and a sum, from code with types and other words left open."""
    return Kernel("#pragma OPENCL FP_CONTRACT ON\n" + typed(code, dtype, **words))


def total_kernel(dtype: str) -> Kernel:
    """Return the kernel that adds up the partial sums of several items."""
    return product_kernel(functions("gemm/vector.cl")["matmul_total"], dtype)


def wide_total_kernel(dtype: str) -> Kernel:
    """Return the kernel that adds up the partial sums of the groups of `by_tiles`."""
    vector = f"{C_TYPES[work_dtype(dtype)]}{_WIDE}"
    words = {"WIDE": _WIDE, "WORDS": vector, "VLOAD": f"vload{_WIDE}", "VSTORE": f"vstore{_WIDE}"}
    stores_whole = int(dtype == work_dtype(dtype))
    return product_kernel(
        functions("gemm/split_sums.cl")["matmul_total_wide"], dtype, **words, STORES_WHOLE=stores_whole
    )


def pack(*numbers: int) -> Packed:
    """Pack numbers into one argument of a launch."""
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


def by_tiles(
    problem: Problem, kernel: str, tiles: int, group: int, parts: int, multiple: int, divisors: Sequence[int] = ()
) -> GemmPlan:
    """Return the launches of a kernel whose groups compute a tile each, of all terms or of a part of them.

    Parameters
    ----------
    problem : Problem
        The product.
    kernel : str
        The name.
    tiles, group : int
        How many tiles there are, and how many items a group has.
    parts, multiple : int
        How many parts of the terms there are, at most, and what their lengths are multiples of.
    divisors : sequence of int
        What the kernel divides by, besides the number of parts: it gets the `reciprocal` of each.
    """
    p = problem
    part = -(-max(p.k, 1) // parts)
    # Round up, which may leave fewer parts.
    part = -(-part // multiple) * multiple
    parts = -(-max(p.k, 1) // part)
    sizes = pack(p.m, p.n, p.k, *p.a, p.b[0], p.b[2], p.b[1], *map(int, p.along), int(p.add))
    more = pack(*p.y, *p.z, parts, part, p.batch, *(map(reciprocal, (*divisors, parts)) if divisors else ()))
    letters = "abyz" + ("w" if parts > 1 else "z")
    multiply = Launch(kernel, (tiles * parts * group,), (group,), (sizes, more), letters, "ab")
    if parts == 1:
        return GemmPlan([multiply])
    size, items_of_row = p.batch * p.m * p.n, -(-p.n // _WIDE)
    items = p.batch * p.m * items_of_row
    added = pack(p.m, p.n, parts, size, int(p.add), items, items_of_row), pack(*p.y, *p.z)
    adding_up = Launch("matmul_total_wide", (-(-items // group) * group,), (group,), added, "yzw", "ab")
    return GemmPlan([multiply, adding_up], parts * size)


def reciprocal(divisor: int) -> int:
    """Return by what a kernel multiplies a number to divide it, before it drops 31 bits.

    The product of the number and the divisor has fewer bits.
    """
    return -(-(1 << 31) // divisor)


def run(
    plan: GemmPlan,
    kernels: Mapping[str, CompiledKernel],
    context: Context,
    arrays: Mapping[str, Array],
    alpha: float,
    beta: float,
    work: str,
) -> None:
    """Run a plan on arrays, by the letters a, b, y and z, and compute in the dtype `work`."""
    factors = {"": (), "ab": (alpha, beta), "a1": (alpha, 1.0)}

    def launch(arrays: Mapping[str, Array]) -> None:
        for step in plan.launches:
            operands = [arrays[letter] for letter in step.arrays]
            kernels[step.kernel].call(step.items, step.group, *step.sizes, *factors[step.factors], *operands)

    if not plan.memory and not plan.copies:
        launch(arrays)
        return
    with scratch(context, work, plan.memory, *plan.copies.values()) as (w, *copies):
        launch({**arrays, "w": w, **dict(zip(plan.copies, copies, strict=True))})
