"""Ops that compute one number from each window of an array: pooling, what follows its choices, and its gradients.

The ops bring arrays into C order; window sizes, strides and pads stay on the host. The largest element is the one that
the host's C code takes: the first element that no later one exceeds, so a NaN is the largest only where it comes first.

For gradients, a processor's work item fills rows: it goes over the windows that reach a row, and adds their gradients
to the row. On other devices, each item goes over the windows that reach one element. Both add in the order of the
windows, as the host's C code does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from optdb.codegen.elements import contiguous, copying
from optdb.codegen.layout import check_shapes, launch_chunks, share, size_of
from optdb.codegen.windows import Windows, gradient_kernel, window_kernel
from optdb.host.api import ops as host
from optdb.host.api.graph import Apply
from optdb.opencl.kernels import Context, Kernel, Kernels, OpenCLKernelBase, Outputs, output_array
from optdb.opencl.ops.counterpart import Counterpart
from optdb.runtime.arrays import Array


class _OfWindows(Counterpart, OpenCLKernelBase):
    """The base of the ops of this module: arrays of one dtype, in C order, and numbers of the host."""

    def make_node(self, *inputs: Any) -> Apply:
        """Return the node for arrays of one dtype, and numbers of the host."""
        node = super().make_node(*inputs)
        dtypes = sorted({x.type.dtype for x in node.inputs[self.device_inputs]})
        if len(dtypes) > 1:
            raise TypeError(f"{self} takes arrays of one dtype, not of {' and '.join(dtypes)}")
        return node

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        x = node.inputs[0].type
        return [self._kernel(x.dtype, self.get_context(node)), *copying(x).kernels()]

    def _kernel(self, dtype: str, context: Context) -> Kernel:
        """Return the kernel that goes over the windows."""
        raise NotImplementedError

    def _windows(self, x: Array, numbers: Sequence[np.ndarray], counts: Sequence[int] | None = None) -> Windows:
        return Windows.read(self, x.shape[-self.ndim :], numbers, counts)

    def _compute(
        self, node: Apply, windows: Windows, arrays: Sequence[Array], storage: Any, kernels: Kernels, context: Context
    ) -> None:
        """Compute a number of each window."""
        out = output_array(storage, context, (*arrays[0].shape[: -self.ndim], *windows.counts), arrays[0].dtype)
        ready = [contiguous(array, node.inputs[0].type, kernels, context) for array in arrays]
        launch_chunks(kernels["windows"], context, out.size, *windows.args, *ready, out)


class OpenCLPool(_OfWindows, host.Pool):
    """The largest element, the sum or the mean of each window."""

    device_inputs = slice(0, 1)

    def _kernel(self, dtype: str, context: Context) -> Kernel:
        start, each = "W acc = 0;", "acc += LOAD(x[q]);"
        if self.mode == "max":
            start, each = "W acc = LOAD(x[first]);", "const W v = LOAD(x[q]);\nacc = v > acc ? v : acc;"
        return window_kernel(self.ndim, dtype, ["x", "z"], start, each, f"z[o] = STORE({self._result(dtype)});")

    def _result(self, dtype: str) -> str:
        """Return what becomes of a window's sum or largest element, in OpenCL C."""
        if self.mode in ("max", "sum"):
            return "acc"
        whole = self.mode == "average_inc_pad" and self.ignore_border
        # A window that sees nothing but padding has no element: the host's mean of none is NaN.
        sides = [f"size{d}" if whole else f"max(hi{d} - lo{d}, (ga_ssize)0)" for d in range(self.ndim)]
        # Integers are divided in 64 bits, and truncated.
        wide = "W" if dtype.startswith("float") else "ga_ulong" if dtype == "uint64" else "ga_long"
        return f"({wide})acc / ({wide})({' * '.join(sides)})"

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, *numbers = inputs
        windows = self._windows(x, numbers)
        if self._needs_elements(x):
            windows.check_none_empty(self)
        self._compute(node, windows, [x], outputs[0], kernels, context)

    def _needs_elements(self, x: Array) -> bool:
        """Tell whether there has to be an element in each window: for the largest one, and for a mean of integers."""
        if 0 in x.shape[: -self.ndim]:
            return False
        return self.mode == "max" or (self.mode != "sum" and not x.dtype.name.startswith("float"))


class OpenCLMaxPoolRop(_OfWindows, host.MaxPoolRop):
    """Of each window, what another array has where the largest element is."""

    device_inputs = slice(0, 2)

    def _kernel(self, dtype: str, context: Context) -> Kernel:
        start = "W largest = LOAD(x[first]);\nga_ssize best = first;"
        each = "const W v = LOAD(x[q]);\nif (v > largest) { largest = v; best = q; }"
        return window_kernel(self.ndim, dtype, ["x", "points", "z"], start, each, "z[o] = points[best];")

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, points, *numbers = inputs
        check_shapes(self, x.shape, points.shape)
        windows = self._windows(x, numbers)
        if 0 not in x.shape[: -self.ndim]:
            windows.check_none_empty(self)
        self._compute(node, windows, [x, points], outputs[0], kernels, context)


class OpenCLDownsampleFactorMaxGradGrad(_OfWindows, host.DownsampleFactorMaxGradGrad):
    """Of each window, the sum of what another array has where its elements equal the largest."""

    device_inputs = slice(0, 3)

    def _kernel(self, dtype: str, context: Context) -> Kernel:
        start = "W acc = 0;\nconst W largest = LOAD(top[o]);"
        # Adding zero costs less than a branch that no predictor foresees.
        each = "acc += LOAD(x[q]) == largest ? LOAD(by[q]) : 0;"
        return window_kernel(self.ndim, dtype, ["x", "top", "by", "z"], start, each, "z[o] = STORE(acc);")

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, top, by, *numbers = inputs
        check_shapes(self, x.shape, by.shape)
        check_shapes(self, x.shape[: -self.ndim], top.shape[: -self.ndim])
        windows = self._windows(x, numbers, top.shape[-self.ndim :])
        self._compute(node, windows, [x, top, by], outputs[0], kernels, context)


class _Gradient(_OfWindows):
    """The base of gradients."""

    #: The kernel's names of the arrays that it reads.
    names: ClassVar[Sequence[str]]

    def given(self) -> str:
        """Return what a window, ``o``, gives to an element of it, ``q``, in OpenCL C."""
        raise NotImplementedError

    def _kernel(self, dtype: str, context: Context) -> Kernel:
        return gradient_kernel(self.ndim, dtype, self.names, self.given(), context.profile.runs_items_serially)

    def _add_up(
        self, node: Apply, windows: Windows, arrays: Sequence[Array], gx: Array, kernels: Kernels, context: Context
    ) -> None:
        """Compute what each element gets."""
        if not gx.size:
            return
        ready = [contiguous(array, node.inputs[0].type, kernels, context) for array in arrays]
        if context.profile.runs_items_serially:
            rows = size_of(gx.shape[:-1])
            items, chunk = share(rows, context.profile.compute_units * 8)
            kernels["gradient"].call(items, 1, rows, chunk, *windows.args, *ready, gx)
        else:
            launch_chunks(kernels["gradient"], context, gx.size, *windows.args, *ready, gx)


class OpenCLMaxPoolGrad(_Gradient, host.MaxPoolGrad):
    """What each element of an array gets from the windows whose largest it equals."""

    device_inputs = slice(0, 3)
    parameters = ("ignore_border", "ndim")
    names = ("x", "top", "gz")

    def given(self) -> str:
        # Adding zero costs less than a branch that no predictor foresees.
        return "LOAD(x[q]) == LOAD(top[o]) ? LOAD(gz[o]) : 0"

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, top, gz, *numbers = inputs
        check_shapes(self, x.shape[: -self.ndim], top.shape[: -self.ndim])
        check_shapes(self, top.shape, gz.shape)
        windows = self._windows(x, numbers, top.shape[-self.ndim :])
        gx = output_array(outputs[0], context, x.shape, x.dtype)
        self._add_up(node, windows, [x, top, gz], gx, kernels, context)


class OpenCLAveragePoolGrad(_Gradient, host.AveragePoolGrad):
    """What each element of an array gets from the windows that it is summed or averaged in."""

    device_inputs = slice(0, 2)
    names = ("gz",)

    def given(self) -> str:
        if self.mode == "sum":
            return "LOAD(gz[o])"
        # Windows are cut at the end of the padding; the padding within them counts.
        sides = [
            f"(whole{d} ? size{d} : min(at{d} * step{d} + size{d}, len{d} + 2 * pad{d}) - at{d} * step{d})"
            for d in range(self.ndim)
        ]
        # The host rounds what a window gives before it is added.
        return f"LOAD(STORE(LOAD(gz[o]) / (W)({' * '.join(sides)})))"

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, gz, *numbers = inputs
        check_shapes(self, x.shape[: -self.ndim], gz.shape[: -self.ndim])
        windows = self._windows(x, numbers, gz.shape[-self.ndim :])
        if self.mode == "average_exc_pad" and any(windows.pads):
            raise ValueError(f"{self}: padding must be zero for average_exc_pad, not {windows.pads}")
        gx = output_array(outputs[0], context, x.shape, x.dtype)
        self._add_up(node, windows, [gz], gx, kernels, context)
