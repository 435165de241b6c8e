"""Softmax, which makes of each row of a matrix weights that add up to 1, cross entropies, and their gradients.

A work item goes over its rows three times: for the largest element, for the sum, and to write. It subtracts the largest
element first, so that no power of e overflows. Classes come from the host, which checks them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from optdb.codegen.indexing.index_layout import host_indexes
from optdb.codegen.layout import launch_each, launch_striding, steps_of
from optdb.codegen.source import filled, functions, type_words, typed, work_dtype
from optdb.host.api import ops as host
from optdb.host.api import scalars
from optdb.host.api.graph import Apply, Variable
from optdb.opencl.kernels import Context, Kernel, Kernels, OpenCLKernelBase, Outputs, ctype, output_array, output_zeros
from optdb.opencl.ops.counterpart import Counterpart, on_one_device
from optdb.opencl.ops.views import OpenCLDimShuffle
from optdb.runtime.arrays import Array, from_host
from optdb.runtime.tables import computed

_KERNELS = functions("rows.cl")

#: The parameters of a softmax, and the expression of an output element.
_INPUTS, _WEIGHT = "ARRAY T *x, ga_ssize x0, ga_ssize x1", "exp(AT(j) - largest) / sum"
#: Element j of row i of a matrix, and of a vector that all rows share.
_OF_MATRIX, _OF_VECTOR = "LOAD(x[(ga_ssize)i * x0 + (ga_ssize)(j) * x1])", "LOAD(b[(ga_ssize)(j) * b0])"


def _softmax(element: str, result: str, inputs: str = _INPUTS) -> str:
    """Return the kernel of a softmax of elements of inputs."""
    return filled(_KERNELS["softmax"], INPUTS=inputs, ELEMENT=element, RESULT=result)


class _OfRows(Counterpart, OpenCLKernelBase):
    """The base of softmax and its relatives: matrices, row by row, in C order at the end."""

    common_dtype = 0
    #: The kernel, in which the words of a dtype are left open.
    code: ClassVar[str]

    def make_node(self, *inputs: Any) -> Apply:
        """Return the node for matrices, which get the dtype of the result; a vector is a row."""
        return super().make_node(*map(_as_rows, on_one_device(inputs)))

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        return [Kernel(typed(self.code, node.outputs[0].type.dtype))]

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        shape = inputs[-1].shape if inputs[-1].ndim == 2 else inputs[0].shape
        if any(tuple(x.shape) != tuple(shape)[-x.ndim :] for x in inputs):
            raise ValueError(f"{self} was given arrays of shapes {' and '.join(str(tuple(x.shape)) for x in inputs)}")
        out = output_array(outputs[0], context, shape, node.outputs[0].type.dtype)
        if not out.size:
            return
        args = [arg for x in inputs for arg in (x, *steps_of(x))]
        (kernel,) = kernels.values()
        launch_striding(kernel, context, *shape, *args, out)


def _as_rows(x: Variable) -> Variable:
    return OpenCLDimShuffle(x.type.broadcastable, ("x", 0))(x) if x.type.ndim == 1 else x


class OpenCLSoftmax(_OfRows, host.Softmax):
    """Powers of e, in each row divided by their sum."""

    code = _softmax(_OF_MATRIX, _WEIGHT)


class OpenCLLogSoftmax(_OfRows, host.LogSoftmax):
    """The logarithm of a softmax, computed directly."""

    code = _softmax(_OF_MATRIX, "AT(j) - largest - log_sum")


class OpenCLSoftmaxWithBias(_OfRows, host.SoftmaxWithBias):
    """The softmax of the sum of a matrix and a vector."""

    make_node = Counterpart.make_node
    code = _softmax(f"{_OF_MATRIX} + {_OF_VECTOR}", _WEIGHT, f"{_INPUTS}, ARRAY T *b, ga_ssize b0")


class OpenCLSoftmaxGrad(_OfRows, host.SoftmaxGrad):
    """The gradient of a softmax, from that of its result and the result."""

    common_dtype = 1
    code = _KERNELS["softmax_gradient"]


class _WithClasses(Counterpart, OpenCLKernelBase):
    """The base of cross entropies of a softmax: two arrays on the device, and one class for each row."""

    device_inputs = slice(0, 2)

    def _classes(self, y: np.ndarray, shape: Sequence[int], context: Context) -> Array:
        """Return the classes on the device, if there is one for each row, and a column for each of them."""
        rows, columns = shape
        if y.shape[0] != rows:
            raise ValueError(f"{self} has {y.shape[0]} classes for {rows} rows")
        try:
            classes = computed("classes", y, columns)
        except ValueError as error:
            raise ValueError(f"{self}: {error}") from None
        return from_host(context, classes, constant=True)


class OpenCLCrossentropySoftmaxArgmax1HotWithBias(_WithClasses, host.CrossentropySoftmaxArgmax1HotWithBias):
    """For each row: how unlikely its class is, the softmax, and the likeliest class."""

    common_dtype = 0

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        index = ctype(node.outputs[2].type.dtype)
        return [Kernel(typed(_KERNELS["crossentropy"], node.inputs[0].type.dtype, INDEX=index))]

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, b, y = inputs
        rows, columns = x.shape
        if b.shape[0] != columns:
            raise ValueError(f"{self} has a bias of {b.shape[0]} numbers for {columns} columns")
        classes = self._classes(y, x.shape, context)
        results = [
            output_array(storage, context, shape, out.type.dtype)
            for storage, shape, out in zip(outputs, [(rows,), x.shape, (rows,)], node.outputs, strict=True)
        ]
        if x.size:
            args = [columns, x, *steps_of(x), b, *steps_of(b), classes, *results]
            launch_striding(kernels["crossentropy"], context, rows, *args)


class OpenCLCrossentropySoftmax1HotWithBiasDx(_WithClasses, host.CrossentropySoftmax1HotWithBiasDx):
    """The gradient of the cross entropy, from the softmax."""

    common_dtype = 1

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        return [Kernel(typed(_KERNELS["crossentropy_gradient"], node.inputs[1].type.dtype))]

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        dy, sm, y = inputs
        rows, columns = sm.shape
        if dy.ndim and dy.shape[0] not in (1, rows):
            raise ValueError(f"{self} has {dy.shape[0]} gradients for {rows} rows")
        classes = self._classes(y, sm.shape, context)
        dx = output_array(outputs[0], context, sm.shape, sm.dtype)
        if sm.size:
            dy_step = steps_of(dy)[0] if dy.ndim and dy.shape[0] > 1 else 0
            args = [columns, dy, dy_step, sm, *steps_of(sm), classes, dx]
            launch_striding(kernels["crossentropy_gradient"], context, rows, *args)


class OpenCLCrossentropyCategorical1Hot(Counterpart, OpenCLKernelBase, host.CrossentropyCategorical1Hot):
    """For each row of a distribution, how unlikely its class is."""

    device_inputs = slice(0, 1)

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        return [Kernel(typed(_KERNELS["lookup"], node.inputs[0].type.dtype))]

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        p, classes = inputs
        named = _indexes(classes, p.shape[0], p.shape, self)
        y = output_array(outputs[0], context, p.shape[:1], p.dtype)
        launch_each(kernels["lookup"], context, y.size, p, *steps_of(p), from_host(context, named, constant=True), y)


class OpenCLCrossentropyCategorical1HotGrad(Counterpart, OpenCLKernelBase, host.CrossentropyCategorical1HotGrad):
    """The gradient of the cross entropy: zeros, but for the class of each row."""

    device_inputs = slice(0, 2)

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        g, dtype = (x.type.dtype for x in node.inputs[:2])
        quotient = ctype(work_dtype(scalars.upcast(g, dtype)))
        code = typed(_KERNELS["lookup_gradient"], dtype, **type_words(g, "G_"), QUOTIENT=quotient)
        return [Kernel(code)]

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        g, p, classes = inputs
        rows = g.shape[0]
        if rows > p.shape[0]:
            raise IndexError(f"{self} has {rows} gradients for {p.shape[0]} rows")
        named = _indexes(classes, rows, p.shape, self)
        dp = output_zeros(outputs[0], context, p.shape, p.dtype)
        args = [p.shape[1], g, *steps_of(g), p, *steps_of(p), from_host(context, named, constant=True), dp]
        launch_each(kernels["lookup_gradient"], context, rows, *args)


def _indexes(classes: np.ndarray, rows: int, shape: Sequence[int], op: Any) -> np.ndarray:
    """Return the class of each row, counted from the front."""
    if classes.shape[0] < rows:
        raise IndexError(f"{op} has {classes.shape[0]} classes for {rows} rows")
    return host_indexes(classes if classes.shape[0] == rows else classes[:rows], shape[1], op, axis=1)
