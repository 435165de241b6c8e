"""Moves computations out of a loop: one product before it replaces many small ones that need no state.

Sums that no step reads are computed after the loop (``sums_of_steps``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from optdb.device.expressions import reshaped, transposed
from optdb.device.iterations import Carried, Iteration, StepRow, operands_of, ordered, varying
from optdb.device.sums_of_steps import StepSums
from optdb.device.tensors import (
    Computed,
    Coordinate,
    Folded,
    Lookup,
    Mapped,
    MatrixProduct,
    ReshapedTensor,
    Tensor,
    ViewTensor,
    is_product,
)

#: Maximum size in bytes of the tensors that are computed for all steps in advance.
_MOST_BYTES = 1 << 28


def iterated(
    steps: int, rows: Sequence[StepRow], carried: Sequence[Carried], repeats_in_kernels: bool
) -> tuple[Iteration, list[Tensor]]:
    """Build a loop with the parameters of `Iteration`; return it with the carried arrays after its last step.

    With `repeats_in_kernels`, the device repeats small steps within one kernel, where each addition is almost free.
    """
    loop = _hoist_products(steps, rows, carried)
    if repeats_in_kernels and loop.is_for_one_item:
        return loop, list(loop.outputs)
    sums = StepSums(steps, list(rows), list(carried), _MOST_BYTES)
    if len(sums.rows) < len(rows):
        loop = _hoist_products(steps, sums.rows, sums.carried)
    return loop, sums.outputs(loop.outputs)


def _hoist_products(steps: int, rows: Sequence[StepRow], carried: Sequence[Carried]) -> Iteration:
    results = [value for array in carried for _, value in array.written]
    states = varying(results, [row for row in rows if isinstance(row.source, Carried)])
    read = {*results, *(x for tensor in states for x in operands_of(tensor))}
    hoisted: dict[Tensor, Tensor] = {}
    sequences: dict[Tensor, Tensor] = {row: row.stacked(steps) for row in rows if isinstance(row.source, Tensor)}
    of_sequences = varying(results, sequences) - states
    all_steps = _AllSteps(steps, sequences, of_sequences)
    for tensor in ordered(results, sequences):
        if tensor in read and tensor in of_sequences and steps * tensor.nbytes <= _MOST_BYTES:
            cone = [x for x in ordered([tensor], sequences) if x in of_sequences]
            if any(is_product(x) for x in cone) and all_steps.take(cone):
                hoisted[tensor] = all_steps.of(tensor)
    return Iteration(steps, rows, carried, hoisted)


class _AllSteps:
    """A step's tensors, stacked for all steps. The first axis has length 1 for tensors that all steps share."""

    def __init__(self, steps: int, rows: Mapping[Tensor, Tensor], varying: Collection[Tensor]) -> None:
        self._steps = steps
        self._varying = varying
        self._known = dict(rows)

    def take(self, tensors: Iterable[Tensor]) -> bool:
        """Stack tensors for all steps; return whether that is possible. Each tensor must follow its operands."""
        for tensor in tensors:
            if tensor not in self._known:
                found = self._of(tensor)
                if found is None:
                    return False
                self._known[tensor] = found
        return True

    def of(self, tensor: Tensor) -> Tensor:
        """Return a step's tensor, stacked for all steps."""
        if tensor not in self._varying and tensor not in self._known:
            self._known[tensor] = transposed(tensor, [None, *range(tensor.ndim)])
        return self._known[tensor]

    def _of(self, tensor: Tensor) -> Tensor | None:
        shape = (self._steps, *tensor.shape)
        match tensor:
            case Mapped():
                return Mapped(tensor.program, [self.of(x) for x in tensor.inputs], shape, tensor.result)
            case Folded():
                axes = [axis + 1 for axis in tensor.axes]
                return Folded(tensor.fold, self.of(tensor.x), axes, tensor.dtype, tensor.acc_dtype)
            case ViewTensor():
                first = Coordinate(0, ((0, 1),) if tensor.x in self._varying else ())
                coordinates = [first, *map(self._coordinate, tensor.coordinates)]
                return ViewTensor(self.of(tensor.x), shape, coordinates)
            case ReshapedTensor():
                return reshaped(self.of(tensor.x), shape)
            case Computed(application=MatrixProduct()):
                a, b = tensor.application.inputs
                if b not in self._varying:
                    rows = reshaped(self.of(a), (self._steps * a.shape[0], a.shape[1]))
                    return reshaped(MatrixProduct(rows, b).outputs[0], shape)
        return None

    def _coordinate(self, coordinate: Coordinate) -> Coordinate:
        terms = tuple((axis + 1, factor) for axis, factor in coordinate.terms)
        lookup = coordinate.lookup
        if lookup is None:
            return Coordinate(coordinate.const, terms)
        axes = tuple(axis + 1 for axis in lookup.axes)
        if lookup.tensor in self._varying:
            return Coordinate(coordinate.const, terms, Lookup(self.of(lookup.tensor), (0, *axes)))
        return Coordinate(coordinate.const, terms, Lookup(lookup.tensor, axes))
