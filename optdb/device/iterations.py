"""Loops as lazy tensors: each step of a loop reads and writes rows of arrays, and the next step uses the next rows.

Computations move out of a loop (`iterated`): one product before the loop replaces many small products that do not
depend on a state. Additions in each step, as in gradients of weights, become one sum after the loop if no step reads
the sum. To make this possible, the steps store the terms of the sum. If the terms are products, the steps store the
operands instead, because the sum of these products is one product of the concatenated operands.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from optdb.codegen.loops.grids import LEAST_POINTS
from optdb.device.expressions import applied, broadcast, folded, joined, reshaped, rows_of, transposed
from optdb.device.tensors import (
    Computed,
    Constant,
    Coordinate,
    Folded,
    Iota,
    Joined,
    Lookup,
    Mapped,
    MatrixProduct,
    MatrixVector,
    Replaced,
    ReshapedTensor,
    Scanned,
    ScatterSet,
    ScatterSum,
    Tensor,
    ViewTensor,
    is_product,
)


@dataclass(eq=False)
class Carried:
    """An array whose rows a loop's steps write and may read: step t accesses row ``(start + t) % length``."""

    length: int
    row_shape: tuple[int, ...]
    dtype: str
    #: The initial rows, as tensors of consecutive rows, each with the index of the tensor's first row.
    initial: list[tuple[int, Tensor]] = field(default_factory=list)
    #: The values that each step writes after it has read its rows, each with the index of the row that the first step
    #: writes.
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

    `hoisted` maps a tensor of a step to a tensor that is computed before the loop and contains the values for all
    steps. The outputs are the carried arrays after the last step.
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
        """Yield the tensors to store before the loop; omit views and constants, which a step's kernels handle."""
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
    seen: set[Tensor] = set()
    # Recursion cannot be used: graphs are deeper than Python's stack.
    stack = [(tensor, False) for tensor in results]
    while stack:
        tensor, is_done = stack.pop()
        if is_done:
            found.append(tensor)
        elif tensor not in seen and tensor not in ends:
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


#: Maximum size in bytes of a tensor that is computed for all steps in advance, or stored by all steps.
_MOST_BYTES = 1 << 28


def iterated(
    steps: int, rows: Sequence[StepRow], carried: Sequence[Carried], repeats_in_kernels: bool
) -> tuple[Iteration, list[Tensor]]:
    """Build a loop with the parameters of `Iteration`; return the loop, and the carried arrays after its last step.

    If `repeats_in_kernels` is set, the device repeats small steps within one kernel. Additions are not moved out of a
    loop within one kernel, because they cost almost nothing there.
    """
    loop = _hoist_products(steps, rows, carried)
    if repeats_in_kernels and loop.is_for_one_item:
        return loop, list(loop.outputs)
    sums = StepSums(steps, list(rows), list(carried))
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


@dataclass(frozen=True, eq=False)
class _StepSum:
    """A state to which each step adds terms, and the row that holds the state."""

    array: Carried
    row: StepRow
    #: The terms, each with the tensors that the steps store for it.
    terms: list[tuple[Tensor, list[Tensor]]]

    @property
    def initial(self) -> Tensor:
        for first, x in self.array.initial:
            if first <= self.row.start < first + x.shape[0]:
                row = rows_of(x, self.row.start - first, 1)
                return transposed(row, list(range(1, row.ndim)))
        raise ValueError("a state has no value before the first step")


@dataclass
class StepSums:
    """The sums in a loop, and the rows and arrays of the loop without these sums."""

    steps: int
    rows: list[StepRow]
    carried: list[Carried]
    _sums: dict[Carried, _StepSum] = field(default_factory=dict)
    #: Maps an operand of a sum to the array in which all steps store the operand, and to the row that the first step
    #: writes.
    _stored: dict[Tensor, tuple[Carried, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._arrays = list(self.carried)
        results = [value for array in self.carried for _, value in array.written]
        found = varying(results, self.rows)
        uses: dict[Tensor, int] = {}
        for used in [*results, *(x for tensor in ordered(results) for x in operands_of(tensor))]:
            uses[used] = uses.get(used, 0) + 1
        for array in self.carried:
            total = self._sum(array, found)
            if total is not None and uses[total.row] == uses[array.written[0][1]] == 1:
                self._sums[array] = total
        self.carried = [array for array in self.carried if array not in self._sums]
        self.rows = [row for row in self.rows if row.source not in self._sums]
        for total in self._sums.values():
            for operand in (x for _, operands in total.terms for x in operands):
                self._store(operand)

    def outputs(self, outputs: Iterable[Tensor]) -> list[Tensor]:
        """Return the arrays of the whole loop, given the arrays of the loop without its sums."""
        computed = dict(zip(self.carried, outputs, strict=True))
        whole: list[Tensor] = []
        for array in self._arrays:
            total = self._sums.get(array)
            whole.append(computed[array] if total is None else self._states(total, computed))
        return whole

    def _sum(self, array: Carried, varying: Collection[Tensor]) -> _StepSum | None:
        """If the two rows of an array hold the last two states of a sum, return this sum, else None."""
        own = [row for row in self.rows if row.source is array]
        if len(own) != 1 or len(array.written) != 1 or array.length != 2 or np.dtype(array.dtype).kind not in "iuf":
            return None
        (row,), ((start, value),) = own, array.written
        if start != row.start + 1 or not isinstance(value, Mapped) or value.inputs.count(row) != 1:
            return None
        names = [(scalar.name, len(slots)) for scalar, slots in value.program.steps]
        terms = [x for x in value.inputs if x is not row]
        if names != [("Add", len(value.inputs))] or any(x.dtype != row.dtype for x in terms):
            return None
        if any(isinstance(term, Folded) and term.fold != "Add" for term in terms):
            return None
        if any(x not in varying for term in terms if is_product(term) for x in operands_of(term)):
            return None
        total = _StepSum(array, row, [(term, _operands(term)) for term in terms])
        sizes = [self.steps * x.nbytes for _, operands in total.terms for x in operands]
        return total if max(sizes) <= _MOST_BYTES else None

    def _store(self, operand: Tensor) -> None:
        """Make all steps write an operand to an array, unless the operand is already a row of an array."""
        if operand in self._stored or (isinstance(operand, StepRow) and isinstance(operand.source, Tensor)):
            return
        for array in self.carried:
            for start, value in array.written:
                if value is operand and len(array.written) == 1 and start + self.steps <= array.length:
                    self._stored[operand] = array, start
                    return
        array = Carried(self.steps, operand.shape, operand.dtype, written=[(0, operand)])
        self.carried.append(array)
        self._stored[operand] = array, 0

    def _states(self, total: _StepSum, computed: Mapping[Carried, Tensor]) -> Tensor:
        """Return the two rows of a sum's array, which hold the last two states."""
        rows = {}
        for count in (self.steps - 1, self.steps):
            state = total.initial
            for term, operands in total.terms if count else ():
                stored = [self._stacked(x, count, computed) for x in operands]
                state = applied("Add", state.dtype, state, broadcast(_added_up(term, stored), state.shape))
            rows[(total.row.start + count) % 2] = transposed(state, [None, *range(state.ndim)])
        return joined([rows[0], rows[1]], 0)

    def _stacked(self, operand: Tensor, count: int, computed: Mapping[Carried, Tensor]) -> Tensor:
        if operand in self._stored:
            array, start = self._stored[operand]
            return rows_of(computed[array], start, count)
        assert isinstance(operand, StepRow)
        return operand.stacked(count)


def _operands(term: Tensor) -> list[Tensor]:
    """Return the tensors to store for a term: the term itself, the elements that it sums, or a product's operands."""
    if is_product(term):
        a, b = operands_of(term)  # the product sums over the first axis of both stored operands
        return [transposed(a, [1, 0]), b]
    return [term.x] if isinstance(term, Folded) else [term]


def _added_up(term: Tensor, stored: Sequence[Tensor]) -> Tensor:
    """Return the sum of a term over several steps, given the tensors that these steps stored."""
    if len(stored) == 2:
        a, b = (reshaped(x, (x.shape[0] * x.shape[1], x.shape[2])) for x in stored)
        return MatrixProduct(transposed(a, [1, 0]), b).outputs[0]
    if isinstance(term, Folded):
        axes = [0, *(axis + 1 for axis in term.axes)]
        return folded("Add", stored[0], axes, term.dtype, term.acc_dtype)
    return folded("Add", stored[0], [0], term.dtype, "float32" if term.dtype == "float16" else term.dtype)
