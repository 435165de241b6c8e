"""Ops that put arrays together, take them apart, and change parts of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from optdb.codegen.layout import view
from optdb.host import ops as host
from optdb.host import scalars
from optdb.host.graph import Apply, Variable
from optdb.opencl.contexts import infer_context_name
from optdb.opencl.kernels import CompiledKernel, Kernel, Kernels, OpenCLKernelBase, Outputs, output_array
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.elements import ElementKernels, once_per_node
from optdb.opencl.ops.elemwise import cast
from optdb.opencl.ops.views import copying, subtensor
from optdb.opencl.transfers import as_opencl_variable
from optdb.runtime.arrays import Array, DeviceArray, empty, may_share_memory
from optdb.runtime.sizes import lengths_of
from optdb.runtime.tables import computed

if TYPE_CHECKING:
    from optdb.runtime.context import Context


class OpenCLJoin(Counterpart, OpenCLKernelBase, host.Join):
    """Arrays one behind the other along an axis."""

    host = host.Join
    device_inputs = slice(1, None)

    def make_node(self, axis: Any, *tensors: Any) -> Apply:
        """Return the node for an axis, which stays on the host, and arrays, which get one dtype."""
        context_name = infer_context_name(*[x for x in tensors if isinstance(x, Variable)])
        moved = [as_opencl_variable(x, context_name) for x in tensors]
        dtype = scalars.upcast(*[x.type.dtype for x in moved])
        return super().make_node(axis, *[cast(x, dtype) for x in moved])

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        return copying(node.outputs[0].type).kernels()

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        axis, *arrays = inputs
        axis = _axis(int(axis), arrays[0].ndim, self)
        shape = list(arrays[0].shape)
        for array in arrays[1:]:
            if [n for i, n in enumerate(array.shape) if i != axis] != [n for i, n in enumerate(shape) if i != axis]:
                shapes = ", ".join(str(tuple(x.shape)) for x in arrays)
                raise ValueError(f"{self} joins along axis {axis} what is alike along the others; shapes are {shapes}")
        shape[axis] = sum(array.shape[axis] for array in arrays)
        out = output_array(outputs[0], context, shape, node.outputs[0].type.dtype)
        copies = copying(node.outputs[0].type)
        start = 0
        for array in arrays:
            stop = start + array.shape[axis]
            copies.launch(kernels, context, array.shape, [array, _slab(out, axis, start, stop)])
            start = stop


class OpenCLSplit(Counterpart, OpenCLKernelBase, host.Split):
    """An array cut into pieces along an axis."""

    host = host.Split
    device_inputs = slice(0, 1)

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        return copying(node.inputs[0].type).kernels()

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, axis, splits = inputs
        axis = _axis(int(axis), x.ndim, self)
        splits = lengths_of(splits)
        if len(splits) != self.len_splits or any(n < 0 for n in splits) or sum(splits) != x.shape[axis]:
            raise ValueError(
                f"{self} cannot cut {x.shape[axis]} elements along axis {axis} into {self.len_splits} pieces: {splits}"
            )
        copies = copying(node.inputs[0].type)
        start = 0
        for storage, length in zip(outputs, splits, strict=True):
            piece = _slab(x, axis, start, start + length)
            out = output_array(storage, context, piece.shape, x.dtype)
            copies.launch(kernels, context, piece.shape, [piece, out])
            start += length


class OpenCLIncSubtensor(Counterpart, OpenCLKernelBase, host.IncSubtensor):
    """An array of which a part is set to, or incremented by, another array."""

    host = host.IncSubtensor
    device_inputs = slice(0, 2)

    def make_node(self, x: Any, y: Any, *index: Any) -> Apply:
        """Return the node for two arrays and the indexes, which stay on the host."""
        return super().make_node(*of_one_dtype(x, y), *index)

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        return [*copying(node.inputs[0].type).kernels(), *self._change(node).kernels()]

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, y, *index = inputs
        copies = copying(node.inputs[0].type)
        out = x
        if not self.inplace:
            out = empty(context, x.shape, x.dtype)
            copies.launch(kernels, context, x.shape, [x, out])
        outputs[0][0] = out
        part = subtensor(out, host.get_idx_list([x, *index], self.idx_list))
        y = broadcast_view(y, part.shape, self)
        if self.inplace and may_share_memory(y, part):
            y = _copied(y, kernels, context, self._change(node).ndim)
        arrays = [y, part] if self.set_instead_of_inc else [part, y, part]
        self._change(node).launch(kernels, context, part.shape, arrays)

    @once_per_node
    def _change(self, node: Apply) -> ElementKernels:
        dtype, ndim = node.inputs[0].type.dtype, node.inputs[0].type.ndim
        if self.set_instead_of_inc:
            return ElementKernels.copying(dtype, ndim, name="set")
        return ElementKernels.of_scalar_op(scalars.add, [dtype, dtype], [dtype], [False, False], ndim, name="inc")


def broadcast_view(y: Array, shape: Sequence[int], op: Any) -> DeviceArray:
    """Return a view of `y` with as many dimensions as `shape`, to which it broadcasts.

    Raises
    ------
    ValueError
        If it does not.
    """
    missing = len(shape) - y.ndim
    lengths = tuple(y.shape)
    extra = [length for length in lengths[: max(-missing, 0)] if length != 1]
    kept = lengths[max(-missing, 0) :]
    if extra or any(length not in (1, n) for length, n in zip(reversed(kept), reversed(tuple(shape)))):
        raise ValueError(f"{op} cannot broadcast a value of shape {lengths} to a part of shape {tuple(shape)}")
    if missing < 0:
        return view(y, kept, y.strides[-missing:])
    return view(y, (1,) * missing + lengths, (y.dtype.itemsize,) * missing + tuple(y.strides))


def _copied(y: Array, kernels: Mapping[str, CompiledKernel], context: Context, ndim: int) -> DeviceArray:
    """Return a copy of `y`, made by the copying kernels of an array with at least as many dimensions."""
    result = empty(context, y.shape, y.dtype)
    ElementKernels.copying(y.dtype.name, ndim).launch(kernels, context, y.shape, [y, result])
    return result


def of_one_dtype(x: Any, y: Any) -> tuple[Variable, Variable]:
    """Return two arrays of one device, the second in the dtype of the first."""
    context_name = infer_context_name(*[v for v in (x, y) if isinstance(v, Variable)])
    x, y = (as_opencl_variable(v, context_name) for v in (x, y))
    return x, cast(y, x.type.dtype)


def _axis(axis: int, ndim: int, op: Any) -> int:
    if not -ndim <= axis < ndim:
        raise IndexError(f"{op}: there is no axis {axis} in an array of {ndim} dimensions")
    return axis % ndim


def _slab(x: Array, axis: int, start: int, stop: int) -> DeviceArray:
    return subtensor(x, [slice(None)] * axis + [slice(start, stop)])


def host_indexes(values: np.ndarray, length: int, op: Any, axis: int = 0) -> np.ndarray:
    """Return indexes from the front, as int64.

    Raises
    ------
    IndexError
        If one is out of an axis of that length.
    """
    try:
        return computed("indexes", values, length, axis)
    except IndexError as error:
        raise IndexError(f"{op}: {error}") from None
