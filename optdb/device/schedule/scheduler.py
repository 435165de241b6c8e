"""Decides which tensors a function stores, and which kernels compute them.

A tensor is stored if it is a result, if a separate operation reads or computes it, or if kernels cannot compute it
where they read it, as with a fold over many elements. Each schedule node writes tensors into buffers
(`optdb.device.schedule.schedule_nodes`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from optdb.codegen.cumulative import Cumulate
from optdb.codegen.gemm.operations import Product
from optdb.codegen.loops.body import Buffer, Index, Load, LoweredValue, TooLarge
from optdb.codegen.loops.kernel import grid_of
from optdb.codegen.loops.targets import (
    WIDE_ATOMICS,
    ColumnSum,
    ElementStore,
    Fold,
    Scatter,
    ScatterStore,
    Target,
)
from optdb.codegen.operation import ArraySpec, Operation
from optdb.codegen.reductions.reduction import Reduction
from optdb.codegen.scalars.program import Number, Scalar
from optdb.device.expressions import broadcast, transposed
from optdb.device.iterations import Iterated, Iteration
from optdb.device.schedule.loop_bodies import ScheduledIteration, scheduled
from optdb.device.schedule.lowering import UNROLLED, UNROLLED_PARTS, Lowering, has_parts, unrolls
from optdb.device.schedule.schedule_nodes import (
    FusedKernel,
    FusibleLoop,
    ScheduledOperation,
    ScheduleNode,
    ordered_steps,
)
from optdb.device.schedule.stored import Replacements, Stored, c_strides, resolve
from optdb.device.tensors import (
    Application,
    ArgumentTensor,
    Computed,
    Constant,
    Coordinate,
    Folded,
    Joined,
    MatrixVector,
    Replaced,
    ReshapedTensor,
    Scanned,
    ScatterSet,
    ScatterSum,
    Tensor,
    ViewTensor,
    spec_of,
)
from optdb.numpy_types import HostArray
from optdb.runtime.context import Context

#: Maximum number of elements in a tensor that a kernel computes without loops.
FEW = 32
#: Maximum number of scalar operations per tensor in a kernel without loops.
MOST_SCALARS = 400
#: Maximum number of accumulators in a fold that keeps axes.
MOST_ACCUMULATORS = 64
#: Number of elements in shared partial sums: with this many elements, few atomic additions collide.
SHARED_ELEMENTS = 1 << 16
#: Maximum size in bytes of a scattered sum's partial sums.
_MOST_PART_BYTES = 1 << 28


@dataclass
class Schedule:
    """Collects the nodes that store tensors, and orders them."""

    context: Context
    #: Maps tensors, including all arguments, to their replacements.
    stored: Replacements = field(default_factory=dict)
    #: The values of buffers that never change.
    constants: dict[Buffer, HostArray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        #: Maps a constant's address, size and dtype to its buffer.
        self._constants: dict[tuple[int, int, str], Buffer] = {}
        self._nodes: list[ScheduleNode] = []
        #: The nodes that have not been lowered yet.
        self._waiting: list[FusibleLoop] = []
        self._profile = profile = self.context.profile
        self._takes_rows = profile.runs_items_serially and profile.needs_explicit_vectors

    def store(self, tensor: Tensor, region: Stored | None = None) -> Stored:
        """Add the nodes that store a tensor, in a region if one is given; return its location."""
        if region is not None:
            self._store_into(tensor, region)
            return region
        self._store_viewed(tensor)
        found = resolve(tensor, self.stored)
        if found is tensor:
            found = self._make(tensor)
        if isinstance(found, Stored):
            return found
        region = Stored(Buffer(tensor.size, tensor.dtype), tensor.shape)
        self._loop_store(found, region)
        self.stored[found] = region
        return region

    def _store_viewed(self, tensor: Tensor) -> None:
        """Store a view's source first if it will be stored anyway, so that the view needs no copy."""
        while isinstance(tensor, ReshapedTensor) or (isinstance(tensor, ViewTensor) and tensor.is_affine):
            tensor = tensor.x
        if isinstance(tensor, Computed | Iterated) and resolve(tensor, self.stored) is tensor:
            self._make(tensor)

    def store_in_place(self, tensor: Tensor, region: Stored) -> None:
        """Add the nodes that store a tensor in a buffer region that nothing else writes.

        If no kernel computes the tensor element by element, later reads use the region instead of storing a second
        copy.
        """
        if resolve(tensor, self.stored) is tensor and isinstance(tensor, Joined | Replaced | ScatterSet):
            self.stored[tensor] = region
        self._store_into(tensor, region)

    def store_late(self, tensor: Tensor, region: Stored) -> None:
        """Add the nodes that store a tensor in a region after all other nodes."""
        for node in self._store_into(tensor, region):
            node.is_late = True

    def lowering(self, domain: Sequence[int]) -> Lowering:
        """Return the lowering that writes the body of a kernel over a domain."""
        return Lowering(self.stored, domain, self._takes_rows)

    def steps(self) -> list[FusedKernel | ScheduledOperation | ScheduledIteration]:
        """Return the steps that compute all tensors to be stored, in order."""
        self._lower_waiting()
        steps = ordered_steps(self._nodes, self.lowering, self._profile)
        self._nodes = []
        return steps

    def _need(self, tensor: Tensor) -> None:
        """Store a tensor that a kernel cannot compute, or replace it by partial results that a kernel can fold."""
        found = resolve(tensor, self.stored)
        if found is not tensor:
            return
        if isinstance(tensor, Folded) and unrolls(tensor, self.stored):
            self.store(tensor)
        else:
            self._make(tensor)

    def _make(self, tensor: Tensor) -> Tensor:
        """Add the nodes that compute a tensor; return its replacement."""
        if isinstance(tensor, ArgumentTensor) and tensor.size:
            raise KeyError(f"{tensor} is not an argument of this function")
        if isinstance(tensor, Computed):
            self._apply(tensor.application)
        elif isinstance(tensor, Iterated):
            self._iterate(tensor.iteration)
        else:
            self.stored[tensor] = self._replacement(tensor)
        return self.stored[tensor]

    def _replacement(self, tensor: Tensor) -> Tensor:
        if isinstance(tensor, Constant):
            return self._constant(tensor)
        if isinstance(tensor, Folded) and not unrolls(tensor, self.stored):
            return self._fold(tensor)
        if isinstance(tensor, MatrixVector):
            return self._matrix_vector(tensor)
        if isinstance(tensor, ScatterSum):
            return self._scatter_sum(tensor)
        if isinstance(tensor, Scanned) and tensor.shape[tensor.axis] > UNROLLED:
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
        outputs = [Stored(Buffer(x.size, x.dtype), x.shape) for x in application.outputs]
        inputs = [self.store(x) if isinstance(x, Tensor) else x for x in application.inputs]
        self._operate(application.make, inputs, outputs)
        self.stored.update(zip(application.outputs, outputs))

    def _iterate(self, iteration: Iteration) -> None:
        """Add the nodes for a loop: nodes that store its initial values, and the loop itself."""
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
        body = Schedule(self.context, {x: sources[x] for x in iteration.invariants}, self.constants)
        body._constants = self._constants
        node = scheduled(iteration, arrays, sources, body)
        node.after += before
        self._add(node)
        self.stored.update(zip(iteration.outputs, arrays.values(), strict=True))

    def _operate(self, make: Callable[[Context], Operation], inputs: Sequence[Any], outputs: Sequence[Stored]) -> None:
        if any(x.size for x in outputs):
            self._add(ScheduledOperation(make, inputs, outputs))

    def _add(self, node: ScheduleNode) -> None:
        self._nodes.append(node)
        if isinstance(node, FusibleLoop):
            self._waiting.append(node)

    def _store_into(self, tensor: Tensor, region: Stored) -> list[ScheduleNode]:
        """Add the nodes that write a tensor's elements into a region."""
        found = resolve(tensor, self.stored)
        tensor = tensor if found is region else found
        if not tensor.size:
            return []
        if isinstance(tensor, Joined):
            return self._join_into(tensor, region)
        if isinstance(tensor, ReshapedTensor) and region.is_contiguous:
            return self._store_into(tensor.x, region.part(tensor.x.shape, region.offset, c_strides(tensor.x.shape)))
        if isinstance(tensor, Replaced):
            return self._replace_in(tensor, region)
        if isinstance(tensor, ScatterSet):
            before = self._store_into(tensor.base, region)
            return self._ordered_after(before, [self._scatter_store(tensor, region)])
        return [self._loop_store(tensor, region)]

    @staticmethod
    def _ordered_after(before: list[ScheduleNode], nodes: list[ScheduleNode]) -> list[ScheduleNode]:
        for node in nodes:
            node.after += before
        return [*before, *nodes]

    def _replace_in(self, tensor: Replaced, region: Stored) -> list[ScheduleNode]:
        before = self._store_into(tensor.x, region)
        steps = list(zip(tensor.stripes, region.strides, strict=True))
        offset = region.offset + sum(stripe.start * step for stripe, step in steps)
        strides = [stripe.step * step for stripe, step in steps]
        shape = [stripe.length for stripe in tensor.stripes]
        lead = len(shape) - tensor.part.ndim
        part = tensor.part if not lead else transposed(tensor.part, [None] * lead + list(range(tensor.part.ndim)))
        nodes = self._store_into(_spread(part, shape), region.part(shape, offset, strides))
        return self._ordered_after(before, nodes)

    def _join_into(self, tensor: Joined, region: Stored) -> list[ScheduleNode]:
        nodes, offset = [], region.offset
        for part in tensor.parts:
            nodes += self._store_into(part, region.part(part.shape, offset, region.strides))
            offset += part.shape[tensor.axis] * region.strides[tensor.axis]
        return nodes

    def _loop_store(self, tensor: Tensor, region: Stored) -> ScheduleNode:
        """Add the node that computes a tensor's elements and writes them."""
        if tensor.size <= FEW and self._is_small(tensor):
            looped: list[int] = []
        else:
            looped = list(range(tensor.ndim))
            if isinstance(tensor, Scanned):
                looped = [axis for axis in looped if axis != tensor.axis]
            elif self._unrolls_folds(tensor):
                looped = _long_axes(tensor.shape, looped)
        return self._add_element_loop(tensor, region, looped)

    def _add_element_loop(self, tensor: Tensor, region: Stored, looped: Sequence[int]) -> ScheduleNode:
        domain = [tensor.shape[axis] for axis in looped]

        def value(lowering: Lowering, at: Sequence[Index]) -> LoweredValue | Number:
            # If the region is the tensor's own location, compute the tensor instead of reading it.
            is_here = self.stored.get(tensor) is region
            return lowering.compute(tensor, at) if is_here else lowering.evaluate(tensor, at)

        def targets(lowering: Lowering) -> list[Target]:
            return [
                ElementStore(value(lowering, at), region.buffer, region.at(at))
                for at in _positions(tensor.shape, looped)
            ]

        node = self._add_loop(domain, targets, region.buffer)
        node.root = tensor
        return node

    def _add_loop(
        self,
        domain: Sequence[int],
        targets: Callable[[Lowering], list[Target]],
        buffer: Buffer,
        accumulates: bool = False,
        is_sequential: bool = False,
    ) -> FusibleLoop:
        grid = grid_of(math.prod(domain), self._profile, accumulates, is_sequential)
        node = FusibleLoop(domain, grid, targets)
        node.writes = [buffer]
        self._add(node)
        return node

    def _is_small(self, tensor: Tensor) -> bool:
        """Return whether one kernel without loops can compute all elements of a tensor."""
        lowering = self.lowering(())
        try:
            for at in _positions(tensor.shape, ()):
                lowering.compute(tensor, at)
        except TooLarge:
            return False
        return len(lowering.steps) <= MOST_SCALARS

    def _unrolls_folds(self, tensor: Tensor) -> bool:
        """Return whether a kernel for a tensor would unroll folds that other elements in the same row could share."""
        lowering = self.lowering(tensor.shape)
        try:
            lowering.compute(tensor, [Index.of(axis) for axis in range(tensor.ndim)])
        except TooLarge:
            return False
        return any(not has_parts(x, self.stored) for x in lowering.unrolled)

    def _fold(self, tensor: Folded) -> Tensor:
        looped = _long_axes(tensor.x.shape, tensor.axes)
        accumulators = tensor.size
        if accumulators > MOST_ACCUMULATORS or not looped:
            return self._reduce(tensor)
        domain = [tensor.x.shape[axis] for axis in looped]
        grid = grid_of(math.prod(domain), self._profile, accumulates=True)
        parts = Buffer(accumulators * grid.parts, tensor.acc_dtype, "parts of a fold")
        # The leading axes are the result's axes.
        whole = Stored(parts, (*tensor.shape, grid.parts), is_parts=True)

        def targets(lowering: Lowering) -> list[Target]:
            found: list[Target] = []
            for number, kept in enumerate(np.ndindex(*tensor.shape)):
                result: Any = None
                for at in _positions(tensor.x.shape, looped, dict(zip(tensor.kept, kept))):
                    element = lowering.converted(lowering.evaluate(tensor.x, at), tensor.acc_dtype)
                    combine = Scalar(tensor.fold, tensor.acc_dtype)
                    result = element if result is None else lowering.apply(combine, [result, element])
                found.append(Fold(result, tensor.fold, parts, number))
            return found

        try:
            targets(self.lowering(domain))
        except TooLarge:
            return self._reduce(tensor)
        self._add_loop(domain, targets, parts, accumulates=True)
        return Folded(tensor.fold, whole, [whole.ndim - 1], tensor.dtype, tensor.acc_dtype)

    def _reduce(self, tensor: Folded) -> Stored:
        """Add a reduction, which reads arrays directly if its elements need no other computation."""
        out = Stored(Buffer(tensor.size, tensor.dtype), tensor.shape)
        specs, inputs, program = self._prologue(tensor.x)
        fold, axes, dtype, acc_dtype = tensor.fold, tensor.axes, tensor.dtype, tensor.acc_dtype

        def make(context: Context) -> Operation:
            return Reduction(context, fold=fold, inputs=specs, axes=axes, dtype=dtype, acc_dtype=acc_dtype, pre=program)

        self._operate(make, inputs, [out])
        return out

    def _prologue(self, x: Tensor) -> tuple[list[ArraySpec], list[Stored], Any]:
        """Return a reduction's arrays, and the program that computes its elements; None if it reads them directly."""
        at = [Index.of(axis) for axis in range(x.ndim)]
        try:
            while True:
                lowering = self.lowering(x.shape)
                result = lowering.evaluate(x, at)
                if not lowering.missing:
                    break
                for missing in list(lowering.missing):
                    self._need(missing)
        except TooLarge:
            lowering = self.lowering(x.shape)
        loads = [source for source in lowering.sources if isinstance(source, Load)]
        is_plain = loads and not lowering.tables and len(loads) == len(lowering.sources)
        if not is_plain or len(loads) > 8:
            return self._without_prologue(x)
        inputs = []
        for source in loads:
            factors = [source.index.factor(axis) for axis in range(x.ndim)]
            shape = [length if factor else 1 for length, factor in zip(x.shape, factors)]
            inputs.append(Stored(source.buffer, shape, source.index.const, factors))
        specs = [ArraySpec(stored.dtype, tuple(length == 1 for length in stored.shape)) for stored in inputs]
        if any(length != 1 and all(spec.broadcastable[axis] for spec in specs) for axis, length in enumerate(x.shape)):
            return self._without_prologue(x)
        return specs, inputs, lowering.build([result])

    def _without_prologue(self, x: Tensor) -> tuple[list[ArraySpec], list[Stored], None]:
        return [ArraySpec(x.dtype, tuple(length == 1 for length in x.shape))], [self.store(x)], None

    def _matrix_vector(self, tensor: MatrixVector) -> Tensor:
        """Add the nodes for a matrix-vector product: a loop that adds scaled columns, or an operation."""
        matrix = self.store(tensor.matrix)
        rows = tensor.matrix.shape[1]
        is_float = tensor.dtype in ("float32", "float64")
        by_columns = matrix.strides[0] == 1 and matrix.shape[0] > 1 and rows > 1 and is_float
        if by_columns and self._takes_rows:
            return self._column_sum(tensor, matrix)
        out = Stored(Buffer(tensor.size, tensor.dtype), tensor.shape)
        dtype = tensor.dtype
        vector = self.store(tensor.vector)
        self._operate(lambda context: Product(context, dtype, 2, 1), [matrix, vector], [out])
        return out

    def _column_sum(self, tensor: MatrixVector, matrix: Stored) -> Tensor:
        rows, length = matrix.shape[1], matrix.shape[0]
        grid = grid_of(rows, self._profile, accumulates=True)
        parts = Buffer(length * grid.parts, tensor.dtype, "parts of a product")
        whole = Stored(parts, (grid.parts, length), is_parts=True)

        def targets(lowering: Lowering) -> list[Target]:
            factor = lowering.evaluate(tensor.vector, [Index.of(0)])
            return [ColumnSum(factor, matrix.buffer, matrix.offset, matrix.strides[1], length, parts)]

        self._add_loop([rows], targets, parts, accumulates=True)
        return Folded("Add", whole, [0], tensor.dtype)

    def _scan(self, tensor: Scanned) -> Stored:
        x = self.store(tensor.x)
        out = Stored(Buffer(tensor.size, tensor.dtype), tensor.shape)
        spec, axis = spec_of(x), tensor.axis
        mode = {"Add": "add", "Mul": "mul"}[tensor.fold]
        self._operate(lambda context: Cumulate(context, spec, mode, axis), [x], [out])
        return out

    def _scatter_sum(self, tensor: ScatterSum) -> Tensor:
        x = tensor.x
        looped = _long_axes(x.shape, range(x.ndim)) or list(range(x.ndim))
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
            for at in _positions(x.shape, looped):
                value = lowering.evaluate(x, at)
                index = _offset(lowering, tensor.coordinates, at, tensor.shape, strides)
                # The constant is kept apart, so that neighbours share one computed index.
                computed = lowering.index_value(Index(0, index.terms))
                found.append(Scatter(value, computed, index.const, tensor.size, parts, shared))
            return found

        before: list[ScheduleNode] = []
        if shared:
            zeros = broadcast(Constant(np.zeros((), tensor.dtype)), (parts.size,))
            before = self._store_into(zeros, Stored(parts, (parts.size,)))
        node = self._add_loop(domain, targets, parts, accumulates=True)
        node.after += before
        node.grid = grid
        return Folded("Add", whole, [0], tensor.dtype)

    def _shared_parts(self, tensor: ScatterSum) -> int:
        """Return how many partial results of a scattered sum all groups share; 0 if each item has its own."""
        size = np.dtype(tensor.dtype).itemsize
        has_atomics = size == 4 or (size == 8 and WIDE_ATOMICS in self.context.device.extensions)
        if self._profile.runs_items_serially or not has_atomics:
            return 0
        return max(1, min(UNROLLED_PARTS // 2, SHARED_ELEMENTS // tensor.size))

    def _scatter_store(self, tensor: ScatterSet, region: Stored) -> ScheduleNode:
        x = tensor.x
        looped = _long_axes(x.shape, range(x.ndim)) or list(range(x.ndim))
        # If several elements have the same position, the last one wins. Unrolled axes vary fastest, so the looped axes
        # must be the leading ones.
        looped = list(range(x.ndim)) if looped != list(range(len(looped))) else looped
        domain = [x.shape[axis] for axis in looped]

        def targets(lowering: Lowering) -> list[Target]:
            found: list[Target] = []
            for at in _positions(x.shape, looped):
                value = lowering.evaluate(x, at)
                index = _offset(lowering, tensor.coordinates, at, tensor.shape, region.strides, region.offset)
                found.append(ScatterStore(value, region.buffer, lowering.index_value(index)))
            return found

        return self._add_loop(domain, targets, region.buffer, is_sequential=True)

    def _lower(self, node: FusibleLoop) -> None:
        """Add the nodes that store all tensors needed by a node."""
        while True:
            lowering = self.lowering(node.domain)
            try:
                node.targets(lowering)
                needed = list(lowering.missing)
            except TooLarge:
                needed = [*lowering.missing, *lowering.divided(node.root)]
                if not needed:
                    raise
            if not needed:
                return
            for tensor in needed:
                self._need(tensor)

    def _lower_waiting(self) -> None:
        """Lower nodes until everything that they need is stored, and record the buffers that they read."""
        while self._waiting:
            while self._waiting:
                self._lower(self._waiting.pop())
            # Lowering a node may let a larger program replace a tensor that another node needs.
            self._waiting = [
                node for node in self._nodes if isinstance(node, FusibleLoop) and not self._note_reads(node)
            ]

    def _note_reads(self, node: FusibleLoop) -> bool:
        """Record the buffers that a node reads; return False if the node is too large."""
        lowering = self.lowering(node.domain)
        try:
            targets = node.targets(lowering)
        except TooLarge:
            return False
        matrices = (target.matrix for target in targets if isinstance(target, ColumnSum))
        node.reads = {*lowering.buffers_read, *matrices}
        return True


def _long_axes(shape: Sequence[int], axes: Iterable[int]) -> list[int]:
    """Return the axes to loop over when short axes are unrolled; all given axes if none is long."""
    axes = [axis for axis in axes if shape[axis] != 1]
    long = [axis for axis in axes if shape[axis] > UNROLLED]
    if not long:
        return axes
    short = math.prod(shape[axis] for axis in axes if axis not in long)
    return long if short <= 2 * UNROLLED else axes


def _positions(
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


def _offset(
    lowering: Lowering,
    coordinates: Sequence[Coordinate],
    at: Sequence[Index],
    shape: Sequence[int],
    strides: Sequence[int],
    offset: int = 0,
) -> Index:
    """Return the offset of a target's element at the given coordinates."""
    index = Index(offset)
    for coordinate, length, stride in zip(coordinates, shape, strides, strict=True):
        index = index.plus(lowering.coordinate(coordinate, at, length), stride)
    return index


def _spread(x: Tensor, shape: Sequence[int]) -> Tensor:
    if tuple(shape) == x.shape:
        return x
    axes = [Coordinate(0, ((axis, 1),) if length != 1 else ()) for axis, length in enumerate(x.shape)]
    return ViewTensor(x, shape, axes)
