"""Products of the blocks of a matrix that indexes name, and the sums of outer products that are their gradients.

The indexes come from the host, where they are checked. A block that is named several times takes all that is added to
it from the same work items, in the order of the host's loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optdb.codegen.fp16 import type_words
from optdb.codegen.layout import launch_striding, size_of, steps_of
from optdb.host import ops as host
from optdb.host.graph import Apply
from optdb.opencl.kernels import Context, Kernel, Kernels, OpenCLKernelBase, Outputs
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.parts import host_indexes
from optdb.opencl.ops.views import copying, overwritable
from optdb.runtime.arrays import Array, from_host

#: So many columns are computed at once on a processor.
_COLUMNS = 16
#: Work items for each compute unit of a processor.
_ITEMS_PER_UNIT = 16

# rows: of the output, each a block; w and h: where the blocks of each product begin.
_GEMV = """
OUTLINED_KERNEL void product(ga_size items, ga_size pieces, ga_size columns, ga_size products, ga_size depth,
    ga_size windows, ARRAY {stored} *o, ga_ssize o0, ga_ssize o1, ga_ssize o2,
    ARRAY {stored} *w, ga_ssize w2, ga_ssize w3, ARRAY {stored} *h, ga_ssize h0, ga_ssize h1, ga_ssize h2,
    ARRAY ga_long *ins, ARRAY ga_long *outs)
{{
for (ga_size item = get_global_id(0); item < items; item += get_global_size(0)) {{
    const ga_size row = item / pieces, first = item % pieces * {width};
    const ga_size many = min((ga_size){width}, columns - first);
    const ga_size batch = row / windows;
    GLOBAL_MEM {stored} *out = o + (ga_ssize)batch * o0 + (ga_ssize)(row % windows) * o1 + (ga_ssize)first * o2;
    {work} sums[{width}];
    for (int c = 0; c < {width}; ++c)
        sums[c] = 0;
    for (ga_size i = 0; i < products; ++i) {{
        GLOBAL_MEM {stored} *block = w + ins[batch * products + i] + outs[row] + (ga_ssize)first * w3;
        for (ga_size k = 0; k < depth; ++k) {{
            const {work} by = {load}(h[(ga_ssize)batch * h0 + (ga_ssize)i * h1 + (ga_ssize)k * h2]);
            for (int c = 0; c < many; ++c)
                sums[c] += by * {load}(block[(ga_ssize)k * w2 + c * w3]);
        }}
    }}
    for (int c = 0; c < many; ++c)
        out[c * o2] = {store}({load}(out[c * o2]) + sums[c]);
}}
}}
"""

# blocks: where each block begins; starts: where its products begin in xs and ys, which are where their rows begin.
_OUTER = """
#pragma OPENCL FP_CONTRACT OFF
OUTLINED_KERNEL void outer(ga_size items, ga_size rows, ga_size columns,
    ARRAY {stored} *o, ga_ssize o2, ga_ssize o3, ARRAY {stored} *x, ga_ssize x2, ARRAY {stored} *y, ga_ssize y2,
    ARRAY ga_long *blocks, ARRAY ga_long *starts, ARRAY ga_long *xs, ARRAY ga_long *ys)
{{
for (ga_size item = get_global_id(0); item < items; item += get_global_size(0)) {{
    const ga_ssize column = item % columns, row = item / columns % rows;
    const ga_size block = item / (rows * columns);
    GLOBAL_MEM {stored} *out = o + blocks[block] + row * o2 + column * o3;
    {work} sum = {load}(*out);
    for (ga_long m = starts[block]; m < starts[block + 1]; ++m)
        sum += {load}(x[xs[m] + row * x2]) * {load}(y[ys[m] + column * y2]);
    *out = {store}(sum);
}}
}}
"""


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
        code = _GEMV.format(width=self._width(self.get_context(node)), **type_words(o.dtype))
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
        launch_striding(kernels["product"], context, items, *args, *indexes, items_per_unit=_ITEMS_PER_UNIT)

    def _width(self, context: Context) -> int:
        return _COLUMNS if context.profile.runs_items_serially else 1


class OpenCLSparseBlockOuter(_Blocks, host.SparseBlockOuter):
    """Outer products of vectors, added to blocks of a matrix. As on the host, the factor is not used."""

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        o = node.inputs[0].type
        return [Kernel(_OUTER.format(**type_words(o.dtype))), *copying(o).kernels()]

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
        order = np.argsort(names, kind="stable")
        ordered = names[order]
        first = np.flatnonzero(np.diff(ordered, prepend=-1))
        steps = steps_of(out)
        blocks = (above * steps[0] + beside * steps[1]).ravel()[order[first]]
        rows = [_row_starts(x, batch, windows[0])[:, :, None], _row_starts(y, batch, windows[1])[:, None, :]]
        rows = [np.broadcast_to(starts, (batch, *windows)).ravel()[order] for starts in rows]
        tables = [blocks, np.append(first, len(order)), *rows]
        tables = [from_host(context, table, constant=True) for table in tables]
        lengths = out.shape[2:]
        args = [*lengths, out, *steps[2:], x, steps_of(x)[2], y, steps_of(y)[2], *tables]
        items = len(first) * size_of(lengths)
        launch_striding(kernels["outer"], context, items, *args, items_per_unit=_ITEMS_PER_UNIT)


def _row_starts(x: Array, batch: int, windows: int) -> np.ndarray:
    """Return where the vectors of an array begin, in elements."""
    outer, inner, _ = steps_of(x)
    return np.add.outer(np.arange(batch) * outer, np.arange(windows) * inner)
