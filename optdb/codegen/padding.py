"""Zero padding: an array of zeros that contains another array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from optdb.codegen.elements import ElementKernels
from optdb.codegen.kernels import Kernel
from optdb.codegen.operation import ArraySpec, Kernels, Operation, Outputs
from optdb.codegen.views import broadcast_view, subtensor
from optdb.runtime.arrays import Array, empty, fill_zeros
from optdb.runtime.sizes import as_int, part_of


@dataclass(eq=False)
class Pad(Operation):
    """An array of zeros with another array written to a part of it; the other array itself if the part is everything.

    The inputs are the array, the lengths of the result, and the index of the part (slices and integers), to which the
    array is broadcast.
    """

    #: Spec of the array.
    x: ArraySpec

    def __post_init__(self) -> None:
        self._copying = ElementKernels.copying(self.x.dtype, self.x.ndim, "set", context=self.context)

    def kernels(self) -> list[Kernel]:
        return self._copying.kernels()

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        x, lengths, index = inputs
        shape = tuple(map(as_int, lengths))
        if x.shape == shape and all(map(_is_whole, index, shape)):
            outputs[0][0] = x
            return
        # Do not reuse the previous output: it may be an earlier input.
        out = outputs[0][0] = empty(self.context, shape, x.dtype)
        part = subtensor(out, index)
        x = broadcast_view(x, part.shape, self)
        for zeros in _around(out, index):
            fill_zeros(zeros)
        self._copying.launch(kernels, self.context, part.shape, [x, part])


def _is_whole(entry: Any, length: Any) -> bool:
    """Tell whether an index entry selects a whole axis, in order."""
    return isinstance(entry, slice) and part_of(length, entry) == (0, length, 1)


def _around(array: Array, index: Sequence[Any]) -> list[Array]:
    """Return C-contiguous views that cover all elements outside of the indexed part, and possibly some inside."""
    first = index[0] if index else slice(None)
    if not isinstance(first, slice) or not all(map(_is_whole, index[1:], array.shape[1:])):
        return [array]
    start, count, step = part_of(array.shape[0], first)
    if step != 1 or count < 1:
        return [array]
    bounds = slice(0, start), slice(start + count, array.shape[0])
    return [subtensor(array, [bound]) for bound in bounds]
