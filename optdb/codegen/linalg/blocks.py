"""Kernels for small matrices and for blocks of large ones, and their launches.

On a CPU, an item processes a whole block with vectors; on a GPU, a work group processes it in local memory. All kernels
take a batch of matrices with any strides, and operate on lower triangles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from optdb.codegen.gemm.blocks import vector_width
from optdb.codegen.gemm.launches import product_kernel
from optdb.codegen.kernels import Kernel, ctype
from optdb.codegen.layout import launch_items
from optdb.codegen.operation import Kernels
from optdb.codegen.source import body, filled, functions
from optdb.runtime.arrays import Array
from optdb.runtime.sizes import smallest

if TYPE_CHECKING:
    from optdb.runtime.context import Context

#: Maximum numbers of rows for the kernels that process one matrix per vector lane.
SIDES = (4, 8)
#: Maximum number of rows in a block that one CPU work item or GPU work group processes.
LEAF = {"cpu": 64, "gpu": 32}
#: Number of rows that a CPU work item computes at a time, and number of vectors per row.
_ROWS, _VECTORS = 4, 2
#: Maximum work-group size on a GPU; a power of two.
_GROUP = 64
#: Work items per compute unit of a CPU: with several, one slow unit does not delay the launch.
_ITEMS_PER_UNIT = 8


def leaf_rows(context: Context) -> int:
    """Return the number of rows of the largest block."""
    return LEAF[context.profile.device_kind]


def factor_kernels(dtype: str, context: Context) -> list[Kernel]:
    """Return the kernels that `factor_block` and `finish` launch."""
    lanes = [_lane_kernel("CHOLESKY_SIDE", "cholesky", side, dtype, context) for side in SIDES]
    return [*lanes, _block_kernel("cholesky_leaf", dtype, context), whole_kernel("finish_triangle", dtype, context)]


def panel_kernels(dtype: str, context: Context) -> list[Kernel]:
    """Return the kernels of `solve_vectors`, and those of `solve_block` for blocks of `leaf_rows`."""
    names = ["solve_leaf", "solve_vector"] if context.profile.runs_items_serially else ["solve_leaf"]
    return [_block_kernel(name, dtype, context) for name in names]


def solve_kernels(dtype: str, context: Context) -> list[Kernel]:
    """Return the kernels that `solve_block` and `solve_vectors` launch."""
    lanes = [_lane_kernel("SOLVE_SIDE", "solve", side, dtype, context) for side in SIDES]
    return lanes + panel_kernels(dtype, context)


def factor_block(
    kernels: Kernels, context: Context, x: Array, z: Array, info: Array, begin: int = 0, whole: bool = True
) -> None:
    """Set the lower triangles of `z` to the factors of `x`, which may be `z`; both have at most `leaf_rows`.

    The upper triangle of a `whole` matrix becomes 0; that of a block, which begins at row `begin`, is unchanged. `info`
    receives the number of the first pivot that is not positive, or 0.
    """
    count, n, _ = z.shape
    arrays = [x, *_steps(x), z, *_steps(z), info]
    if whole and n <= SIDES[-1]:
        _launch_lanes(kernels, context, "cholesky", count, n, z.dtype.name, [count, n, *arrays])
        return
    args = [count, n, begin, int(whole), *arrays]
    if context.profile.runs_items_serially:
        launch_items(kernels["cholesky_leaf"], context, _items(context, count), *args)
    else:
        group = smallest(2 * _GROUP, _power_of_two(context.profile.max_local_size))
        kernels["cholesky_leaf"].call(count * group, group, *args)


def finish(kernels: Kernels, context: Context, z: Array, info: Array, lower: bool) -> None:
    """Zero the other triangle of C-contiguous factors; fill failed factors with NaN."""
    count, n, _ = z.shape
    launch_groups(kernels["finish_triangle"], context, count * n, n, int(lower), z, info)


def solve_block(kernels: Kernels, context: Context, t: Array, z: Array, unit: bool) -> None:
    """Solve systems in place, with lower triangles of at most `leaf_rows`; all systems may share one triangle."""
    count, n, m = z.shape
    arrays = [t, *_steps(t), z, *_steps(z)]
    if n <= SIDES[-1]:
        _launch_lanes(kernels, context, "solve", count * m, n, z.dtype.name, [count * m, m, n, int(unit), *arrays])
        return
    serial = context.profile.runs_items_serially
    group = smallest(_GROUP, _power_of_two(context.profile.max_local_size))
    columns = vector_width(context, t.dtype.name) * _VECTORS if serial else group
    tiles = -(-m // columns)
    args = [count * tiles, tiles, m, n, int(unit), *arrays]
    if serial:
        launch_items(kernels["solve_leaf"], context, _items(context, count * tiles), *args)
    else:
        kernels["solve_leaf"].call(count * tiles * group, group, *args)


def solve_vectors(kernels: Kernels, context: Context, t: Array, z: Array, lower: bool, unit: bool) -> None:
    """Solve in place for one contiguous right-hand side per matrix, on a CPU."""
    count, n, _ = z.shape
    args = [count, n, int(not lower), int(unit), t, *_steps(t), z, _steps(z)[0]]
    launch_items(kernels["solve_vector"], context, _items(context, count), *args)


def whole_kernel(name: str, dtype: str, context: Context, **words: Any) -> Kernel:
    """Return a kernel from common.cl, with additional placeholders."""
    serial = context.profile.runs_items_serially
    words |= {"LANE": "0", "LANES": "1"} if serial else {"LANE": "LID_0", "LANES": "LDIM_0"}
    return product_kernel(functions("linalg/common.cl")[name], dtype, GROUP=1 if serial else _GROUP, **words)


def launch_groups(kernel: Any, context: Context, tasks: int, *args: Any) -> None:
    """Launch a kernel from common.cl, whose work groups loop over the tasks."""
    if context.profile.runs_items_serially:
        kernel.call(_items(context, tasks), 1, tasks, *args)
        return
    group = smallest(_GROUP, _power_of_two(context.profile.max_local_size))
    kernel.call(tasks * group, group, tasks, *args)


def _launch_lanes(
    kernels: Kernels, context: Context, name: str, count: int, n: int, dtype: str, args: list[Any]
) -> None:
    side = next(side for side in SIDES if n <= side)
    width = vector_width(context, dtype) if context.profile.runs_items_serially else 1
    tasks = -(-count // width)
    items = _items(context, tasks) if context.profile.runs_items_serially else tasks
    launch_items(kernels[f"{name}_{side}"], context, items, *args)


def _items(context: Context, tasks: int) -> int:
    items: int = smallest(tasks, context.profile.compute_units * _ITEMS_PER_UNIT)
    return items


def _power_of_two(n: int) -> int:
    return 1 << (n.bit_length() - 1)


def _steps(x: Array) -> tuple[int, int, int]:
    """Return the strides of a batch, in elements; the batch stride is 0 if there is one matrix."""
    item = x.dtype.itemsize
    batch, row, column = (step // item for step in x.strides)
    return (0 if x.shape[0] == 1 else batch), row, column


def _lane_kernel(word: str, name: str, side: int, dtype: str, context: Context) -> Kernel:
    serial = context.profile.runs_items_serially
    width = vector_width(context, dtype) if serial else 1
    words = {
        word: f"{name}_{side}",
        "SIDE": side,
        "WIDTH": width,
        "V": f"{_c_name(dtype)}{width}" if serial else ctype(dtype),
        "KERNEL_WORD": "OUTLINED_KERNEL" if serial else "KERNEL",
        "POSITIVE": (
            "select((V)(W)NAN, pivot, (pivot > (V)0) & (pivot < (V)(W)INFINITY))"
            if serial
            else "(pivot > 0 && pivot < (W)INFINITY ? pivot : (W)NAN)"
        ),
    }
    return product_kernel(filled(functions("linalg/tiny.cl")[word], POSITIVE=words.pop("POSITIVE")), dtype, **words)


def _block_kernel(name: str, dtype: str, context: Context) -> Kernel:
    leaf = leaf_rows(context)
    if not context.profile.runs_items_serially:
        return product_kernel(functions("linalg/gpu.cl")[name], dtype, LEAF=leaf)
    parts = functions("linalg/cpu.cl")
    rows = body(parts["rows_of_leaf"])
    code = filled(parts[name], BLOCK=filled(rows, HEIGHT=_ROWS), ROW=filled(rows, HEIGHT=1))
    width = vector_width(context, dtype)
    columns = width * _VECTORS
    sizes = {"LEAF": leaf, "ROWS": _ROWS, "COLS": columns, "VECTORS": _VECTORS, "WIDTH": width, "STEP": leaf + columns}
    words = sizes | {"V": f"{_c_name(dtype)}{width}", "VLOAD": f"vload{width}", "VSTORE": f"vstore{width}"}
    return product_kernel(code, dtype, **words)


def _c_name(dtype: str) -> str:
    return {"float32": "float", "float64": "double"}[np.dtype(dtype).name]
