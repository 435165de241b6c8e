"""Plans of products, the function that runs them, and the kernels that all plans share."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from optdb.codegen.gemm.problem import GroupTile, Problem
from optdb.codegen.kernels import SSIZES, Kernel, Packed
from optdb.codegen.operation import Kernels
from optdb.codegen.scalars.types import C_TYPES
from optdb.codegen.scratch import scratch
from optdb.codegen.source import functions, typed, work_dtype
from optdb.runtime.arrays import Array

if TYPE_CHECKING:
    from optdb.runtime.context import Context

#: Approximate overhead of a launch on a GPU, in seconds.
LAUNCH_S = 5e-6
#: Vector width of the kernel that adds partial sums.
_WIDE = 4
#: Work-group size of the kernel that adds partial sums, for products that are not divided into tiles.
TOTAL_GROUP = 32
#: Maximum work-group size of the kernel that adds partial sums.
_MOST_TOTAL_GROUP = 256
_MACRO = re.compile(r"^#define (\w+)", re.MULTILINE)


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel."""

    #: Name of the kernel.
    kernel: str
    #: Global and local size.
    items: tuple[int, ...]
    group: tuple[int, ...]
    #: Packed integer arguments.
    sizes: tuple[Packed, ...]
    #: Array arguments, one letter each: a, b, y and z for the matrices, w for scratch memory, and other letters for
    #: copies.
    arrays: str
    #: Factors that the kernel takes: none (''), alpha and beta ('ab'), or alpha and 1 ('a1').
    factors: str = ""


@dataclass(frozen=True)
class GemmPlan:
    """A sequence of launches, and the scratch memory that they need."""

    #: Launches in order.
    launches: Sequence[Launch]
    #: Number of scratch elements, in the dtype used for computation.
    memory: int = 0
    #: Maps the letter of each copy of a matrix to the copy's number of elements.
    copies: Mapping[str, int] = field(default_factory=dict)

    def swapped(self) -> GemmPlan:
        """Return the plan with the two matrices exchanged."""
        swap = str.maketrans("ab", "ba")
        launches = [replace(launch, arrays=launch.arrays.translate(swap)) for launch in self.launches]
        return replace(self, launches=launches)


def product_kernel(code: str, dtype: str, **words: Any) -> Kernel:
    """Return a kernel from a template; the compiler may contract multiplications and additions into FMA."""
    code = typed(code, dtype, **words)
    # Other kernels in the same source may define macros with these names.
    macros = dict.fromkeys(_MACRO.findall(code))
    return Kernel("#pragma OPENCL FP_CONTRACT ON\n" + code + "".join(f"#undef {macro}\n" for macro in macros))


def total_kernel(dtype: str) -> Kernel:
    """Return the kernel that `total` launches."""
    vector = f"{C_TYPES[work_dtype(dtype)]}{_WIDE}"
    words = {"WIDE": _WIDE, "WORDS": vector, "VLOAD": f"vload{_WIDE}", "VSTORE": f"vstore{_WIDE}"}
    stores_whole = int(dtype == work_dtype(dtype))
    return product_kernel(functions("gemm/vector.cl")["matmul_total"], dtype, **words, STORES_WHOLE=stores_whole)


def pack(*numbers: int) -> Packed:
    """Pack numbers into one argument of a launch."""
    return SSIZES.pack(numbers)


def total(problem: Problem, parts: int, group: int, offsets: tuple[int, int, int] = (0, 0, 0)) -> Launch:
    """Return the launch that adds partial sums; `offsets` has the offsets of y, of z and of the partial sums."""
    p, items_of_row = problem, -(-problem.n // _WIDE)
    items = p.batch * p.m * items_of_row
    sizes = pack(p.m, p.n, parts, p.batch * p.m * p.n, int(p.add), items, items_of_row), pack(*p.y, *p.z, *offsets)
    return Launch("matmul_total", (-(-items // group) * group,), (group,), sizes, "yzw", "ab")


def by_tiles(
    problem: Problem, kernel: str, tile: GroupTile, parts: int, multiple: int | None = None, has_divisors: bool = False
) -> GemmPlan:
    """Return the launches of a kernel whose work groups each compute one tile, from all or some of the terms.

    Terms are split into at most `parts` parts, whose lengths are multiples of `multiple`, by default the tile's depth.
    With `has_divisors`, the kernel gets the `reciprocal` of each of three numbers: tiles per row, tiles per column, and
    parts.
    """
    p, multiple, group = problem, multiple or tile.depth, tile.items
    part = -(-max(p.k, 1) // parts)
    # Rounding the length of a part up can reduce the number of parts.
    part = -(-part // multiple) * multiple
    parts = -(-max(p.k, 1) // part)
    sizes = pack(p.m, p.n, p.k, *p.a, p.b[0], p.b[2], p.b[1], *map(int, p.along), int(p.add))
    divisors = (-(-p.n // tile.cols), -(-p.m // tile.rows), parts) if has_divisors else ()
    more = pack(*p.y, *p.z, parts, part, p.batch, *map(reciprocal, divisors))
    letters = "abyz" + ("w" if parts > 1 else "z")
    multiply = Launch(kernel, (p.tiles(tile) * parts * group,), (group,), (sizes, more), letters, "ab")
    if parts == 1:
        return GemmPlan([multiply])
    adding_up = total(p, parts, min(group, _MOST_TOTAL_GROUP))
    return GemmPlan([multiply, adding_up], parts * p.batch * p.m * p.n)


def retiled(sizes: Sequence[Any], tile: GroupTile) -> tuple[int, tuple[Packed, ...]] | None:
    """Return the number of groups and the packed arguments of a launch of `by_tiles` with another tile.

    `sizes` are the packed arguments of the original launch, which include divisors. Return None if sums are split into
    parts.
    """
    (m, n, *_), numbers = (list(packed.item()) for packed in sizes)
    across, down = -(-n // tile.cols), -(-m // tile.rows)
    # Of the packed numbers, only two divisors depend on the tile.
    parts, batch, numbers[9:11] = numbers[6], numbers[8], map(reciprocal, (across, down))
    return None if parts > 1 else (across * down * batch, (sizes[0], pack(*numbers)))


def reciprocal(divisor: int) -> int:
    """Return a factor such that ``number * factor >> 31`` is the quotient, if number times divisor is below 2**31."""
    return -(-(1 << 31) // divisor)


def run(
    plan: GemmPlan, kernels: Kernels, context: Context, arrays: Mapping[str, Array], alpha: float, beta: float
) -> None:
    """Run a plan; `arrays` maps the letters a, b, y and z to the arrays."""
    factors = {"": (), "ab": (alpha, beta), "a1": (alpha, 1)}

    def launch(arrays: Mapping[str, Array]) -> None:
        for step in plan.launches:
            operands = [arrays[letter] for letter in step.arrays]
            kernels[step.kernel].call(step.items, step.group, *step.sizes, *factors[step.factors], *operands)

    if not plan.memory and not plan.copies:
        launch(arrays)
        return
    with scratch(context, work_dtype(arrays["z"].dtype), plan.memory, *plan.copies.values()) as (w, *copies):
        launch({**arrays, "w": w, **dict(zip(plan.copies, copies, strict=True))})
