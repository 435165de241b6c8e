"""Products of matrices and vectors, under the names that they have in BLAS, and of the blocks of a matrix.

Indexes name blocks; the host checks them. Where indexes name a block several times, the same work items add to it, in
the order of the host's loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optdb.codegen.elements import copying
from optdb.codegen.gemm.operations import AddedOuterProduct, AddedProduct, BatchedProduct, Product
from optdb.codegen.indexing.index_layout import grouped, host_indexes
from optdb.codegen.layout import launch_striding, size_of, steps_of
from optdb.codegen.operation import Operation
from optdb.codegen.source import ROUND_EACH_STEP, functions, typed
from optdb.host.api import ops as host
from optdb.host.api.graph import Apply
from optdb.opencl.kernels import Context, Kernel, Kernels, OpenCLKernelBase, Outputs
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.shell import Shell
from optdb.opencl.ops.views import overwritable
from optdb.runtime.arrays import Array, from_host

#: Columns of a block that a processor computes at once.
_COLUMNS = 16
#: Work items of products of blocks, for each compute unit of a processor.
_ITEMS_PER_UNIT = 16

_KERNELS = functions("blocks.cl")


class OpenCLDot22(Counterpart, Shell, host.Dot22):
    """The product of two matrices."""

    def operation(self, node: Apply) -> Operation:
        return Product(self.get_context(node), node.outputs[0].type.dtype)


class OpenCLDot22Scalar(Counterpart, Shell, host.Dot22Scalar):
    """The product of two matrices and a number."""

    device_inputs = slice(0, 2)
    operation = OpenCLDot22.operation


class OpenCLGemm(Counterpart, Shell, host.Gemm):
    """A matrix, and the product of two others, added up with factors; `inplace` writes over the first matrix."""

    device_inputs = (0, 2, 3)

    def operation(self, node: Apply) -> Operation:
        out = node.outputs[0].type
        return AddedProduct(self.get_context(node), out.dtype, out.ndim, self.inplace)


class OpenCLGemv(Counterpart, Shell, host.Gemv):
    """A vector, and the product of a matrix and a vector, added up with factors; `inplace` writes over the first."""

    device_inputs = OpenCLGemm.device_inputs
    operation = OpenCLGemm.operation


class OpenCLGer(Counterpart, Shell, host.Ger):
    """A matrix, and the outer product of two vectors, added up with a factor; over the matrix if `destructive`."""

    device_inputs = (0, 2, 3)

    def operation(self, node: Apply) -> Operation:
        return AddedOuterProduct(self.get_context(node), node.outputs[0].type.dtype, self.destructive)


class OpenCLDot(Counterpart, Shell):
    """The product of matrices or vectors, of floats of any dtypes.

    It does not derive from the host's op: the rewriters that turn that into BLAS ops would match it in a loop's graph.
    """

    __props__ = ()
    host = host.Dot
    common_dtype = "upcast"
    grad, R_op, infer_shape = host.grad, host.R_op, host.infer_shape

    def make_node(self, a: Any, b: Any) -> Apply:
        """Return the node for two arrays of floats, which get one dtype."""
        node = super().make_node(a, b)
        dtype = node.outputs[0].type.dtype
        if not dtype.startswith("float"):
            raise TypeError(f"{self} multiplies floats on the device, not {dtype}")
        return node

    def operation(self, node: Apply) -> Operation:
        ranks = [x.type.ndim for x in node.inputs]
        return Product(self.get_context(node), node.outputs[0].type.dtype, *ranks)


class OpenCLBatchedDot(Counterpart, Shell, host.BatchedDot):
    """The products of the matrices, or vectors, that two arrays hold along their first axes."""

    common_dtype = "upcast"

    def operation(self, node: Apply) -> Operation:
        return BatchedProduct(self.get_context(node), node.outputs[0].type.dtype)


class _Blocks(Counterpart, OpenCLKernelBase):
    """The base of ops of blocks: three arrays of one dtype, and indexes; the ops change the first array."""

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
