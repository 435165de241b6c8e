"""Decides which tensors a function stores, and which kernels compute them.

A tensor is stored if it is a result, if a separate operation reads or computes it, or if kernels cannot compute it
where they read it, for example if it is a fold over many elements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from optdb.codegen.cumulative import Cumulate
from optdb.codegen.gemm.operations import Product
from optdb.codegen.loops.body import Buffer, Index, LengthValue, Load, TooLarge
from optdb.codegen.loops.grids import grid_of
from optdb.codegen.loops.repeated import MovingRow
from optdb.codegen.loops.targets import WIDE_ATOMICS, ColumnSum, Fold, Scatter, Target
from optdb.codegen.operation import ArraySpec
from optdb.codegen.scalars.program import Scalar
from optdb.device.expressions import broadcast
from optdb.device.iterations import Carried, Iterated, Iteration, operands_of
from optdb.device.schedule.elementwise import ElementwiseSchedule, long_axes, offset_of
from optdb.device.schedule.lowering import UNROLLED, UNROLLED_PARTS, Lowering, positions, unrolls
from optdb.device.schedule.reducing import FoldedAxes, ReductionFusion, ScheduledReduction, spec_in_reduction
from optdb.device.schedule.schedule_nodes import ScheduledIteration, ScheduledOperation, ScheduleNode
from optdb.device.tensors import (
    Application,
    ArgumentTensor,
    Computed,
    Constant,
    Folded,
    Joined,
    MatrixVector,
    Replaced,
    ReshapedTensor,
    Scanned,
    ScatterSet,
    ScatterSum,
    Stored,
    Tensor,
    ViewTensor,
    c_strides,
    length_tensor,
    resolve,
    source_region,
    spec_of,
)
from optdb.numpy_types import HostArray
from optdb.runtime.context import Context
from optdb.runtime.sizes import SymInt, example_value, is_at_most, is_same, largest

#: Maximum number of result elements, and thus of accumulators, for a fold that runs as a loop. If there are more
#: accumulators than registers, a reduction is faster, although it takes another launch.
MOST_ACCUMULATORS = 12
#: The maximum number of accumulators for folds of at most `_FEW_ELEMENTS` elements, and for folds in the body of a
#: loop, which may become one kernel.
_MOST_FOR_FEW, _FEW_ELEMENTS, _MOST_IN_BODY = 16, 1024, 64
#: Number of elements in shared partial sums: with this many elements, few atomic additions collide.
SHARED_ELEMENTS = 1 << 16
#: Maximum size in bytes of a scattered sum's partial sums.
_MOST_PART_BYTES = 1 << 28


class Schedule(ElementwiseSchedule):
    """Stores tensors, and computes folds, products, scattered sums and loops in nodes of their own."""

    def __init__(self, context: Context, is_body: bool = False) -> None:
        super().__init__(context)
        self._is_body = is_body
        #: The values of buffers that never change; a loop's body shares them.
        self.constants: dict[Buffer, HostArray] = {}
        #: Maps a constant's address, size and dtype to its buffer.
        self._constants: dict[tuple[int, int, str], Buffer] = {}
        #: The regions in which operations store tensors; other tensors get buffers of their own.
        self._regions: dict[Tensor, Stored] = {}

    def _fuse_reductions(self) -> None:
        if self._is_body or not any(isinstance(node, ScheduledReduction) for node in self._nodes):
            return
        known = list(self._nodes)
        merges = not self._profile.needs_explicit_vectors
        fused = ReductionFusion(known, self.lowering, self._number).run(merges)
        added = self._nodes[len(known) :]
        self._nodes = [*fused, *added]
        if added:  # the locations of numbers that epilogues read
            self._lower_waiting()

    def _make(self, tensor: Tensor) -> Tensor:
        if isinstance(tensor, ArgumentTensor) and tensor.size:
            raise KeyError(f"{tensor} is not an argument of this function")
        if isinstance(tensor, Computed):
            self._apply(tensor.application)
        elif isinstance(tensor, Iterated):
            self._iterate(tensor.iteration)
        else:
            self.stored[tensor] = self._replacement(tensor)
        return self.stored[tensor]

    def _computes_in(self, tensor: Tensor, region: Stored) -> bool:
        found: Stored | None = region if region.is_contiguous else None
        while found is not None and isinstance(tensor, ViewTensor | ReshapedTensor):
            found = source_region(tensor, found)
            tensor = tensor.x
        if found is None or not self._is_computed(tensor):
            return False
        self._regions[tensor] = found
        self._make(tensor)
        self._regions.pop(tensor, None)
        return self.stored[tensor] is found

    def _is_computed(self, tensor: Tensor) -> bool:
        """Return whether an operation may compute a tensor that is not stored yet."""
        if resolve(tensor, self.stored) is not tensor or not tensor.size:
            return False
        match tensor:
            case Folded():
                return not unrolls(tensor, self.stored)
            case Scanned():
                return not is_at_most(tensor.shape[tensor.axis], UNROLLED)
        return isinstance(tensor, Computed | MatrixVector)

    def _region(self, tensor: Tensor) -> Stored:
        """Return the region in which an operation stores a tensor."""
        return self._regions.pop(tensor, None) or Stored(Buffer(tensor.size, tensor.dtype), tensor.shape)

    def _replacement(self, tensor: Tensor) -> Tensor:
        if isinstance(tensor, Constant):
            return self._constant(tensor)
        if isinstance(tensor, Folded) and not unrolls(tensor, self.stored):
            return self._fold(tensor)
        if isinstance(tensor, MatrixVector):
            return self._matrix_vector(tensor)
        if isinstance(tensor, ScatterSum):
            return self._scatter_sum(tensor)
        if isinstance(tensor, Scanned) and not is_at_most(tensor.shape[tensor.axis], UNROLLED):
            return self._scan(tensor)
        region = Stored(Buffer(tensor.size, tensor.dtype), tensor.shape)
        self.stored[tensor] = region
        self._store_into(tensor, region)
        return region

    def _constant(self, tensor: Constant) -> Stored:
        """Return the location of a constant; constants that are views of the same array share a buffer."""
        value = tensor.value
        order = sorted(range(value.ndim), key=lambda axis: -value.strides[axis])
        dense = value.transpose(order)
        if not dense.flags.c_contiguous:
            order, dense = list(range(value.ndim)), np.ascontiguousarray(value)
        key = (dense.ctypes.data, dense.size, tensor.dtype)
        if key not in self._constants:
            self._constants[key] = Buffer(tensor.size, tensor.dtype, "a constant")
            self.constants[self._constants[key]] = dense.reshape(-1)
        strides = [0] * value.ndim
        for axis, stride in zip(order, c_strides(dense.shape)):
            strides[axis] = stride
        return Stored(self._constants[key], tensor.shape, 0, strides)

    def _apply(self, application: Application) -> None:
        outputs = list(map(self._region, application.outputs))
        inputs = [self.store(x) if isinstance(x, Tensor) else x for x in application.inputs]
        self._operate(ScheduledOperation(application.make, inputs, outputs))
        self.stored.update(zip(application.outputs, outputs))

    def _iterate(self, iteration: Iteration) -> None:
        sources = {x: self.store(x) for x in iteration.taken}
        arrays = {
            array: Stored(Buffer(output.size, output.dtype, "rows of a loop"), output.shape)
            for array, output in zip(iteration.carried, iteration.outputs, strict=True)
        }
        before: list[ScheduleNode] = []
        for array, stored in arrays.items():
            for first, rows in array.initial:
                offset = first * math.prod(array.row_shape)
                before += self._store_into(rows, stored.part(rows.shape, offset, stored.strides))
        body = Schedule(self.context, is_body=True)
        body.stored.update((x, sources[x]) for x in iteration.invariants)
        body.constants, body._constants = self.constants, self._constants
        node = body._scheduled(iteration, arrays, sources)
        node.after += before
        self._add(node)
        self.stored.update(zip(iteration.outputs, arrays.values(), strict=True))

    def _scheduled(
        self, iteration: Iteration, arrays: Mapping[Carried, Stored], sources: Mapping[Tensor, Stored]
    ) -> ScheduledIteration:
        """Schedule a loop's body in this empty schedule, given the locations of carried arrays and other inputs."""
        rows: list[MovingRow] = []

        def moving(array: Stored, start: int) -> Buffer:
            buffer = Buffer(math.prod(array.shape[1:]), array.dtype, "a row")
            rows.append(MovingRow(buffer, array.buffer, array.offset, array.strides[0], start, array.shape[0]))
            return buffer

        for row in iteration.rows:
            array = arrays[row.source] if isinstance(row.source, Carried) else sources[row.source]
            self.stored[row] = Stored(moving(array, row.start), row.shape, 0, array.strides[1:])
        for tensor, row in iteration.hoisted.items():
            self.stored[tensor] = self.stored[row]
        late: list[tuple[Stored, Stored]] = []
        for carried in iteration.carried:
            read = [row.start % carried.length for row in iteration.rows if row.source is carried]
            for start, value in carried.written:
                target = Stored(moving(arrays[carried], start), carried.row_shape)
                if all(start % carried.length != other for other in read):
                    self._store_in_place(value, target)
                    continue
                # The step also reads the row, so the new value is copied to the row at the end of the step.
                region = Stored(Buffer(target.size, target.dtype), target.shape)
                late.append((self.store(value, region), target))
        steps = self.steps()
        for region, target in late:
            self.store(region, target)
        node = ScheduledIteration(iteration, rows, [*steps, *self.steps()])
        node.reads = {stored.buffer for stored in sources.values()}
        node.writes = [array.buffer for array in arrays.values()]
        return node

    def _store_in_place(self, tensor: Tensor, region: Stored) -> None:
        """Store a tensor in a region that nothing else writes; later reads may use the region."""
        if resolve(tensor, self.stored) is tensor and isinstance(tensor, Joined | Replaced | ScatterSet):
            self.stored[tensor] = region
        self._store_into(tensor, region)

    def _operate(self, operation: ScheduledOperation) -> None:
        if any(x.size for x in operation.outputs):
            self._add(operation)

    def _fold(self, tensor: Folded) -> Tensor:
        looped = long_axes(tensor.x.shape, tensor.axes)
        accumulators = tensor.size
        if not is_at_most(accumulators, self._most_accumulators(tensor.x.size)) or not looped:
            return self._reduce(tensor)
        domain = [tensor.x.shape[axis] for axis in looped]
        grid = grid_of(math.prod(domain), self._profile, accumulates=True, row_length=tensor.x.row_length)
        parts = Buffer(accumulators * grid.parts, tensor.acc_dtype, "parts of a fold")
        # The leading axes are the result's axes.
        whole = Stored(parts, (*tensor.shape, grid.parts), is_parts=True)

        def targets(lowering: Lowering) -> list[Target]:
            found: list[Target] = []
            for number, kept in enumerate(np.ndindex(*tensor.shape)):
                result: Any = None
                for at in positions(tensor.x.shape, looped, dict(zip(tensor.kept, kept))):
                    element = lowering.converted(lowering.evaluate(tensor.x, at), tensor.acc_dtype)
                    combine = Scalar(tensor.fold, tensor.acc_dtype)
                    result = element if result is None else lowering.apply(combine, [result, element])
                found.append(Fold(result, tensor.fold, parts, number))
            return found

        try:
            targets(self.lowering(domain))
        except TooLarge:
            return self._reduce(tensor)
        self._add_loop(domain, targets, parts, grid, [tensor.x])
        return Folded(tensor.fold, whole, [whole.ndim - 1], tensor.dtype, tensor.acc_dtype)

    def _most_accumulators(self, elements: int) -> int:
        if self._is_body:
            return _MOST_IN_BODY
        return _MOST_FOR_FEW if example_value(elements) <= _FEW_ELEMENTS else MOST_ACCUMULATORS

    def _reduce(self, tensor: Folded) -> Stored:
        """Add a reduction; if possible, its prologue computes the elements from stored arrays."""
        out = self._region(tensor)
        specs, inputs, program = self._prologue(tensor.x)
        folding = FoldedAxes(tensor.fold, tensor.x.shape, tensor.axes, tensor.dtype, tensor.acc_dtype)
        work = tensor.x.size * (1 if program is None else len(program.steps) + 1)
        self._operate(ScheduledReduction(folding, inputs, specs, program, [out], work))
        return out

    def _prologue(self, x: Tensor) -> tuple[list[ArraySpec], list[Stored], Any]:
        """Return the arrays that a reduction reads, and the program, if any, that computes the reduced elements."""
        try:
            while True:
                lowering = self.lowering(x.shape)
                lowering.level = self.level(x)
                result = lowering.evaluate(x, lowering.everywhere)
                if not lowering.missing:
                    break
                for missing in list(lowering.missing):
                    self._need(missing)
        except TooLarge:
            lowering = self.lowering(x.shape)
        sources = [source for source in lowering.sources if isinstance(source, Load | LengthValue)]
        is_plain = any(isinstance(source, Load) for source in sources) and not lowering.tables
        if not is_plain or len(sources) < len(lowering.sources) or len(sources) > 8:
            return self._without_prologue(x)
        inputs = [self._prologue_input(source, x) for source in sources]
        specs = list(map(spec_in_reduction, inputs))
        if any(
            not is_same(length, 1) and all(spec.broadcastable[axis] for spec in specs)
            for axis, length in enumerate(x.shape)
        ):
            return self._without_prologue(x)
        return specs, inputs, lowering.build([result])

    def _prologue_input(self, source: Load | LengthValue, x: Tensor) -> Stored:
        """Return an input of a prologue as an array that broadcasts to the shape of the reduced tensor."""
        if isinstance(source, LengthValue):
            return self._number(source, x.ndim)
        factors = [source.index.factor(axis) for axis in range(x.ndim)]
        shape = [length if factor else 1 for length, factor in zip(x.shape, factors)]
        return Stored(source.buffer, shape, source.index.const, factors)

    def _number(self, source: LengthValue, ndim: int) -> Stored:
        """Return the location of a number as an array of `ndim` axes."""
        one = (1,) * ndim
        if isinstance(source.number, SymInt):
            return self.store(length_tensor([source.number], one))
        return self._constant(Constant(np.reshape(source.number.value, one)))

    def _without_prologue(self, x: Tensor) -> tuple[list[ArraySpec], list[Stored], None]:
        return [spec_in_reduction(x)], [self.store(x)], None

    def _matrix_vector(self, tensor: MatrixVector) -> Tensor:
        """Add the nodes for a matrix-vector product: a loop that adds scaled columns, or an operation."""
        matrix = self.store(tensor.matrix)
        rows = tensor.matrix.shape[1]
        is_float = tensor.dtype in ("float32", "float64")
        is_long = not is_at_most(matrix.shape[0], 1) and not is_at_most(rows, 1)
        by_columns = is_same(matrix.strides[0], 1) and is_long and is_float
        if by_columns and self._takes_rows:
            return self._column_sum(tensor, matrix)
        out = self._region(tensor)
        dtype = tensor.dtype
        vector = self.store(tensor.vector)
        self._operate(ScheduledOperation(lambda context: Product(context, dtype, 2, 1), [matrix, vector], [out]))
        return out

    def _column_sum(self, tensor: MatrixVector, matrix: Stored) -> Tensor:
        rows, length = matrix.shape[1], matrix.shape[0]
        row_length = largest(length, tensor.vector.row_length)
        grid = grid_of(rows, self._profile, accumulates=True, row_length=row_length)
        parts = Buffer(length * grid.parts, tensor.dtype, "parts of a product")
        whole = Stored(parts, (grid.parts, length), is_parts=True)

        def targets(lowering: Lowering) -> list[Target]:
            factor = lowering.evaluate(tensor.vector, [Index.of(0)])
            return [ColumnSum(factor, matrix.buffer, matrix.offset, matrix.strides[1], length, parts)]

        self._add_loop([rows], targets, parts, grid, [tensor])
        return Folded("Add", whole, [0], tensor.dtype)

    def _scan(self, tensor: Scanned) -> Stored:
        x = self.store(tensor.x)
        out = self._region(tensor)
        spec, axis = spec_of(x), tensor.axis
        mode = {"Add": "add", "Mul": "mul"}[tensor.fold]
        self._operate(ScheduledOperation(lambda context: Cumulate(context, spec, mode, axis), [x], [out], x.size))
        return out

    def _scatter_sum(self, tensor: ScatterSum) -> Tensor:
        x = tensor.x
        looped = long_axes(x.shape, range(x.ndim)) or list(range(x.ndim))
        domain = [x.shape[axis] for axis in looped]
        shared = self._shared_parts(tensor)
        grid = grid_of(math.prod(domain), self._profile, not shared, not (shared or self._profile.runs_items_serially))
        if not shared and (grid.parts * tensor.nbytes > _MOST_PART_BYTES or tensor.size > 8 * x.size):
            grid = grid_of(math.prod(domain), self._profile, accumulates=True, is_sequential=True)
        count = shared or grid.parts
        parts = Buffer(tensor.size * count, tensor.dtype, "parts of a scattered sum")
        whole = Stored(parts, (count, *tensor.shape), is_parts=True)
        strides = c_strides(tensor.shape)

        def targets(lowering: Lowering) -> list[Target]:
            found: list[Target] = []
            for at in positions(x.shape, looped):
                value = lowering.evaluate(x, at)
                index = offset_of(lowering, tensor.coordinates, at, tensor.shape, strides)
                # The constant term is kept separate, so that neighbouring elements share one computed index.
                computed = lowering.index_value(Index(0, index.terms))
                found.append(Scatter(value, computed, index.const, tensor.size, parts, shared))
            return found

        before: list[ScheduleNode] = []
        if shared:
            zeros = broadcast(Constant(np.zeros((), tensor.dtype)), (parts.size,))
            before = self._store_into(zeros, Stored(parts, (parts.size,)))
        node = self._add_loop(domain, targets, parts, grid, operands_of(tensor))
        node.after += before
        return Folded("Add", whole, [0], tensor.dtype)

    def _shared_parts(self, tensor: ScatterSum) -> int:
        """Return how many partial results of a scattered sum all groups share; 0 if each work item has its own."""
        size = np.dtype(tensor.dtype).itemsize
        has_atomics = size == 4 or (size == 8 and WIDE_ATOMICS in self.context.device.extensions)
        if self._profile.runs_items_serially or not has_atomics:
            return 0
        # The number is a power of two, so that tensors of similar lengths often share a program.
        count = UNROLLED_PARTS // 2
        while count > 1 and count * tensor.size > SHARED_ELEMENTS:
            count //= 2
        return count
