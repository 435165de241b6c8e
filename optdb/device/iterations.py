"""Loops as lazy tensors: each step of a loop reads and writes rows of arrays, and the next step advances by one row."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from optdb.codegen.loops.kernel import LEAST_POINTS
from optdb.device.expressions import rows_of
from optdb.device.tensors import (
    Computed,
    Constant,
    Coordinate,
    Folded,
    Iota,
    Joined,
    Mapped,
    MatrixVector,
    Replaced,
    ReshapedTensor,
    Scanned,
    ScatterSet,
    ScatterSum,
    Tensor,
    ViewTensor,
)


@dataclass(eq=False)
class Carried:
    """An array whose rows a loop's steps write and may read: step t accesses row ``(start + t) % length``."""

    length: int
    row_shape: tuple[int, ...]
    dtype: str
    #: Initial values of consecutive rows, each with the index of the first row.
    initial: list[tuple[int, Tensor]] = field(default_factory=list)
    #: Values that each step writes after it has read its rows, each with the row that the first step writes.
    written: list[tuple[int, Tensor]] = field(default_factory=list)


class StepRow(Tensor):
    """A row of an array: in step t of a loop, row ``(start + t) % length``, where `length` is the number of rows."""

    def __init__(self, source: Tensor | Carried, start: int = 0) -> None:
        shape = source.row_shape if isinstance(source, Carried) else source.shape[1:]
        super().__init__(shape, source.dtype)
        self.source = source
        self.start = start

    def stacked(self, steps: int) -> Tensor:
        """Stack the rows of the first steps along a new first axis; no step may write the array."""
        assert isinstance(self.source, Tensor)
        return rows_of(self.source, self.start, steps)


class Iteration:
    """A loop of one or more steps, each of which reads rows, and writes rows of the carried arrays.

    `hoisted` maps tensors of a step to tensors that stack their values in all steps, and are computed before the loop.
    The outputs are the carried arrays after the last step.
    """

    def __init__(
        self, steps: int, rows: Sequence[StepRow], carried: Sequence[Carried], hoisted: Mapping[Tensor, Tensor]
    ) -> None:
        self.steps = steps
        #: Maps each hoisted tensor of a step to the row that replaces it.
        self.hoisted = {tensor: StepRow(of_steps) for tensor, of_steps in hoisted.items()}
        self.rows = (*rows, *self.hoisted.values())
        self.carried = tuple(carried)
        self.outputs = [Iterated(self, number) for number in range(len(carried))]
        results = [value for array in carried for _, value in array.written]
        #: The tensors that depend on the step.
        self.varying = varying(results, [*self.rows, *self.hoisted])
        #: The operands that are the same in all steps.
        self.invariants = list(dict.fromkeys(self._invariants(results)))

    def _invariants(self, results: Iterable[Tensor]) -> Iterator[Tensor]:
        """Yield the tensors to store before the loop, except views and constants, which a step's kernels handle."""
        waiting = [x for x in results if x not in self.varying]
        computed = self.varying - self.hoisted.keys()
        waiting += [x for tensor in computed for x in operands_of(tensor) if x not in self.varying]
        for tensor in waiting:
            while isinstance(tensor, ReshapedTensor) or (isinstance(tensor, ViewTensor) and tensor.is_affine):
                tensor = tensor.x
            if not isinstance(tensor, Constant | Iota):
                yield tensor

    @property
    def taken(self) -> list[Tensor]:
        """The tensors from outside the loop that steps read."""
        return [*(row.source for row in self.rows if isinstance(row.source, Tensor)), *self.invariants]

    @property
    def work(self) -> int:
        # An application with several outputs counts once.
        tensors = {x.application if isinstance(x, Computed) else x: x for x in self.varying}
        return sum(map(_work, tensors.values()))

    @property
    def is_for_one_item(self) -> bool:
        """Whether one CPU work item computes a whole step, so that the loop becomes one kernel."""
        computed = [x for x in self.varying - self.hoisted.keys() if not isinstance(x, StepRow)]
        is_small = all(
            x.iteration.is_for_one_item if isinstance(x, Iterated) else x.size <= LEAST_POINTS for x in computed
        )
        return is_small and not any(isinstance(x, Computed) for x in computed)

    @property
    def launches(self) -> int:
        """The minimum number of launches per step: the launches of its operations, and one for all elementwise work."""
        computed = self.varying - self.hoisted.keys()
        applications = {x.application for x in computed if isinstance(x, Computed)}
        nested = {x.iteration for x in computed if isinstance(x, Iterated)}
        return 1 + len(applications) + sum(loop.steps * loop.launches for loop in nested)


def _work(tensor: Tensor) -> int:
    match tensor:
        case Mapped():
            return tensor.size * len(tensor.program.steps)
        case Folded():
            return tensor.x.size
        case MatrixVector():
            return tensor.matrix.size
        case Computed():
            first = next((x for x in tensor.application.inputs if isinstance(x, Tensor)), tensor)
            return first.size * (tensor.shape[-1] if tensor.ndim else 1)
        case Iterated():
            return tensor.iteration.steps * tensor.iteration.work
    return 0


class Iterated(Tensor):
    """An output of a loop."""

    def __init__(self, iteration: Iteration, number: int) -> None:
        array = iteration.carried[number]
        super().__init__((array.length, *array.row_shape), array.dtype)
        self.iteration = iteration
        self.number = number


def operands_of(tensor: Tensor) -> list[Tensor]:
    """Return the operands of a tensor."""
    match tensor:
        case Mapped():
            return list(tensor.inputs)
        case ViewTensor() | ScatterSum():
            return [tensor.x, *_lookups(tensor.coordinates)]
        case Folded() | Scanned() | ReshapedTensor():
            return [tensor.x]
        case Joined():
            return list(tensor.parts)
        case Replaced():
            return [tensor.x, tensor.part]
        case ScatterSet():
            return [tensor.base, tensor.x, *_lookups(tensor.coordinates)]
        case MatrixVector():
            return [tensor.matrix, tensor.vector]
        case Computed():
            return [x for x in tensor.application.inputs if isinstance(x, Tensor)]
        case Iterated():
            initial = [x for array in tensor.iteration.carried for _, x in array.initial]
            return [*tensor.iteration.taken, *initial]
    return []


def _lookups(coordinates: Iterable[Coordinate]) -> list[Tensor]:
    return [coordinate.lookup.tensor for coordinate in coordinates if coordinate.lookup is not None]


def ordered(results: Iterable[Tensor], ends: Collection[Tensor] = ()) -> list[Tensor]:
    """Return results and their dependencies in topological order, except `ends` and tensors that only `ends` need."""
    found: list[Tensor] = []
    seen = set(ends)
    # Not by recursion: graphs are deeper than Python's stack.
    stack = [(tensor, False) for tensor in results]
    while stack:
        tensor, is_done = stack.pop()
        if is_done:
            found.append(tensor)
        elif tensor not in seen:
            seen.add(tensor)
            stack.append((tensor, True))
            stack += [(x, False) for x in operands_of(tensor)]
    return found


def varying(results: Iterable[Tensor], rows: Iterable[Tensor]) -> set[Tensor]:
    """Return the rows, and all results and intermediate tensors that depend on a row."""
    found = set(rows)
    for tensor in ordered(results, found):
        if not found.isdisjoint(operands_of(tensor)):
            found.add(tensor)
    return found
