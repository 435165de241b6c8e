"""Products of a loop's states with a matrix; the loop may already have computed these products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from optdb.codegen.elements import copied, copying
from optdb.codegen.gemm.problem import Precision
from optdb.codegen.gemm.products import matmul, matmul_kernels
from optdb.codegen.kernels import Kernel
from optdb.codegen.layout import is_contiguous, view
from optdb.codegen.operation import ArraySpec, Kernels, Operation, Outputs
from optdb.codegen.views import strides_for
from optdb.runtime.arrays import Array, empty


@dataclass(eq=False)
class SavedProducts(Operation):
    """The products of a loop's states with a matrix, plus an addend, for some steps of the loop.

    The inputs are the products that the loop saved for all steps; the states of all steps, beginning with the initial
    state; the states of the requested steps; the matrix; and, if there is an addend, the sequence of addends and its
    elements for the requested steps. If addresses show that the requested states and addends are views of the same rows
    of the full arrays, the result is a view of the saved products. Otherwise, the result is computed.
    """

    #: Spec of the requested states. All arrays have this dtype; all except the matrix have three axes.
    states: ArraySpec
    #: Precision of the products.
    precision: Precision = "highest"

    def __post_init__(self) -> None:
        self._copying = copying(self.states, context=self.context)

    def kernels(self) -> list[Kernel]:
        return [*self._copying.kernels(), *matmul_kernels(self.states.dtype, self.context)]

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        saved, states, wanted, matrix, *added = inputs
        steps = _rows_of(wanted, states) if states.shape[0] > saved.shape[0] else None
        if steps is not None and (not added or _rows_of(added[1], added[0]) == steps):
            start, step, count = steps
            if start < saved.shape[0] and start + step * (count - 1) < saved.shape[0]:
                row = saved.strides[0]
                strides = row * step, *saved.strides[1:]
                outputs[0][0] = view(saved, (count, *saved.shape[1:]), strides, row * start)
                return
        outputs[0][0] = self._computed(wanted, matrix, added[1:], kernels)

    def _computed(self, states: Array, matrix: Array, added: Sequence[Array], kernels: Kernels) -> Array:
        shape = (*states.shape[:2], matrix.shape[1])
        result = empty(self.context, shape, self.states.dtype)
        left, target = self._flat(states, kernels), self._flat(result, kernels)
        plus = self._flat(added[0], kernels) if added else None
        beta = 1.0 if added else 0.0
        matmul(kernels, self.context, left, matrix, target, 1.0, plus, beta, precision=self.precision)
        return result

    def _flat(self, array: Array, kernels: Kernels) -> Array:
        """Return an array with its two leading axes merged: a view where strides allow it, else a copy."""
        shape = array.shape[0] * array.shape[1], array.shape[2]
        strides = strides_for(array, shape)
        if strides is None:
            array = copied(array, self._copying, kernels, self.context)
            strides = strides_for(array, shape)
            assert strides is not None  # a copy is contiguous
        return view(array, shape, strides)


def _rows_of(part: Array, array: Array) -> tuple[Any, Any, Any] | None:
    """Return the rows of `array` that `part` views, as (first, step, count); None if `part` is not a view of rows."""
    if not (array.size and part.size and part.base_data == array.base_data and is_contiguous(array, leading=1)):
        return None
    row, distance = array.strides[0], part.offset - array.offset
    if part.shape[1:] != array.shape[1:] or part.strides[1:] != array.strides[1:] or row == 0:
        return None
    if distance % row != 0 or part.strides[0] % row != 0:
        return None
    first, step, count = distance // row, part.strides[0] // row, part.shape[0]
    last = first + step * (count - 1)
    is_within = 0 <= first < array.shape[0] and 0 <= last < array.shape[0]
    return (first, step, count) if is_within else None
