"""Pooling of the windows of an array, and its gradients.

The inputs are arrays of the same dtype, then three host vectors with one number per pooled axis (the last axes): sizes,
strides and padding. The largest element of a window is the first that no later one exceeds. Gradients are added in
window order: a CPU work item fills rows, an item on other devices one element.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from optdb.codegen.elements import contiguous, copying
from optdb.codegen.kernels import Kernel
from optdb.codegen.layout import check_shapes, launch_chunks, share, size_of
from optdb.codegen.operation import ArraySpec, Kernels, Operation, Outputs, output_array
from optdb.codegen.windows import Windows, gradient_kernel, window_kernel
from optdb.runtime.arrays import Array


@dataclass(eq=False)
class WindowOperation(Operation):
    """Base class of the operations of this module."""

    x: ArraySpec
    ndim: int = 2
    #: 'max', 'sum', or a mean that includes or excludes the padding ('average_inc_pad', 'average_exc_pad').
    mode: str = "max"
    #: Whether windows that do not fit are omitted instead of truncated.
    ignore_border: bool = True

    def kernels(self) -> list[Kernel]:
        return [self._kernel(), *copying(self.x).kernels()]

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        *arrays, sizes, steps, pads = inputs
        x = arrays[0]
        windows = Windows.read(self, x.shape[-self.ndim :], (sizes, steps, pads), self._counts(*arrays))
        self._check(x, windows)
        self._launch(windows, arrays, outputs[0], kernels)

    @abstractmethod
    def _kernel(self) -> Kernel:
        """Return the kernel that processes the windows."""

    @abstractmethod
    def _counts(self, *arrays: Array) -> Sequence[int] | None:
        """Return the numbers of windows, if an array has one element for each; raise ValueError for a mismatch."""

    def _check(self, x: Array, windows: Windows) -> None:
        """Raise ValueError if the windows cannot be pooled."""

    def _launch(self, windows: Windows, arrays: Sequence[Array], storage: list[Any], kernels: Kernels) -> None:
        shape = (*arrays[0].shape[: -self.ndim], *windows.counts)
        out = output_array(storage, self.context, shape, self.x.dtype)
        ready = self._in_order(arrays, kernels)
        launch_chunks(kernels["windows"], self.context, out.size, *windows.args, *ready, out)

    def _in_order(self, arrays: Sequence[Array], kernels: Kernels) -> list[Array]:
        return [contiguous(array, self.x, kernels, self.context) for array in arrays]


class PoolWindows(WindowOperation):
    """The largest element, the sum or the mean of each window."""

    def _kernel(self) -> Kernel:
        start, each = "W acc = 0;", "acc += LOAD(x[q]);"
        if self.mode == "max":
            start, each = "W acc = LOAD(x[first]);", "const W v = LOAD(x[q]);\nacc = v > acc ? v : acc;"
        return window_kernel(self.ndim, self.x.dtype, ["x", "z"], start, each, f"z[o] = STORE({self._result()});")

    def _result(self) -> str:
        if self.mode in ("max", "sum"):
            return "acc"
        whole = self.mode == "average_inc_pad" and self.ignore_border
        # A window that covers only padding has no elements, and its mean on the host is NaN.
        sides = [f"size{d}" if whole else f"max(hi{d} - lo{d}, (ga_ssize)0)" for d in range(self.ndim)]
        # Integers are divided in 64 bits, and truncated.
        dtype = self.x.dtype
        wide = "W" if dtype.startswith("float") else "ga_ulong" if dtype == "uint64" else "ga_long"
        return f"({wide})acc / ({wide})({' * '.join(sides)})"

    def _counts(self, *arrays: Array) -> None:
        return None

    def _check(self, x: Array, windows: Windows) -> None:
        # The maximum and the mean of integers are undefined for a window without elements.
        needs_elements = self.mode == "max" or (self.mode != "sum" and not self.x.dtype.startswith("float"))
        if needs_elements and 0 not in x.shape[: -self.ndim]:
            windows.check_windows_nonempty(self)


class PickAtLargest(PoolWindows):
    """For each window of the first array, the second array's value at the position of the largest element."""

    def _kernel(self) -> Kernel:
        start = "W largest = LOAD(x[first]);\nga_ssize best = first;"
        each = "const W v = LOAD(x[q]);\nif (v > largest) { largest = v; best = q; }"
        return window_kernel(self.ndim, self.x.dtype, ["x", "points", "z"], start, each, "z[o] = points[best];")

    def _counts(self, *arrays: Array) -> None:
        x, points = arrays
        check_shapes(self, x.shape, points.shape)


class SumWhereLargest(WindowOperation):
    """For each window, the sum of the third array's elements where the first array equals the second (maxima)."""

    def _kernel(self) -> Kernel:
        start = "W acc = 0;\nconst W largest = LOAD(top[o]);"
        # Adding zero is cheaper than an unpredictable branch.
        each = "acc += LOAD(x[q]) == largest ? LOAD(by[q]) : 0;"
        return window_kernel(self.ndim, self.x.dtype, ["x", "top", "by", "z"], start, each, "z[o] = STORE(acc);")

    def _counts(self, *arrays: Array) -> Sequence[int]:
        x, top, by = arrays
        check_shapes(self, x.shape, by.shape)
        check_shapes(self, x.shape[: -self.ndim], top.shape[: -self.ndim])
        return top.shape[-self.ndim :]


class LargestGradient(WindowOperation):
    """The gradient of max pooling: each element sums the gradients of the windows whose largest element it equals.

    The arrays are the pooled array, the largest elements, and the gradient with respect to these elements.
    """

    #: Kernel parameters for the arrays that the gradient reads, which are the last inputs.
    names: ClassVar[Sequence[str]] = ("x", "top", "gz")

    def _kernel(self) -> Kernel:
        by_rows = self.context.profile.runs_items_serially
        return gradient_kernel(self.ndim, self.x.dtype, self.names, self._given(), by_rows)

    def _given(self) -> str:
        """Return the expression for the gradient that element ``q`` gets from window ``o``."""
        # Adding zero is cheaper than an unpredictable branch.
        return "LOAD(x[q]) == LOAD(top[o]) ? LOAD(gz[o]) : 0"

    def _counts(self, *arrays: Array) -> Sequence[int]:
        x, top, gz = arrays[0], arrays[1], arrays[-1]
        check_shapes(self, x.shape[: -self.ndim], top.shape[: -self.ndim])
        check_shapes(self, top.shape, gz.shape)
        return top.shape[-self.ndim :]

    def _launch(self, windows: Windows, arrays: Sequence[Array], storage: list[Any], kernels: Kernels) -> None:
        gx = output_array(storage, self.context, arrays[0].shape, self.x.dtype)
        if not gx.size:
            return
        args = [*windows.args, *self._in_order(arrays[-len(self.names) :], kernels), gx]
        profile = self.context.profile
        if profile.runs_items_serially:
            rows = size_of(gx.shape[:-1])
            items, chunk = share(rows, profile.compute_units * 8)
            kernels["gradient"].call(items, 1, rows, chunk, *args)
        else:
            launch_chunks(kernels["gradient"], self.context, gx.size, *args)


class MeanGradient(LargestGradient):
    """The gradient of sum or average pooling, from the pooled array and the gradient of the sums or means."""

    names = ("gz",)

    def _given(self) -> str:
        if self.mode == "sum":
            return "LOAD(gz[o])"
        # Windows are truncated at the end of the padding; padding within them counts.
        sides = [
            f"(whole{d} ? size{d} : min(at{d} * step{d} + size{d}, len{d} + 2 * pad{d}) - at{d} * step{d})"
            for d in range(self.ndim)
        ]
        # The host rounds each window's gradient before adding it.
        return f"LOAD(STORE(LOAD(gz[o]) / (W)({' * '.join(sides)})))"

    def _check(self, x: Array, windows: Windows) -> None:
        if self.mode == "average_exc_pad" and any(windows.pads):
            raise ValueError(f"{self}: padding must be zero for average_exc_pad, not {windows.pads}")
