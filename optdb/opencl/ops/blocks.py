"""Products of the blocks of a matrix that indexes name, and the sums of outer products that are their gradients.

The indexes come from the host, where they are checked. A block that is named several times takes all that is added to
it from the same work items, in the order of the host's loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optdb.codegen.layout import launch_striding, size_of, steps_of
from optdb.codegen.source import ROUND_EACH_STEP, functions, typed
from optdb.host import ops as host
from optdb.host.graph import Apply
from optdb.opencl.kernels import Context, Kernel, Kernels, OpenCLKernelBase, Outputs
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.index_layout import grouped
from optdb.opencl.ops.parts import host_indexes
from optdb.opencl.ops.views import copying, overwritable
from optdb.runtime.arrays import Array, from_host

#: So many columns are computed at once on a processor.
_COLUMNS = 16
#: Work items for each compute unit of a processor.
_ITEMS_PER_UNIT = 16

_KERNELS = functions("blocks.cl")


class _Blocks(Counterpart, OpenCLKernelBase):
    """What both ops have in common: three arrays of one dtype, and indexes; the first array is changed."""

    device_inputs = slice(0, 3)
    common_dtype = 0

    def _blocks(self, index: np.ndarray, batch: int, windows: int, length: int, axis: int) -> np.ndarray:
        """Return the blocks that each of a batch names, counted from the front."""
        if index.shape[0] < batch or index.shape[1] < windows:
            raise IndexError(f"{self} has indexes of shape {index.shape} for a batch of {batch} times {windows} blocks")
        return host_indexes(index[:batch, :windows], length, self, axis)

    def _mismatch(self, *arrays: Array) -> ValueError:
        return ValueError(f"{self}: shapes do not fit: {', '.join(str(tuple(x.shape)) for x in arrays)}")


class OpenCLSparseBlockGemv(_Blocks, host.SparseBlockGemv):
    """Vectors times blocks of a matrix, added to vectors."""

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        o = node.inputs[0].type
        code = typed(_KERNELS["block_products"], o.dtype, WIDTH=self._width(self.get_context(node)))
        return [Kernel(code), *copying(o).kernels()]

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        o, w, h, ins, outs = inputs
        batch, windows, columns = o.shape
        if h.shape[0] < batch or h.shape[2] != w.shape[2] or w.shape[3] != columns:
            raise self._mismatch(o, w, h)
        steps = steps_of(w)
        ins = self._blocks(ins, batch, h.shape[1], w.shape[0], axis=0) * steps[0]
        outs = self._blocks(outs, batch, windows, w.shape[1], axis=1) * steps[1]
        out = outputs[0][0] = overwritable(self, o, node.inputs[0].type, kernels, context)
        if not (out.size and ins.size and h.shape[2]):
            return
        pieces = -(-columns // self._width(context))
        indexes = [from_host(context, places, constant=True) for places in (ins, outs)]
        items = batch * windows * pieces
        args = [pieces, columns, h.shape[1], h.shape[2], windows, out, *steps_of(out), w, *steps[2:], h, *steps_of(h)]
        launch_striding(kernels["block_products"], context, items, *args, *indexes, items_per_unit=_ITEMS_PER_UNIT)

    def _width(self, context: Context) -> int:
        return _COLUMNS if context.profile.runs_items_serially else 1


class OpenCLSparseBlockOuter(_Blocks, host.SparseBlockOuter):
    """Outer products of vectors, added to blocks of a matrix. As on the host, the factor is not used."""

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        o = node.inputs[0].type
        return [Kernel(ROUND_EACH_STEP + typed(_KERNELS["outer_products"], o.dtype)), *copying(o).kernels()]

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        o, x, y, x_index, y_index, _ = inputs
        batch = x.shape[0]
        windows = x_index.shape[1], y_index.shape[1]
        fits = y.shape[0] >= batch and x.shape[1] >= windows[0] and y.shape[1] >= windows[1]
        if not fits or (x.shape[2], y.shape[2]) != tuple(o.shape[2:]):
            raise self._mismatch(o, x, y)
        above = self._blocks(x_index, batch, windows[0], o.shape[0], axis=0)[:, :, None]
        beside = self._blocks(y_index, batch, windows[1], o.shape[1], axis=1)[:, None, :]
        out = outputs[0][0] = overwritable(self, o, node.inputs[0].type, kernels, context)
        if not (out.size and above.size and beside.size):
            return
        names = (above * o.shape[1] + beside).ravel()
        order, first = grouped(names, size_of(o.shape[:2]))
        steps = steps_of(out)
        blocks = (above * steps[0] + beside * steps[1]).ravel()[order[first]]
        rows = [_row_starts(x, batch, windows[0])[:, :, None], _row_starts(y, batch, windows[1])[:, None, :]]
        rows = [np.broadcast_to(starts, (batch, *windows)).ravel()[order] for starts in rows]
        tables = [blocks, np.append(first, len(order)), *rows]
        tables = [from_host(context, table, constant=True) for table in tables]
        lengths = out.shape[2:]
        args = [*lengths, out, *steps[2:], x, steps_of(x)[2], y, steps_of(y)[2], *tables]
        items = len(first) * size_of(lengths)
        launch_striding(kernels["outer_products"], context, items, *args, items_per_unit=_ITEMS_PER_UNIT)


def _row_starts(x: Array, batch: int, windows: int) -> np.ndarray:
    """Return where the vectors of an array begin, in elements."""
    outer, inner, _ = steps_of(x)
    return np.add.outer(np.arange(batch) * outer, np.arange(windows) * inner)
