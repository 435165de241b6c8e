"""Matrix-vector products.

Rows are divided among work items; if there are few rows, the terms of their sums are also divided.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

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
#: A GPU work group reads `NEAR` neighbouring elements of each of `FAR` rows or columns at a time.
NEAR, FAR = 32, 8
#: Minimum number of terms in a part, if there are too few rows to occupy all compute units.
PART = {"cpu": 4096, "gpu": 512}
#: Maximum number of parts, because one item adds all parts of a result element.
PARTS = 128
#: Wanted number of work groups per compute unit.
PIECES_PER_UNIT = {"cpu": 4, "gpu": 8}


def matvec_kernels(dtype: str, context: Context) -> list[Kernel]:
    """Return the kernels that `matvec` launches."""
    code, half = functions("gemm/vector.cl"), load_w(dtype) != ""
    kernel = filled(code[f"matvec_on_{context.profile.device_kind}"], STORE_SUM=body(code["store_sum"]))
    words: dict[str, str | int] = {"VECTOR": f"{C_TYPES[dtype]}16", "VLOAD": "vload_half16" if half else "vload16"}
    words |= {"MEMORY": "half" if half else ctype(dtype), "ROWS": ROWS, "NEAR": NEAR, "FAR": FAR}
    return [product_kernel(kernel, dtype, **words), total_kernel(dtype)]


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
    planned = _plan(context.profile.device_kind, context.profile.compute_units, m, k, steps, add)
    run(planned, kernels, context, {"a": a, "x": x, "y": y, "z": z}, alpha, beta)


@functools.lru_cache(maxsize=1024)
def _plan(device_kind: DeviceKind, units: int, m: int, k: int, steps: tuple[int, ...], add: bool) -> GemmPlan:
    a0, a1, _, y0, z0 = steps
    # If items read along short rows, most items in a group would be idle.
    along = abs(a1) <= abs(a0) and k > NEAR // 2
    rows, items = (ROWS, 1) if device_kind == "cpu" else (FAR if along else NEAR, NEAR * FAR)
    pieces = -(-m // rows)
    parts = max(min(-(-units * PIECES_PER_UNIT[device_kind] // pieces), k // PART[device_kind], PARTS), 1)
    part = -(-max(k, 1) // parts)
    parts = -(-max(k, 1) // part)
    sizes = pack(m, k, *steps, parts, part, int(add), int(along))
    letters = "axyz" + ("w" if parts > 1 else "z")
    launch = Launch(f"matvec_on_{device_kind}", (pieces * items, parts), (items, 1), (sizes,), letters, "ab")
    if parts == 1:
        return GemmPlan([launch])
    # The kernel that adds parts treats the result as one row.
    adding_up = total(Problem(1, 1, m, k, (0, 0, 0), (0, 0, 0), (0, 0, y0), (0, 0, z0), add), parts, TOTAL_GROUP)
    return GemmPlan([launch, adding_up], parts * m)
