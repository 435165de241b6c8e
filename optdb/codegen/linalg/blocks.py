"""Batches of matrices with any strides; kernels for small matrices and blocks of large ones, and their launches.

On a CPU, an item processes a whole block with vectors; on a GPU, a work group processes it in local memory. All kernels
operate on lower triangles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optdb.codegen.elements import ElementKernels
from optdb.codegen.gemm.blocks import vector_width
from optdb.codegen.gemm.launches import product_kernel
from optdb.codegen.kernels import Kernel, ctype
from optdb.codegen.layout import broadcast_strides, collapse, group_size, launch_striding, size_of, view
from optdb.codegen.operation import Kernels
from optdb.codegen.source import body, filled, functions
from optdb.codegen.views import padded
from optdb.runtime.arrays import Array, c_strides, empty
from optdb.runtime.context import Context


class Stacking:
    """Converts arrays of one dtype, padded to `ndim` axes, to batches of matrices: views if possible, else copies."""

    def __init__(self, dtype: str, ndim: int) -> None:
        self._ndim = ndim
        self._copying = ElementKernels.copying(dtype, ndim)

    def kernels(self) -> list[Kernel]:
        return self._copying.kernels()

    def copy(self, kernels: Kernels, context: Context, x: Array, out: Array) -> None:
        """Copy an array to another array, with broadcasting."""
        out = padded(out, self._ndim)
        self._copying.launch(kernels, context, out.shape, [padded(x, self._ndim), out])

    def batch(self, kernels: Kernels, context: Context, x: Array, batch: Sequence[int]) -> Array:
        """Return an array's matrices, broadcast to a batch, or a single matrix that the whole batch shares."""
        x, batch = padded(x, self._ndim), (1,) * (self._ndim - 2 - len(batch)) + tuple(batch)
        count, matrix = size_of(batch), x.shape[-2:]
        if count == 0:
            return view(x, (0, *matrix), (0, *x.strides[-2:]))
        lengths, (steps,) = collapse(batch, [broadcast_strides(view(x, x.shape[:-2], x.strides[:-2]))])
        if len(lengths) <= 1:
            step = steps[0] if lengths else 0
            return view(x, (count if step else 1, *matrix), (step * x.dtype.itemsize, *x.strides[-2:]))
        whole = empty(context, (*batch, *matrix), x.dtype)
        self._copying.launch(kernels, context, whole.shape, [x, whole])
        return flat(whole)


def flat(x: Array) -> Array:
    """Return the matrices of a C-contiguous array as one batch."""
    shape = (size_of(x.shape[:-2]), *x.shape[-2:])
    return view(x, shape, c_strides(shape, x.dtype.itemsize))


def transposed(x: Array) -> Array:
    """Return a batch with its matrices transposed."""
    (batch, rows, columns), (b, r, c) = x.shape, x.strides
    return view(x, (batch, columns, rows), (b, c, r))


def backwards(x: Array, columns: bool) -> Array:
    """Return a batch with the rows of its matrices reversed; with `columns`, columns are also reversed."""
    (_, m, n), (b, r, c) = x.shape, x.strides
    if not columns:
        return view(x, x.shape, (b, -r, c), (m - 1) * r)
    return view(x, x.shape, (b, -r, -c), (m - 1) * r + (n - 1) * c)


def part(x: Array, rows: tuple[int, int], columns: tuple[int, int] | None = None) -> Array:
    """Return a range of rows of each matrix and, optionally, a range of columns; ranges exclude their ends."""
    first, last = columns or (0, x.shape[2])
    _, row, column = x.strides
    shape = (x.shape[0], rows[1] - rows[0], last - first)
    return view(x, shape, x.strides, rows[0] * row + first * column)


def broadcast_batches(op: object, *shapes: Sequence[int]) -> tuple[int, ...]:
    """Return the shape to which the batches of arrays broadcast; raise ValueError if they are incompatible."""
    ndim = max(map(len, shapes))
    padded = [(1,) * (ndim - len(shape)) + tuple(shape) for shape in shapes]
    result = []
    for lengths in zip(*padded):
        wide = [length for length in lengths if length != 1]
        if any(length != wide[0] for length in wide):
            raise ValueError(f"{op} cannot broadcast batches of shapes {' and '.join(map(str, map(tuple, shapes)))}")
        result.append(wide[0] if wide else 1)
    return tuple(result)


#: Maximum numbers of rows in the kernels that process one matrix in each vector lane.
SIDES = (4, 8)
#: Maximum number of rows in a block that one CPU work item or GPU work group processes.
LEAF = {"cpu": 64, "gpu": 32}
#: Number of rows that a CPU work item computes at a time, and number of vectors in each of these rows.
_ROWS, _VECTORS = 4, 2
#: Maximum work-group size on a GPU; a power of two.
_GROUP = 64


def leaf_rows(context: Context) -> int:
    """Return the number of rows of the largest block."""
    return LEAF[context.profile.device_kind]


def factor_kernels(dtype: str, context: Context) -> list[Kernel]:
    """Return the kernels that `factor_block` and `finish` launch."""
    lanes = [_lane_kernel("CHOLESKY_SIDE", "cholesky", side, dtype, context) for side in SIDES]
    return [*lanes, _block_kernel("cholesky_leaf", dtype, context), whole_kernel("finish_triangle", dtype, context)]


def panel_kernels(dtype: str, context: Context) -> list[Kernel]:
    """Return the kernels of `solve_vectors`, and the kernels of `solve_block` for blocks of `leaf_rows` rows."""
    names = ["solve_leaf", "solve_vector"] if context.profile.runs_items_serially else ["solve_leaf"]
    return [_block_kernel(name, dtype, context) for name in names]


def solve_kernels(dtype: str, context: Context) -> list[Kernel]:
    """Return the kernels that `solve_block` and `solve_vectors` launch."""
    lanes = [_lane_kernel("SOLVE_SIDE", "solve", side, dtype, context) for side in SIDES]
    return lanes + panel_kernels(dtype, context)


def factor_block(
    kernels: Kernels, context: Context, x: Array, z: Array, info: Array, begin: int = 0, whole: bool = True
) -> None:
    """Set the lower triangles of `z` to the factors of `x`, which may be `z`; matrices have at most `leaf_rows` rows.

    If `whole` is true, the upper triangles become 0. Otherwise, the matrices are blocks that begin at row `begin` of
    larger matrices, and their upper triangles do not change. `info` receives the number of each matrix's first pivot
    that is not positive, or 0.
    """
    count, n, _ = z.shape
    arrays = [x, *_steps(x), z, *_steps(z), info]
    if whole and n <= SIDES[-1]:
        launch_striding(kernels[f"cholesky_{_side(n)}"], context, count, n, *arrays)
        return
    args = [n, begin, int(whole), *arrays]
    if context.profile.runs_items_serially:
        launch_striding(kernels["cholesky_leaf"], context, count, *args)
    else:
        group = group_size(context, 2 * _GROUP)
        kernels["cholesky_leaf"].call(count * group, group, count, *args)


def finish(kernels: Kernels, context: Context, z: Array, info: Array, lower: bool) -> None:
    """Set the elements outside of the triangles of C-contiguous factors `z` to 0, and failed factors to NaN."""
    count, n, _ = z.shape
    launch_groups(kernels["finish_triangle"], context, count * n, n, int(lower), z, info)


def solve_block(kernels: Kernels, context: Context, t: Array, z: Array, unit: bool) -> None:
    """Solve lower triangular systems of at most `leaf_rows` rows in place; all systems may share one matrix in `t`."""
    count, n, m = z.shape
    arrays = [t, *_steps(t), z, *_steps(z)]
    if n <= SIDES[-1]:
        launch_striding(kernels[f"solve_{_side(n)}"], context, count * m, m, n, int(unit), *arrays)
        return
    serial = context.profile.runs_items_serially
    group = group_size(context, _GROUP)
    columns = vector_width(context, t.dtype.name) * _VECTORS if serial else group
    tiles = -(-m // columns)
    args = [tiles, m, n, int(unit), *arrays]
    if serial:
        launch_striding(kernels["solve_leaf"], context, count * tiles, *args)
    else:
        kernels["solve_leaf"].call(count * tiles * group, group, count * tiles, *args)


def solve_vectors(kernels: Kernels, context: Context, t: Array, z: Array, lower: bool, unit: bool) -> None:
    """Solve triangular systems in place on a CPU, with one contiguous right-hand side for each matrix."""
    count, n, _ = z.shape
    args = [n, int(not lower), int(unit), t, *_steps(t), z, _steps(z)[0]]
    launch_striding(kernels["solve_vector"], context, count, *args)


def whole_kernel(name: str, dtype: str, context: Context, **words: Any) -> Kernel:
    """Return a kernel from common.cl; `words` are the values of additional placeholders."""
    serial = context.profile.runs_items_serially
    words |= {"LANE": "0", "LANES": "1"} if serial else {"LANE": "LID_0", "LANES": "LDIM_0"}
    return product_kernel(functions("linalg/common.cl")[name], dtype, GROUP=1 if serial else _GROUP, **words)


def launch_groups(kernel: Any, context: Context, tasks: int, *args: Any) -> None:
    """Launch a kernel from common.cl, whose work groups loop over the tasks."""
    if context.profile.runs_items_serially:
        launch_striding(kernel, context, tasks, *args)
        return
    group = group_size(context, _GROUP)
    kernel.call(tasks * group, group, tasks, *args)


def _side(n: int) -> int:
    return next(side for side in SIDES if n <= side)


def _steps(x: Array) -> tuple[int, int, int]:
    """Return the strides of a batch, in elements; the batch stride is 0 if the batch has one matrix."""
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
