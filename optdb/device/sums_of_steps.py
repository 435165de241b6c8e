"""Replaces additions in each step of a loop by one sum after the loop, as in gradients of weights.

The steps store the terms, or the operands of products: a sum of products is one product of concatenated operands.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from optdb.device.expressions import applied, broadcast, folded, joined, reshaped, rows_of, transposed
from optdb.device.iterations import Carried, StepRow, operands_of, ordered, varying
from optdb.device.tensors import Folded, Mapped, MatrixProduct, Tensor, is_product


@dataclass(frozen=True, eq=False)
class _StepSum:
    """A state to which each step adds terms, and the row that holds the state."""

    array: Carried
    row: StepRow
    #: The terms, each with the tensors that the steps store for it.
    terms: list[tuple[Tensor, list[Tensor]]]

    @property
    def initial(self) -> Tensor:
        """The state before the first step."""
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
    most_bytes: int  #: Maximum number of bytes that all steps together may store for one term of a sum.
    _sums: dict[Carried, _StepSum] = field(default_factory=dict)
    #: Maps an operand of a sum to the array to which all steps write it, and to the row that the first step writes.
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
        """Return the sum held by an array with two alternating rows; None if the array holds another state."""
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
        return total if max(sizes) <= self.most_bytes else None

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
        """Stack an operand's values in the first steps along a new first axis."""
        if operand in self._stored:
            array, start = self._stored[operand]
            return rows_of(computed[array], start, count)
        assert isinstance(operand, StepRow)
        return operand.stacked(count)


def _operands(term: Tensor) -> list[Tensor]:
    """Return the tensors to store for a term: the term itself, its summed elements, or the operands of a product."""
    if is_product(term):
        a, b = operands_of(term)  # both get their terms along the first axis
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
