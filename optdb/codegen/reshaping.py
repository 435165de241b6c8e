"""Reshapes: a view, or a view of a copy if no strides yield the new shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from optdb.codegen.elements import copied, copying
from optdb.codegen.kernels import Kernel
from optdb.codegen.layout import c_strides, size_of, view
from optdb.codegen.operation import ArraySpec, Kernels, Operation, Outputs
from optdb.codegen.views import full_shape, strides_for
from optdb.runtime.arrays import Array
from optdb.runtime.sizes import lengths_of


@dataclass(eq=False)
class Reshape(Operation):
    """An array in a new shape, of which one length may be -1; the inputs are the array and a host vector of lengths."""

    x: ArraySpec
    ndim: int

    def __post_init__(self) -> None:
        self._copying = copying(self.x, context=self.context)

    def kernels(self) -> list[Kernel]:
        return self._copying.kernels()

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        x, wanted = inputs
        self._view(x, full_shape(x.shape, lengths_of(wanted), self.ndim), outputs, kernels)

    def _view(self, x: Array, shape: Sequence[int], outputs: Outputs, kernels: Kernels) -> None:
        strides = strides_for(x, shape)
        if strides is None:
            x = copied(x, self._copying, kernels, self.context)
            strides = c_strides(shape, x.dtype.itemsize)
        outputs[0][0] = view(x, shape, strides)


class Flatten(Reshape):
    """An array whose last axes are merged into one, so that it has `ndim` axes."""

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        (x,) = inputs
        leading = self.ndim - 1
        self._view(x, (*x.shape[:leading], size_of(x.shape[leading:])), outputs, kernels)
