"""Ops that compute one number from each window of an array: pooling, and what follows its choices.

Arrays are brought into C order, window sizes, strides and pads stay on the host. A largest
element is found as the host's C code does it: the first element that no later one exceeds,
so a NaN is only found where it comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optdb.codegen.fp16 import load_w, work_dtype, write_w
from optdb.codegen.layout import check_shapes, launch_chunks
from optdb.codegen.windows import Windows, window_kernel
from optdb.host import layers as host
from optdb.host.graph import Apply
from optdb.opencl.kernels import Context, Kernel, Kernels, OpenCLKernelBase, Outputs, ctype, output_array
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.views import contiguous, copying
from optdb.runtime.arrays import Array


class _OfWindows(Counterpart, OpenCLKernelBase):
    """What the ops of this module share."""

    def _kernel(self, node: Apply, names: Sequence[str], start: str, each: str, finish: str) -> Kernel:
        """Return the kernel that goes over the windows; the last of the named arrays is the output."""
        dtypes = [var.type.dtype for var in (*node.inputs[self.device_inputs], node.outputs[0])]
        arrays = [(name, ctype(dtype)) for name, dtype in zip(names, dtypes, strict=True)]
        return window_kernel(self.ndim, arrays, start, each, finish)

    def _windows(self, x: Array, numbers: Sequence[np.ndarray], counts: Sequence[int] | None = None) -> Windows:
        return Windows.read(self, x.shape[-self.ndim :], numbers, counts)

    def _compute(
        self, windows: Windows, arrays: Sequence[Array], storage: list[Any], kernels: Kernels, context: Context
    ) -> None:
        shape = (*arrays[0].shape[: -self.ndim], *windows.counts)
        out = output_array(storage, context, shape, arrays[-1].dtype)
        if out.size:
            launch_chunks(kernels["windows"], context, out.size, *windows.args, *arrays, out)


class OpenCLPool(_OfWindows, host.Pool):
    """The largest element, the sum or the mean of each window."""

    device_inputs = slice(0, 1)

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        x = node.inputs[0].type
        computed = ctype(work_dtype(x.dtype))
        start, each = f"{computed} acc = 0;", f"acc += {load_w(x.dtype)}(x[q]);"
        if self.mode == "max":
            start = f"{computed} acc = {load_w(x.dtype)}(x[first]);"
            each = f"const {computed} v = {load_w(x.dtype)}(x[q]);\nacc = v > acc ? v : acc;"
        finish = f"z[o] = {write_w(x.dtype)}({self._result(x.dtype)});"
        return [self._kernel(node, ["x", "z"], start, each, finish), *copying(x).kernels()]

    def _result(self, dtype: str) -> str:
        """Return what becomes of a window's sum or largest element, in OpenCL C."""
        if self.mode in ("max", "sum"):
            return "acc"
        whole = self.mode == "average_inc_pad" and self.ignore_border
        sides = [f"size{d}" if whole else f"(hi{d} - lo{d})" for d in range(self.ndim)]
        # Whole numbers are divided in 64 bits, and the rest goes.
        wide = {"u": "ga_long", "i": "ga_long", "f": ctype(work_dtype(dtype))}[np.dtype(dtype).kind]
        wide = "ga_ulong" if dtype == "uint64" else wide
        return f"({wide})acc / ({wide})({' * '.join(sides)})"

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, *numbers = inputs
        windows = self._windows(x, numbers)
        if self.mode in ("max", "average_exc_pad"):
            windows.check_none_empty(self)
        x = contiguous(x, node.inputs[0].type, kernels, context)
        self._compute(windows, [x], outputs[0], kernels, context)


class OpenCLMaxPoolRop(_OfWindows, host.MaxPoolRop):
    """Of each window, what another array has where the largest element is."""

    device_inputs = slice(0, 2)

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        x, points = (var.type for var in node.inputs[:2])
        computed = ctype(work_dtype(x.dtype))
        start = f"{computed} largest = {load_w(x.dtype)}(x[first]);\nga_ssize best = first;"
        each = f"const {computed} v = {load_w(x.dtype)}(x[q]);\nif (v > largest) {{ largest = v; best = q; }}"
        kernel = self._kernel(node, ["x", "points", "z"], start, each, "z[o] = points[best];")
        return [kernel, *copying(x).kernels(), *copying(points, "copy_points").kernels()]

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, points, *numbers = inputs
        check_shapes(self, x.shape, points.shape)
        windows = self._windows(x, numbers)
        windows.check_none_empty(self)
        x = contiguous(x, node.inputs[0].type, kernels, context)
        points = contiguous(points, node.inputs[1].type, kernels, context, "copy_points")
        self._compute(windows, [x, points], outputs[0], kernels, context)


class OpenCLDownsampleFactorMaxGradGrad(_OfWindows, host.DownsampleFactorMaxGradGrad):
    """Of each window, the sum of what another array has where its elements equal the largest."""

    device_inputs = slice(0, 3)

    def make_node(self, *inputs: Any) -> Apply:
        """Return the node for arrays of one dtype, and numbers of the host."""
        return checked_dtypes(super().make_node(*inputs), self.device_inputs)

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        x = node.inputs[0].type
        computed, load = ctype(work_dtype(x.dtype)), load_w(x.dtype)
        start = f"{computed} acc = 0;\nconst {computed} largest = {load}(top[o]);"
        # Adding nothing is quicker than a branch that nobody can foresee.
        each = f"acc += {load}(x[q]) == largest ? {load}(by[q]) : 0;"
        finish = f"z[o] = {write_w(x.dtype)}(acc);"
        return [self._kernel(node, ["x", "top", "by", "z"], start, each, finish), *copying(x).kernels()]

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, top, by, *numbers = inputs
        check_shapes(self, x.shape, by.shape)
        check_shapes(self, x.shape[: -self.ndim], top.shape[: -self.ndim])
        windows = self._windows(x, numbers, top.shape[-self.ndim :])
        arrays = [contiguous(array, node.inputs[0].type, kernels, context) for array in (x, top, by)]
        self._compute(windows, arrays, outputs[0], kernels, context)


def checked_dtypes(node: Apply, arrays: slice) -> Apply:
    """Return a node, of which some inputs have to have one dtype.

    Raises
    ------
    TypeError
        If they have not.
    """
    dtypes = sorted({x.type.dtype for x in node.inputs[arrays]})
    if len(dtypes) > 1:
        raise TypeError(f"{node.op} takes arrays of one dtype, not of {' and '.join(dtypes)}")
    return node
