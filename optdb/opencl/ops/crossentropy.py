"""The cross entropy of rows of numbers and classes given as numbers, and its gradient.

The rows are distributions, or a softmax makes such of them in the same pass.
The classes come from the host, where they are checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optdb.codegen.fp16 import work_dtype
from optdb.codegen.layout import launch_each, launch_striding, steps_of
from optdb.codegen.source import functions, type_words, typed
from optdb.host import ops as host
from optdb.host import scalars
from optdb.host.graph import Apply
from optdb.opencl.kernels import Context, Kernel, Kernels, OpenCLKernelBase, Outputs, ctype, output_array, output_zeros
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.parts import host_indexes
from optdb.runtime.arrays import Array, from_host
from optdb.runtime.tables import computed

_KERNELS = functions("rows.cl")


class _OfSoftmax(Counterpart, OpenCLKernelBase):
    """What both ops of a softmax share: two arrays on the device, and the classes, one for each row."""

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


class OpenCLCrossentropySoftmaxArgmax1HotWithBias(_OfSoftmax, host.CrossentropySoftmaxArgmax1HotWithBias):
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


class OpenCLCrossentropySoftmax1HotWithBiasDx(_OfSoftmax, host.CrossentropySoftmax1HotWithBiasDx):
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
