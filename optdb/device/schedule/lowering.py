"""Lowers tensors to scalar programs, which compute elements at given indices from values loaded from arrays.

Views become indices, elementwise programs are inlined, and folds over few elements are unrolled.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Container, Generator, Iterable, Sequence
from typing import Any

import numpy as np

from optdb.codegen.loops.body import Index, Load, LoopBody, LoweredValue, Operand, RowProduct
from optdb.codegen.scalars.program import Number, Scalar
from optdb.device.tensors import (
    SHORT,
    Constant,
    Coordinate,
    Folded,
    Iota,
    Joined,
    Lengths,
    Mapped,
    MatrixVector,
    Replaced,
    Replacements,
    ReshapedTensor,
    Scanned,
    Stored,
    Stripe,
    Tensor,
    ViewTensor,
    c_strides,
    resolve,
)
from optdb.runtime.sizes import example_value, is_at_most, is_same, smallest

#: Maximum number of elements in an unrolled fold.
UNROLLED = SHORT
#: Maximum number of an earlier kernel's partial results that a kernel folds inline.
UNROLLED_PARTS = 64
#: Maximum total number of elements for which nested folds are unrolled.
MOST_NESTED = 64
#: If a large kernel without loops computes at least this many elements of a tensor, a loop computes them instead.
_LEAST_REPEATED = 5
#: A tensor is stored if a kernel with at least so many points divides so many times to compute each of its elements.
_MANY_POINTS, _MANY_DIVISIONS = 1 << 14, 32
#: The values of a tensor's elements in a body, by their indices.
ElementValues = dict[tuple[Index, ...], LoweredValue]
#: A generator that requests elements of tensors at given indices, and finally returns one element.
_Evaluation = Generator[tuple[Tensor, tuple[Index, ...]], Operand, Operand]


class Lowering(LoopBody):
    """Writes a kernel's body over a domain; if `takes_rows` is set, the body may multiply matrix rows by a vector."""

    def __init__(
        self,
        stored: Replacements,
        domain: Sequence[int],
        takes_rows: bool,
        most_steps: int,
        shared: Callable[[Mapped, int], Stored | None],
        kept: Container[Tensor],
    ) -> None:
        super().__init__(domain, most_steps)
        #: The level of the node that is being lowered (see `FusibleLoop.level`); kernels of lower levels run before it.
        self.level = 0
        #: Returns where a kernel of a lower level stores a tensor; None if the body must compute the tensor.
        self._shared = shared
        self._kept = kept
        #: The tensor that is computed even if it is kept.
        self._computed: Tensor | None = None
        #: The tensors that must be stored before the kernel runs.
        self.missing: dict[Tensor, None] = {}
        self.unrolled: dict[Folded, None] = {}
        self._takes_rows = takes_rows and len(self.domain) == 1
        self._stored = stored
        #: For each fold that is being unrolled, outermost first: how many elements it computes, including repetitions
        #: by outer folds.
        self._unrolling: list[int] = []
        self._memo: dict[tuple[Tensor, tuple[Index, ...]], Operand] = {}
        self._total = example_value(math.prod(self.domain))
        #: The scalars that are computed for elements of larger tensors.
        self._scalars: dict[Tensor, None] = {}

    @property
    def everywhere(self) -> list[Index]:
        """The coordinates of each point of the domain."""
        return [Index.of(axis) for axis in range(len(self.domain))]

    def compute(self, tensor: Tensor, coordinates: Sequence[Index]) -> Operand:
        """Compute an element of a tensor, even if the tensor is stored."""
        replacement = self._stored.pop(tensor, None)
        key = tensor, tuple(coordinates)
        loaded = self._memo.pop(key, None)
        self._computed = tensor
        try:
            return self.evaluate(tensor, coordinates)
        finally:
            self._computed = None
            if replacement is not None:
                self._stored[tensor] = replacement
                # Forget the element, so that other loops load it, and thus wait until it is stored.
                self._memo.pop(key, None)
            if loaded is not None:
                self._memo[key] = loaded

    def evaluate(self, tensor: Tensor, coordinates: Sequence[Index]) -> Operand:
        # This is a trampoline instead of a recursion, because graphs are deeper than Python's stack.
        stack: list[tuple[tuple[Tensor, tuple[Index, ...]], _Evaluation]] = []
        request: tuple[Tensor, tuple[Index, ...]] = (tensor, tuple(coordinates))
        while True:
            result = self._memo.get(request)
            if result is None:
                if is_same(request[0].size, 1) and stack and not is_same(stack[-1][0][0].size, 1):
                    self._note_scalar(request[0])
                started = self._start(*request)
                if isinstance(started, Generator):
                    stack.append((request, started))
                else:
                    result = self._memo[request] = started
            # Pass results to the waiting evaluations until one of them requests another element.
            while stack:
                key, evaluation = stack[-1]
                try:
                    request = next(evaluation) if result is None else evaluation.send(result)
                    break
                except StopIteration as stop:
                    stack.pop()
                    result = self._memo[key] = stop.value
            else:
                assert result is not None  # an evaluation that has started is on the stack
                return result

    def divided(self, root: Tensor | None) -> list[Tensor]:
        """Return tensors to store to make the body smaller: unrolled folds, or else one tensor in its middle."""
        found = self.long_folds(root)
        if found:
            return found
        of_elementwise = (tensor for tensor, _ in self._memo if isinstance(tensor, Mapped) and tensor is not root)
        computed = [tensor for tensor in of_elementwise if resolve(tensor, self._stored) is tensor]
        return [*computed[len(computed) // 2 :][:1]]

    def long_folds(self, root: Tensor | None) -> list[Tensor]:
        """Return the unrolled folds, except for `root` and for folds of partial results."""
        return [x for x in self.unrolled if x is not root and not has_parts(x, self._stored)]

    def repeated(self, roots: Container[Tensor | None]) -> list[Tensor]:
        """Return tensors of which the body computes many elements one by one, except for `roots`."""
        counts = Counter(tensor for tensor, _ in self._memo if isinstance(tensor, Mapped))
        found = [x for x, n in counts.items() if n >= _LEAST_REPEATED and resolve(x, self._stored) is x]
        inner = {x for tensor in found for x in tensor.inputs}
        return [x for x in found if x not in inner and x not in roots]

    def values_of(self, is_wanted: Callable[[Mapped, LoweredValue], bool]) -> dict[Mapped, ElementValues]:
        """Return the elements of each wanted tensor, given its first value, if the body computes all elements."""
        found: dict[Mapped, ElementValues] = {}
        for (tensor, at), first in self._memo.items():
            if not isinstance(tensor, Mapped) or tensor in found or not isinstance(first, LoweredValue):
                continue
            looped = [axis for axis, index in enumerate(at) if not index.is_const]
            if not _is_domain([tensor.shape[axis] for axis in looped], self.domain) or not is_wanted(tensor, first):
                continue
            elements = {each: self._memo.get((tensor, each)) for each in positions(tensor.shape, looped)}
            values = {each: value for each, value in elements.items() if isinstance(value, LoweredValue)}
            if len(values) == len(elements):
                found[tensor] = values
        return found

    def long_values(self, least: int, load: int) -> dict[Mapped, ElementValues]:
        """Return the elements of each tensor that takes at least `least` steps per element; a load counts as `load`."""
        # Bit masks of the steps and of the loads on which each step depends.
        steps: list[int] = []
        loads: list[int] = []
        for number, (_, operands) in enumerate(self.steps):
            own_steps, own_loads = 1 << number, 0
            for operand in operands:
                if isinstance(operand, Number):
                    continue
                if operand.is_step:
                    own_steps |= steps[operand.number]
                    own_loads |= loads[operand.number]
                elif isinstance(source := self.sources[operand.number], Load) and not source.index.is_const:
                    own_loads |= 1 << operand.number
            steps.append(own_steps)
            loads.append(own_loads)

        def is_long(_: Mapped, first: LoweredValue) -> bool:
            if not first.is_step:
                return False
            return steps[first.number].bit_count() + load * loads[first.number].bit_count() >= least

        return self.values_of(is_long)

    def scalars(self) -> list[Tensor]:
        """Return the scalars that elements of larger tensors depend on."""
        return list(self._scalars)

    def _start(self, tensor: Tensor, coordinates: tuple[Index, ...]) -> Operand | _Evaluation:
        tensor = resolve(tensor, self._stored)
        match tensor:
            case Stored():
                return self._load(tensor, coordinates)
            case Constant() if tensor.size == 1 or all(index.is_const for index in coordinates):
                at = (0,) * tensor.ndim if tensor.size == 1 else tuple(index.const for index in coordinates)
                number = Number.of(tensor.value[at], tensor.dtype)
                return self.length_value(number) if tensor.of_lengths else number
            case Lengths() if tensor.size == 1 or all(index.is_const for index in coordinates):
                strides = c_strides(tensor.shape)
                position = sum(index.const * step for index, step in zip(coordinates, strides, strict=True))
                return self.length(tensor.numbers[position if tensor.size > 1 else 0])
            case Mapped() if (region := self._shared(tensor, self.level)) is not None:
                return self._load(region, coordinates)
            case Mapped() if not (self._is_kept(tensor) or self._is_repeated(tensor, coordinates)):
                return self._mapped(tensor, coordinates)
            case ViewTensor():
                return self._view(tensor, coordinates)
            case Folded() if unrolls(tensor, self._stored) and self._nests(tensor):
                return self._folded(tensor, coordinates)
            case Scanned() if coordinates[tensor.axis].is_const and is_at_most(tensor.shape[tensor.axis], UNROLLED):
                return self._scanned(tensor, coordinates)
            case Iota():
                return self.index_value(coordinates[0])
            case Joined() if coordinates[tensor.axis].is_const:
                return self._joined(tensor, coordinates)
            case Replaced() if (inside := self._inside(tensor, coordinates)) is not None:
                return self._replaced(tensor, coordinates, inside)
            case ReshapedTensor() if all(index.is_const for index in coordinates):
                return self._reshaped(tensor, coordinates)
            case MatrixVector() if self._takes_rows and coordinates == (Index.of(0),):
                return self._row_product(tensor)
        return self._miss(tensor)

    def _note_scalar(self, tensor: Tensor) -> None:
        if isinstance(tensor, Mapped) and resolve(tensor, self._stored) is tensor:
            self._scalars[tensor] = None

    def _miss(self, tensor: Tensor) -> Operand:
        """Request that a tensor be stored, and return a dummy element."""
        self.missing[tensor] = None
        return Number.of(1, tensor.dtype)

    def _load(self, stored: Stored, coordinates: tuple[Index, ...]) -> Operand:
        index = stored.at(coordinates)
        if index.is_affine:
            return self.source(Load(stored.buffer, index), stored.dtype)
        # The constant term is kept separate, so that neighbouring elements share one computed index.
        scalar = self.element_of(stored.buffer, index.const)
        return self.apply(scalar, [self.index_value(Index(0, index.terms))])

    def _is_kept(self, tensor: Mapped) -> bool:
        return tensor in self._kept and tensor is not self._computed

    def _is_repeated(self, tensor: Mapped, coordinates: tuple[Index, ...]) -> bool:
        """Return whether a kernel would recompute elements of a costly tensor."""
        if all(index.is_const for index in coordinates):
            return False
        size = example_value(tensor.size)
        divides_often = self._total >= _MANY_POINTS and size * _MANY_DIVISIONS <= self._total and tensor.divides
        return divides_often or (tensor.is_costly and size * 4 <= self._total)

    def _mapped(self, tensor: Mapped, coordinates: tuple[Index, ...]) -> _Evaluation:
        operands = []
        for x in tensor.inputs:
            at = [Index() if is_same(length, 1) else index for length, index in zip(x.shape, coordinates, strict=True)]
            operands.append((yield x, tuple(at)))
        return self.inline(tensor.program, operands)[tensor.result]

    def _view(self, tensor: ViewTensor, coordinates: tuple[Index, ...]) -> _Evaluation:
        at = []
        for axis, coordinate in enumerate(tensor.coordinates):
            at.append((yield from self._coordinate(coordinate, coordinates, tensor.x.shape[axis])))
        source = resolve(tensor.x, self._stored)
        looked_up = [axis for axis, coordinate in enumerate(tensor.coordinates) if coordinate.lookup is not None]
        if len(looked_up) == 1 and not isinstance(source, Stored | Constant | Iota):
            (axis,) = looked_up
            length, rest = tensor.x.shape[axis], [n for other, n in enumerate(tensor.x.shape) if other != axis]
            if is_at_most(length, SHORT) and example_value(tensor.size * 2) > example_value(math.prod(rest)):
                return (yield from self._chosen(tensor.x, at, axis))
        if not tensor.is_affine and example_value(source.size) < example_value(tensor.size) and _is_expensive(source):
            return self._miss(source)
        return (yield tensor.x, tuple(at))

    def _chosen(self, x: Tensor, at: Sequence[Index], axis: int) -> _Evaluation:
        """Select the element of a short row at a computed index, after computing all of the row's elements."""
        index = self.index_value(at[axis])
        result: Operand | None = None
        for number in reversed(range(x.shape[axis])):
            element = yield x, (*at[:axis], Index(number), *at[axis + 1 :])
            if result is None:
                result = element
                continue
            is_it = self.apply(Scalar("EQ", "bool"), [index, Number.of(number, "int64")])
            result = self.apply(Scalar("Switch", x.dtype), [is_it, element, result])
        assert result is not None  # the row is not empty
        return result

    def _coordinate(
        self, coordinate: Coordinate, coordinates: Sequence[Index], length: int
    ) -> Generator[Any, Operand, Index]:
        index, lookup = _affine(coordinate, coordinates), coordinate.lookup
        if lookup is None:
            return index
        value = yield lookup.tensor, tuple(coordinates[axis] for axis in lookup.axes)
        return index.plus(self._clamped(value, length, lookup.tensor))

    def coordinate(self, coordinate: Coordinate, at: Sequence[Index], length: int) -> Index:
        """Return the index that a coordinate selects along an axis, for the element at given indices."""
        index, lookup = _affine(coordinate, at), coordinate.lookup
        if lookup is None:
            return index
        value = self.evaluate(lookup.tensor, [at[axis] for axis in lookup.axes])
        return index.plus(self._clamped(value, length, lookup.tensor))

    def _clamped(self, value: Operand, length: int, indices: Tensor) -> Index:
        """Return an int64 index, clamped to the axis because unused vector lanes may contain any value."""
        if self.dtype_of(value) != "int64":
            value = self.apply(Scalar("Cast", "int64"), [value])
        constant = indices.value if isinstance(indices, Constant) else None
        is_within = constant is not None and constant.size and constant.min() >= 0 and constant.max() < length
        if isinstance(value, Number):
            number = int(value.value)
            return Index(number if is_within else smallest(max(number, 0), length - 1))
        if not is_within:
            limits = Number.of(0, "int64"), self.length(length - 1)
            value = self.apply(Scalar("Clip", "int64"), [value, *limits])
        assert not isinstance(value, Number)
        return Index.of(value)

    def _nests(self, tensor: Folded) -> bool:
        """Return whether a fold may be unrolled inside the folds that are currently being unrolled."""
        return not self._unrolling or self._unrolling[-1] * tensor.count <= MOST_NESTED

    def _scanned(self, tensor: Scanned, coordinates: tuple[Index, ...]) -> _Evaluation:
        last = yield tensor.x, coordinates
        position = coordinates[tensor.axis].const
        if not position:
            return last
        before = (*coordinates[: tensor.axis], Index(position - 1), *coordinates[tensor.axis + 1 :])
        return self.apply(Scalar(tensor.fold, tensor.dtype), [(yield tensor, before), last])

    def _folded(self, tensor: Folded, coordinates: tuple[Index, ...]) -> _Evaluation:
        self.unrolled[tensor] = None
        lengths = [tensor.x.shape[axis] for axis in tensor.axes]
        combine = Scalar(tensor.fold, tensor.acc_dtype)
        result: Operand | None = None
        self._unrolling.append(tensor.count * (self._unrolling[-1] if self._unrolling else 1))
        for position in np.ndindex(*lengths):
            at: list[Index] = [Index()] * tensor.x.ndim
            for axis, number in zip(tensor.axes, position):
                at[axis] = Index(number)
            for axis, index in zip(tensor.kept, coordinates, strict=True):
                at[axis] = index
            element = self.converted((yield tensor.x, tuple(at)), tensor.acc_dtype)
            result = element if result is None else self.apply(combine, [result, element])
        self._unrolling.pop()
        assert result is not None  # a fold over no elements is a constant
        return self.converted(result, tensor.dtype)

    def _joined(self, tensor: Joined, coordinates: tuple[Index, ...]) -> _Evaluation:
        position = coordinates[tensor.axis].const
        for part in tensor.parts:
            length = part.shape[tensor.axis]
            if position < length:
                at = list(coordinates)
                at[tensor.axis] = Index(position)
                return (yield part, tuple(at))
            position -= length
        raise IndexError(
            f"{coordinates[tensor.axis].const} is out of bounds for an axis of length {tensor.shape[tensor.axis]}"
        )

    def _reshaped(self, tensor: ReshapedTensor, coordinates: tuple[Index, ...]) -> _Evaluation:
        flat = sum(index.const * stride for index, stride in zip(coordinates, c_strides(tensor.shape)))
        strides = c_strides(tensor.x.shape)
        at = [Index(flat // step % length) for step, length in zip(strides, tensor.x.shape)]
        return (yield tensor.x, tuple(at))

    def _inside(self, tensor: Replaced, coordinates: tuple[Index, ...]) -> list[Index | None] | None:
        """Return indices within the replaced slice, with None for each index outside it; None if an index may vary."""
        inside: list[Index | None] = []
        for index, stripe, length in zip(coordinates, tensor.stripes, tensor.shape, strict=True):
            if stripe == Stripe(0, 1, length):
                inside.append(index)
            elif index.is_const:
                number, rest = divmod(index.const - stripe.start, stripe.step)
                inside.append(Index(number) if rest == 0 and 0 <= number < stripe.length else None)
            else:
                return None
        return inside

    def _replaced(
        self, tensor: Replaced, coordinates: tuple[Index, ...], inside: Sequence[Index | None]
    ) -> _Evaluation:
        known = [index for index in inside if index is not None]
        if len(known) < len(inside):
            return (yield tensor.x, coordinates)
        lead = tensor.ndim - tensor.part.ndim
        at = [Index() if is_same(n, 1) else index for n, index in zip(tensor.part.shape, known[lead:], strict=True)]
        return (yield tensor.part, tuple(at))

    def _row_product(self, tensor: MatrixVector) -> Operand:
        """Multiply the matrix row that the kernel handles by a vector; the matrix must have contiguous rows."""
        matrix = resolve(tensor.matrix, self._stored)
        if not isinstance(matrix, Stored):
            return self._miss(matrix)
        if matrix.strides[1] != 1 or tensor.dtype not in ("float32", "float64"):
            return self._miss(tensor)
        vector = resolve(tensor.vector, self._stored)
        if not isinstance(vector, Stored):
            return self._miss(vector)
        if not vector.is_contiguous:
            return self._miss(tensor)
        source = RowProduct(
            matrix.buffer, matrix.offset, matrix.strides[0], vector.buffer, vector.offset, matrix.shape[1]
        )
        return self.source(source, tensor.dtype)


def _is_domain(lengths: Sequence[int], domain: Sequence[int]) -> bool:
    return len(lengths) == len(domain) and all(map(is_same, lengths, domain))


def _affine(coordinate: Coordinate, at: Sequence[Index]) -> Index:
    index = Index(coordinate.const)
    for axis, factor in coordinate.terms:
        index = index.plus(at[axis], factor)
    return index


def unrolls(tensor: Folded, stored: Replacements) -> bool:
    """Return whether kernels unroll a fold."""
    return is_at_most(tensor.count, UNROLLED_PARTS if has_parts(tensor, stored) else UNROLLED)


def has_parts(tensor: Folded, stored: Replacements) -> bool:
    """Return whether a fold adds up stored partial sums."""
    source = resolve(tensor.x, stored)
    return isinstance(source, Stored) and source.is_parts


def _is_expensive(tensor: Tensor, depth: int = 3) -> bool:
    while isinstance(tensor, ViewTensor):
        tensor = tensor.x
    if not isinstance(tensor, Mapped):
        return isinstance(tensor, Folded)
    return tensor.is_costly or depth == 0 or any(_is_expensive(x, depth - 1) for x in tensor.inputs)


def positions(
    shape: Sequence[int], looped: Sequence[int], fixed: dict[int, int] | None = None
) -> Iterable[tuple[Index, ...]]:
    """Yield the indices of all elements: `looped` axes become loops, and other axes are unrolled unless fixed."""
    fixed = fixed or {}
    free = [axis for axis in range(len(shape)) if axis not in looped and axis not in fixed]
    for position in np.ndindex(*[shape[axis] for axis in free]):
        at = [Index()] * len(shape)
        for axis, number in fixed.items():
            at[axis] = Index(number)
        for axis, number in zip(free, position):
            at[axis] = Index(number)
        for loop, axis in enumerate(looped):
            at[axis] = Index.of(loop)
        yield tuple(at)
