"""Elementwise results that are written to slices of one array, as in gradients of computations on slices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from optdb.codegen.elements import ElementKernels
from optdb.codegen.elementwise_programs import common_shape, program_elements
from optdb.codegen.kernels import Kernel
from optdb.codegen.operation import ArraySpec, Kernels, Operation, Outputs, output_array
from optdb.codegen.scalars.program import ScalarProgram
from optdb.codegen.views import broadcast_view, subtensor
from optdb.runtime.arrays import Array, empty, fill_zeros
from optdb.runtime.sizes import as_int


@dataclass(eq=False)
class PlacedElementwise(Operation):
    """A scalar program applied elementwise; its first results are written to slices of an array of zeros.

    The inputs are the lengths of that array, as host integers, and those of the program. The outputs are that array and
    the program's other results.
    """

    #: Computes the results, of which the first have the array's dtype.
    program: ScalarProgram
    #: Specs of the program's inputs, all of one rank; see `Elementwise`.
    inputs: Sequence[ArraySpec]
    #: Axis of the slices, and the bounds of each slice, ascending and disjoint.
    axis: int
    places: Sequence[tuple[int, int]]

    def __post_init__(self) -> None:
        profile, self._ndim = self.context.profile, self.inputs[0].ndim
        self._elements = program_elements(
            self.program,
            [x.single for x in self.inputs],
            self._ndim,
            device_kind=profile.device_kind,
            wrong_functions=profile.quirks.wrong_vector_functions,
        )
        self._copying = ElementKernels.copying(self.program.out_dtypes[0], self._ndim)

    def __str__(self) -> str:
        return f"PlacedElementwise{{{self.program}}}"

    def kernels(self) -> list[Kernel]:
        return [*self._elements.kernels(), *self._copying.kernels()]

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        lengths, arrays = tuple(map(as_int, inputs[: self._ndim])), inputs[self._ndim :]
        if any(length < 0 for length in lengths):
            raise ValueError(f"{self} cannot make an array with a negative length: {lengths}")
        shape = common_shape(self, self.inputs, arrays)
        dtypes = self.program.out_dtypes
        target = output_array(outputs[0], self.context, lengths, dtypes[0])
        if self._has_gaps(lengths[self.axis]):
            fill_zeros(target)
        slabs = [self._slab(target, start, stop) for start, stop in self.places]
        # A result with another shape is broadcast to its slice.
        results = [slab if slab.shape == shape else empty(self.context, shape, dtypes[0]) for slab in slabs]
        others = zip(outputs[1:], dtypes[len(slabs) :], strict=True)
        stored = [output_array(storage, self.context, shape, dtype) for storage, dtype in others]
        self._elements.launch(kernels, self.context, shape, [*arrays, *results, *stored])
        for slab, result in zip(slabs, results, strict=True):
            if result is not slab:
                value = broadcast_view(result, slab.shape, self)
                self._copying.launch(kernels, self.context, slab.shape, [value, slab])

    def _slab(self, target: Array, start: int, stop: int) -> Array:
        return subtensor(target, [slice(None)] * self.axis + [slice(start, stop)])

    def _has_gaps(self, length: int) -> bool:
        """Return whether the slices leave out elements of an axis."""
        reached = 0
        for start, stop in self.places:
            if start > reached:
                return True
            reached = stop
        return reached < length
