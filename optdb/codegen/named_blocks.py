"""Products with the blocks of a matrix that indexes select; the host checks the indexes.

If a block is selected several times, a single set of work items makes all additions to it, in index order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optdb.codegen.elements import copied, copying
from optdb.codegen.indexing.index_layout import grouped, host_indexes
from optdb.codegen.kernels import Kernel
from optdb.codegen.layout import launch_striding, size_of, steps_of
from optdb.codegen.operation import ArraySpec, Kernels, Operation, Outputs
from optdb.codegen.source import ROUND_EACH_STEP, functions, typed
from optdb.numpy_types import HostArray
from optdb.runtime.arrays import Array, from_host

_KERNELS = functions("named_blocks.cl")

#: Number of block columns that a CPU work item computes at once.
_COLUMNS = 16


@dataclass(eq=False)
class AddBlockProducts(Operation):
    """Products of vectors with blocks of a matrix, added to other vectors.

    The inputs are the vectors to add to, of shape (batch, windows, columns); the matrix, of shape (row blocks, column
    blocks, depth, columns); the vectors to multiply, of shape (batch, inputs, depth); and two host arrays: the row
    blocks of the inputs and the column blocks of the windows, for each item of the batch.
    """

    #: Spec of the array to which products are added. All arrays have the same floating-point dtype.
    x: ArraySpec
    #: Whether to modify `x` itself instead of a copy.
    inplace: bool = False

    def __post_init__(self) -> None:
        self._copying = copying(self.x)

    @property
    def _width(self) -> int:
        return _COLUMNS if self.context.profile.runs_items_serially else 1

    def kernels(self) -> list[Kernel]:
        code = typed(_KERNELS["block_products"], self.x.dtype, WIDTH=self._width)
        return [Kernel(code), *self._copying.kernels()]

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        o, w, h, ins, outs = inputs
        batch, windows, columns = o.shape
        if h.shape[0] < batch or h.shape[2] != w.shape[2] or w.shape[3] != columns:
            raise self._mismatch(o, w, h)
        steps = steps_of(w)
        ins = self._blocks(ins, batch, h.shape[1], w.shape[0], axis=0) * steps[0]
        outs = self._blocks(outs, batch, windows, w.shape[1], axis=1) * steps[1]
        out = outputs[0][0] = self._changed(o, kernels)
        if not (out.size and ins.size and h.shape[2]):
            return
        pieces = -(-columns // self._width)
        indexes = [from_host(self.context, table, constant=True) for table in (ins, outs)]
        items = batch * windows * pieces
        args = [pieces, columns, h.shape[1], h.shape[2], windows, out, *steps_of(out), w, *steps[2:], h, *steps_of(h)]
        launch_striding(kernels["block_products"], self.context, items, *args, *indexes)

    def _changed(self, x: Array, kernels: Kernels) -> Array:
        return x if self.inplace else copied(x, self._copying, kernels, self.context)

    def _blocks(self, index: HostArray, batch: int, windows: int, length: int, axis: int) -> HostArray:
        if index.shape[0] < batch or index.shape[1] < windows:
            raise IndexError(f"{self} has indexes of shape {index.shape} for a batch of {batch} times {windows} blocks")
        # During an export, this line raises an error if the indexes are known only at call time.
        return np.asarray(host_indexes(np.asarray(index)[:batch, :windows], length, self, axis))

    def _mismatch(self, *arrays: Array) -> ValueError:
        return ValueError(f"{self}: shapes do not match: {', '.join(str(tuple(x.shape)) for x in arrays)}")


class AddOuterProducts(AddBlockProducts):
    """Outer products of vectors, added to blocks of a matrix.

    The inputs are the matrix, of shape (row blocks, column blocks, depth, columns); the vectors, of shapes (batch,
    inputs, depth) and (batch, windows, columns); two host arrays of row and column blocks; and an unused input.
    """

    def kernels(self) -> list[Kernel]:
        code = ROUND_EACH_STEP + typed(_KERNELS["outer_products"], self.x.dtype)
        return [Kernel(code), *self._copying.kernels()]

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        o, x, y, x_index, y_index, *_ = inputs
        batch = x.shape[0]
        windows = x_index.shape[1], y_index.shape[1]
        fits = y.shape[0] >= batch and x.shape[1] >= windows[0] and y.shape[1] >= windows[1]
        if not fits or (x.shape[2], y.shape[2]) != tuple(o.shape[2:]):
            raise self._mismatch(o, x, y)
        above = self._blocks(x_index, batch, windows[0], o.shape[0], axis=0)[:, :, None]
        beside = self._blocks(y_index, batch, windows[1], o.shape[1], axis=1)[:, None, :]
        out = outputs[0][0] = self._changed(o, kernels)
        if not (out.size and above.size and beside.size):
            return
        names = (above * o.shape[1] + beside).ravel()
        order, first = grouped(names)
        steps = steps_of(out)
        blocks = (above * steps[0] + beside * steps[1]).ravel()[order[first]]
        rows = [_row_starts(x, batch, windows[0])[:, :, None], _row_starts(y, batch, windows[1])[:, None, :]]
        rows = [np.broadcast_to(starts, (batch, *windows)).ravel()[order] for starts in rows]
        tables = [blocks, np.append(first, len(order)), *rows]
        tables = [from_host(self.context, table, constant=True) for table in tables]
        lengths = out.shape[2:]
        args = [*lengths, out, *steps[2:], x, steps_of(x)[2], y, steps_of(y)[2], *tables]
        items = len(first) * size_of(lengths)
        launch_striding(kernels["outer_products"], self.context, items, *args)


def _row_starts(x: Array, batch: int, windows: int) -> HostArray:
    outer, inner, _ = steps_of(x)
    return np.add.outer(np.arange(batch) * outer, np.arange(windows) * inner)
