"""Matrix-vector products.

Rows are divided among work items; if there are few rows, the terms of their sums are also divided. On a GPU, several
items add up the terms of a row, and neighbouring items read neighbouring elements.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import DTypeLike

from optdb.codegen.gemm.launches import TOTAL_GROUP, GemmPlan, Launch, pack, product_kernel, run, total, total_kernel
from optdb.codegen.gemm.problem import Problem
from optdb.codegen.kernels import Kernel, ctype
from optdb.codegen.operation import Kernels
from optdb.codegen.scalars.types import C_TYPES
from optdb.codegen.source import body, filled, functions, load_w
from optdb.runtime.arrays import Array

if TYPE_CHECKING:
    from optdb.runtime.context import Context
    from optdb.runtime.device_profiles import DeviceKind

#: Number of rows that a CPU work item multiplies.
ROWS = 16
#: Number of items in a GPU work group.
ITEMS = 256
#: Number of independent loads that an item issues at a time, from one row or from several rows.
BATCH = 8
#: Numbers of items that can share one row. The smallest number is used that gives each item at most `_TERMS` terms.
_LANES, _TERMS = (1, 2, 4, 8, 16, 32, 64, 128), 16
#: Maximum number of items that share a row if there are many rows.
_MOST_LANES_OF_MANY = 32
#: If rows have at least this length, an item works on several rows, because the vector does not stay in a GPU's caches.
_LONG = 1 << 16
#: Minimum number of terms in a part of a sum on a CPU, and minimum number of terms for each item of a part on a GPU.
PART = {"cpu": 4096, "gpu": 16}
#: Maximum number of parts: the parts of an element are added by one item on a CPU, and by 32 items on a GPU.
PARTS = {"cpu": 128, "gpu": 1024}
#: Target number of work groups per compute unit.
PIECES_PER_UNIT = {"cpu": 4, "gpu": 8}


def matvec_kernels(dtype: str, context: Context) -> list[Kernel]:
    """Return the kernels that `matvec` launches."""
    code, half = functions("gemm/vector.cl"), load_w(dtype) != ""
    words: dict[str, str | int] = {"VECTOR": f"{C_TYPES[dtype]}16", "VLOAD": "vload_half16" if half else "vload16"}
    words |= {"MEMORY": "half" if half else ctype(dtype), "ROWS": ROWS, "ITEMS": ITEMS}

    def kernel(name: str, **others: str | int) -> Kernel:
        source = filled(code[name], STORE_SUM=body(code["store_sum"]))
        return product_kernel(source, dtype, **words, **others)

    if context.profile.device_kind == "cpu":
        return [kernel("matvec_on_cpu"), total_kernel(dtype)]
    each = _each(dtype)
    return [
        kernel("matvec_along", matvec_along="matvec_along_one", EACH=1, BATCH=each),
        kernel("matvec_along", matvec_along="matvec_along_many", EACH=each, BATCH=1),
        kernel("matvec_across", BATCH=BATCH),
        kernel("matvec_total"),
    ]


def _each(dtype: DTypeLike) -> int:
    """Return how many rows an item works on; if it worked on more, too few groups would fit on a compute unit."""
    return BATCH // (2 if np.dtype(dtype).itemsize > 4 else 1)


def matvec(
    kernels: Kernels,
    context: Context,
    a: Array,
    x: Array,
    z: Array,
    alpha: float = 1.0,
    y: Array | None = None,
    beta: float = 0.0,
) -> None:
    """Set `z` to ``alpha * dot(a, x) + beta * y``, like `matmul` with vectors for `x`, `y` and `z`."""
    m, k = a.shape
    if k != x.shape[0] or z.shape != (m,):
        raise ValueError(f"shapes do not match: a product of {a.shape} and {x.shape} for an array of {z.shape}")
    add = y is not None and beta != 0
    y = z if y is None or beta == 0 else y
    if y.shape != (m,):
        raise ValueError(f"shapes do not match: an array of {y.shape} is added to a product of {a.shape} and {x.shape}")
    if not z.size:
        return
    steps = tuple(step // z.dtype.itemsize for array in (a, x, y, z) for step in array.strides)
    profile = context.profile
    planned = _plan(profile.device_kind, profile.compute_units, _each(z.dtype), m, k, steps, add)
    run(planned, kernels, context, {"a": a, "x": x, "y": y, "z": z}, alpha, beta)


@functools.lru_cache(maxsize=1024)
def _plan(
    device_kind: DeviceKind, units: int, each: int, m: int, k: int, steps: tuple[int, ...], add: bool
) -> GemmPlan:
    _, _, _, y0, z0 = steps
    wanted = units * PIECES_PER_UNIT[device_kind]
    if device_kind == "cpu":
        name, groups, items, lanes, least = "matvec_on_cpu", -(-m // ROWS), 1, 0, PART["cpu"]
    else:
        (name, groups, lanes, least), items = _on_gpu(each, m, k, steps, wanted), ITEMS
    parts = max(min(-(-wanted // groups), k // least, PARTS[device_kind]), 1)
    part = -(-max(k, 1) // parts)
    parts = -(-max(k, 1) // part)
    sizes = pack(m, k, *steps, parts, part, int(add), lanes)
    letters = "axyz" + ("w" if parts > 1 else "z")
    launch = Launch(name, (groups * items, parts), (items, 1), (sizes,), letters, "ab")
    if parts == 1:
        return GemmPlan([launch])
    if device_kind == "cpu":
        # The kernel that adds the parts treats the result vector as a matrix of one row.
        of_row = Problem(1, 1, m, k, (0, 0, 0), (0, 0, 0), (0, 0, y0), (0, 0, z0), add)
        adding_up = total(of_row, parts, TOTAL_GROUP)
    else:
        sizes = pack(m, y0, z0, parts, int(add))
        adding_up = Launch("matvec_total", (-(-m // (ITEMS // 32)) * ITEMS,), (ITEMS,), (sizes,), "yzw", "ab")
    return GemmPlan([launch, adding_up], parts * m)


def _on_gpu(each: int, m: int, k: int, steps: tuple[int, ...], wanted: int) -> tuple[str, int, int, int]:
    """Return a kernel's name, the number of groups, how many items share a row or column, and the terms of a part."""
    if m > 1 and abs(steps[1]) > abs(steps[0]):
        groups = -(-m // (ITEMS // 2))
        near = -(-m // groups)
        return "matvec_across", groups, near, PART["gpu"] * (ITEMS // near)
    lanes = next((lanes for lanes in _LANES if k <= lanes * _TERMS), ITEMS)
    of_many = max(min(lanes, _MOST_LANES_OF_MANY), min(8, lanes * 2))
    if m >= ITEMS // of_many * each * wanted // 2:
        lanes = of_many
    elif m < each or k < _LONG:
        return "matvec_along_one", -(-m // (ITEMS // lanes)), lanes, PART["gpu"] * lanes
    return "matvec_along_many", -(-m // (ITEMS // lanes * each)), lanes, PART["gpu"] * lanes
