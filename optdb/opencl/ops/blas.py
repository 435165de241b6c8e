"""Products of matrices and vectors, under the names that they have in BLAS, and of the blocks of a matrix.

Indexes name blocks; the host checks them. Where indexes name a block several times, the same work items add to it, in
the order of the host's loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optdb.codegen.elements import ElementKernels, copying
from optdb.codegen.elementwise import ElementCode, Operand
from optdb.codegen.indexing.index_layout import grouped, host_indexes
from optdb.codegen.layout import launch_striding, size_of, steps_of, view
from optdb.codegen.source import ROUND_EACH_STEP, functions, typed, work_dtype
from optdb.host.api import ops as host
from optdb.host.api.graph import Apply
from optdb.opencl.kernels import Context, Kernel, Kernels, OpenCLKernelBase, Outputs, output_array
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.products import batched_matmul, matmul, matmul_kernels, matvec, matvec_kernels
from optdb.opencl.ops.shell import once_per_node
from optdb.opencl.ops.views import overwritable
from optdb.runtime.arrays import Array, from_host
from optdb.runtime.sizes import as_float

#: Columns of a block that a processor computes at once.
_COLUMNS = 16
#: Work items of products of blocks, for each compute unit of a processor.
_ITEMS_PER_UNIT = 16

_KERNELS = functions("blocks.cl")


class _Product(Counterpart, OpenCLKernelBase):
    """The base of products of matrices."""

    #: The functions that return the kernels and that launch them.
    kernels = staticmethod(matmul_kernels)
    multiply = staticmethod(matmul)

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        return self.kernels(node.outputs[0].type.dtype, self.get_context(node))


class OpenCLDot22(_Product, host.Dot22):
    """The product of two matrices."""

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        a, b, *alpha = inputs
        z = output_array(outputs[0], context, (a.shape[0], b.shape[1]), a.dtype)
        matmul(kernels, context, a, b, z, *map(as_float, alpha))


class OpenCLDot22Scalar(_Product, host.Dot22Scalar):
    """The product of two matrices and a number."""

    device_inputs = slice(0, 2)
    run = OpenCLDot22.run


class OpenCLGemm(_Product, host.Gemm):
    """A matrix, and the product of two others, added up with factors; `inplace` writes over the first matrix."""

    device_inputs = (0, 2, 3)

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        y, alpha, a, b, beta = inputs
        z = y if self.inplace else output_array(outputs[0], context, y.shape, y.dtype)
        self.multiply(kernels, context, a, b, z, as_float(alpha), y, as_float(beta))
        outputs[0][0] = z


class OpenCLGemv(_Product, host.Gemv):
    """A vector, and the product of a matrix and a vector, added up with factors; `inplace` writes over the first."""

    device_inputs = OpenCLGemm.device_inputs
    kernels = staticmethod(matvec_kernels)
    multiply = staticmethod(matvec)
    run = OpenCLGemm.run


class OpenCLGer(Counterpart, OpenCLKernelBase, host.Ger):
    """A matrix, and the outer product of two vectors, added up with a factor; over the matrix if `destructive`."""

    device_inputs = (0, 2, 3)

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        return self._elements(node).kernels()

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        a, alpha, x, y = inputs
        if a.shape != (x.shape[0], y.shape[0]):
            raise ValueError(f"{self} cannot add the product of {x.shape} and {y.shape} to a matrix of {a.shape}")
        z = a if self.destructive else output_array(outputs[0], context, a.shape, a.dtype)
        arrays = [a, _with_axis(x, 1), _with_axis(y, 0), z]
        self._elements(node).launch(kernels, context, a.shape, arrays, [as_float(alpha)])
        outputs[0][0] = z

    @once_per_node
    def _elements(self, node: Apply) -> ElementKernels:
        dtype = node.outputs[0].type.dtype
        arrays = tuple([Operand.of(name, dtype) for name in ("a", "x", "y")]), (Operand.of("z", dtype),)
        numbers = (("alpha", work_dtype(dtype)),)
        return ElementKernels(ElementCode(*arrays, "z = a + alpha * (x * y);", ndim=2, numbers=numbers))


class OpenCLDot(_Product):
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

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        dtype, context = node.outputs[0].type.dtype, self.get_context(node)
        if all(x.type.ndim == 2 for x in node.inputs):
            return matmul_kernels(dtype, context)
        return matvec_kernels(dtype, context)

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        a, b = inputs
        shape = (*a.shape[:-1], *b.shape[1:])
        z = output_array(outputs[0], context, shape, a.dtype)
        if a.ndim == b.ndim == 2:
            matmul(kernels, context, a, b, z)
        elif b.ndim == 2:
            matvec(kernels, context, view(b, b.shape[::-1], b.strides[::-1]), a, z)
        elif a.ndim == 2:
            matvec(kernels, context, a, b, z)
        else:
            matvec(kernels, context, _with_axis(a, 0), b, _with_axis(z, 0))


class OpenCLBatchedDot(_Product, host.BatchedDot):
    """The products of the matrices, or vectors, that two arrays hold along their first axes."""

    common_dtype = "upcast"

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        a, b = inputs
        if a.shape[0] != b.shape[0]:
            raise ValueError(f"{self} has {a.shape[0]} matrices to multiply with {b.shape[0]}")
        z = output_array(outputs[0], context, (a.shape[0], *a.shape[1:-1], *b.shape[2:]), a.dtype)
        result = z
        if a.ndim == 2:
            a, result = _with_axis(a, 1), _with_axis(result, 1)
        if b.ndim == 2:
            b, result = _with_axis(b, 2), _with_axis(result, 2)
        batched_matmul(kernels, context, a, b, result)


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


def _with_axis(x: Array, axis: int) -> Array:
    """Return a view with another axis, of length 1."""
    shape, strides = list(x.shape), list(x.strides)
    shape.insert(axis, 1)
    strides.insert(axis, x.dtype.itemsize)
    return view(x, shape, strides)


def _row_starts(x: Array, batch: int, windows: int) -> np.ndarray:
    """Return where the vectors of an array begin, in elements."""
    outer, inner, _ = steps_of(x)
    return np.add.outer(np.arange(batch) * outer, np.arange(windows) * inner)
