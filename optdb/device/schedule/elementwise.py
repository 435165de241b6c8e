"""Stores tensors that kernels compute element by element, including joins, replaced slices and scattered elements."""

from __future__ import annotations

import heapq
import math
import sys
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from optdb.codegen.loops.body import Buffer, Index, LoweredValue, TooLarge
from optdb.codegen.loops.grids import LoopGrid, grid_of
from optdb.codegen.loops.targets import ColumnSum, ElementStore, ScatterStore, Target, results_of
from optdb.codegen.scalars.program import Number
from optdb.device.expressions import broadcast
from optdb.device.iterations import Iterated, operands_of, ordered
from optdb.device.schedule.lowering import UNROLLED, ElementValues, Lowering, has_parts, positions, unrolls
from optdb.device.schedule.ordering import SlowValues, ordered_steps
from optdb.device.schedule.points import PointLoops
from optdb.device.schedule.schedule_nodes import FusibleLoop, ScheduleNode, Step
from optdb.device.schedule.traffic import tensors_to_store
from optdb.device.tensors import (
    Computed,
    Coordinate,
    Folded,
    Joined,
    Lengths,
    Mapped,
    Replaced,
    Replacements,
    ReshapedTensor,
    Scanned,
    ScatterSet,
    Stored,
    Tensor,
    ViewTensor,
    c_strides,
    resolve,
)
from optdb.runtime.context import Context
from optdb.runtime.sizes import SymInt, is_at_most, is_same

#: Maximum number of elements in a tensor that a kernel computes without loops.
FEW = 32
#: Maximum number of scalar operations per tensor in a kernel without loops.
MOST_SCALARS = 400
#: How many steps per element a value takes if loading it is faster, and how many of them a load counts as.
_SHARED_ON_CPU, _SHARED_ON_GPU = (200, 3), (40, 8)
#: Minimum number of elements of a tensor that is stored to move fewer bytes (see `traffic`).
_KEPT_ON_CPU, _KEPT_ON_GPU = 1 << 18, 1 << 12
#: Maximum number of tensors that a node stores for later nodes.
_MOST_SHARED = 8


class ElementwiseSchedule:
    """Collects and orders the nodes that store tensors; `stored` must have a replacement for each argument."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.stored: Replacements = {}
        self._nodes: list[ScheduleNode] = []
        #: A heap of the nodes that have not been lowered yet; nodes of lower levels are lowered first.
        self._waiting: list[tuple[int, int, FusibleLoop]] = []
        self._added = 0
        self._levels: dict[Tensor, int] = {}
        #: The tensors that are stored although kernels could compute them.
        self.kept: set[Tensor] = set()
        #: The tensors that take many steps per element: the node of the lowest level that computes each, and its
        #: elements.
        self._computed: dict[Mapped, tuple[FusibleLoop, ElementValues]] = {}
        self._profile = profile = context.profile
        self._takes_rows = profile.runs_items_serially and profile.needs_explicit_vectors

    def expect(self, tensors: Sequence[Tensor]) -> None:
        """Choose what to store, given all tensors that will be stored; without this, kernels recompute more."""
        self.level(*tensors)
        least = _KEPT_ON_CPU if self._profile.runs_items_serially else _KEPT_ON_GPU
        self.kept |= tensors_to_store(tensors, self.stored, self._levels, least)

    def store(self, tensor: Tensor, region: Stored | None = None) -> Stored:
        """Add the nodes that store a tensor, in a region if one is given; return the tensor's location."""
        if region is not None:
            if tensor in self.kept and resolve(tensor, self.stored) is tensor:
                self.stored[tensor] = region
            if not self._computes_in(tensor, region):
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
        """Store a view's source first if the source will be stored anyway, so that the view needs no copy."""
        while isinstance(tensor, ReshapedTensor) or (isinstance(tensor, ViewTensor) and tensor.is_affine):
            tensor = tensor.x
        if isinstance(tensor, Computed | Iterated) and resolve(tensor, self.stored) is tensor:
            self._make(tensor)

    def store_late(self, tensor: Tensor, region: Stored) -> None:
        if self._computes_in(tensor, region):
            return
        for node in self._store_into(tensor, region):
            node.is_late = True

    def lowering(self, domain: Sequence[int]) -> Lowering:
        """Return an empty body; a body without loop axes is shared by several kernels, so its size is not limited."""
        most_steps = self.context.options.loop_steps if domain else sys.maxsize
        return Lowering(self.stored, domain, self._takes_rows, most_steps, self._shared, self.kept)

    def level(self, *operands: Tensor) -> int:
        """Return the maximum number of folds and operations that must precede the use of tensors."""
        for tensor in ordered(operands, self._levels):
            below = max((self._levels[x] for x in operands_of(tensor)), default=0)
            is_elementwise = isinstance(tensor, Mapped | ViewTensor | ReshapedTensor | Joined | Replaced)
            self._levels[tensor] = below if is_elementwise else below + 1
        return max((self._levels[x] for x in operands), default=0)

    def _shared(self, tensor: Mapped, level: int) -> Stored | None:
        """Return where a node of a lower level stores a tensor; None if no node may store it."""
        if tensor not in self._computed:
            return None
        node, elements = self._computed[tensor]
        if node.level >= level or (len(node.shared) >= _MOST_SHARED and tensor not in node.shared):
            return None
        return node.share(tensor, elements)

    def steps(self) -> list[Step]:
        while True:
            self._lower_waiting()
            self._fuse_reductions()
            points = PointLoops(self.lowering(()), self.context)
            steps = ordered_steps(self._nodes, self.lowering, points, self._profile)
            if not points.body.missing:
                break
            # The order of the loops determines which folds are unrolled within other folds. It was therefore not known
            # earlier that these tensors must be stored.
            for tensor in list(points.body.missing):
                self._need(tensor)
        self._nodes = []
        kernels = points.kernels()
        known = [kernels[step] if isinstance(step, int) else step for step in steps]
        shared = SlowValues(known, self.lowering, self.stored, self._profile).share()
        self._computed = {}
        return shared

    def _need(self, tensor: Tensor) -> None:
        """Store a tensor that a kernel needs but cannot compute, or store partial results that the kernel can fold."""
        if resolve(tensor, self.stored) is not tensor:
            return
        if isinstance(tensor, Folded) and unrolls(tensor, self.stored):
            self.store(tensor)
        else:
            self._make(tensor)

    def _fuse_reductions(self) -> None:
        """Fuse reductions with loops and with each other."""
        raise NotImplementedError

    def _make(self, tensor: Tensor) -> Tensor:
        """Add the nodes that compute a tensor; return its replacement."""
        raise NotImplementedError

    def _computes_in(self, tensor: Tensor, region: Stored) -> bool:
        """Let an operation store a tensor in a region that nothing else writes; return whether an operation does."""
        raise NotImplementedError

    def _add(self, node: ScheduleNode) -> None:
        self._nodes.append(node)
        if isinstance(node, FusibleLoop):
            self._wait(node)

    def _wait(self, node: FusibleLoop) -> None:
        self._added += 1
        heapq.heappush(self._waiting, (node.level, -self._added, node))

    def _store_into(self, tensor: Tensor, region: Stored) -> list[ScheduleNode]:
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
        pieces, x = [tensor], resolve(tensor.x, self.stored)
        while isinstance(x, Replaced):
            pieces.append(x)
            x = resolve(x.x, self.stored)
        base = self._store_into(x, region)
        nodes = list(base)
        is_known = len(pieces) > 1 and not any(isinstance(length, SymInt) for length in tensor.shape)
        is_replaced = np.zeros(tensor.shape, bool) if is_known else None
        for piece in reversed(pieces):
            steps = list(zip(piece.stripes, region.strides, strict=True))
            offset = region.offset + sum(stripe.start * step for stripe, step in steps)
            strides = [stripe.step * step for stripe, step in steps]
            shape = [stripe.length for stripe in piece.stripes]
            added = self._store_into(broadcast(piece.part, shape), region.part(shape, offset, strides))
            places = tuple([stripe.slice for stripe in piece.stripes]) if is_replaced is not None else ()
            # Pieces that do not overlap need not wait for each other, so that one kernel can store all of them.
            overlaps = piece is not pieces[-1] and (is_replaced is None or is_replaced[places].any())
            for node in added:
                node.after += nodes if overlaps else base
            if is_replaced is not None and piece is not tensor:  # the last piece may be large, and no piece follows it
                is_replaced[places] = True
            nodes += added
        return nodes

    def _join_into(self, tensor: Joined, region: Stored) -> list[ScheduleNode]:
        nodes, offset = [], region.offset
        for part in tensor.parts:
            nodes += self._store_into(part, region.part(part.shape, offset, region.strides))
            offset += part.shape[tensor.axis] * region.strides[tensor.axis]
        return nodes

    def _loop_store(self, tensor: Tensor, region: Stored) -> ScheduleNode:
        is_few = is_same(tensor.size, 1) or isinstance(tensor, Lengths)
        if is_few or (is_at_most(tensor.size, FEW) and self._is_small(tensor)):
            looped: list[int] = []
        else:
            looped = list(range(tensor.ndim))
            if isinstance(tensor, Scanned) and is_at_most(tensor.shape[tensor.axis], UNROLLED):
                looped = [axis for axis in looped if axis != tensor.axis]
            elif self._unrolls_folds(tensor):
                looped = long_axes(tensor.shape, looped)

        def value(lowering: Lowering, at: Sequence[Index]) -> LoweredValue | Number:
            # If the region is the tensor's own location, compute the tensor instead of reading it.
            is_here = self.stored.get(tensor) is region
            return lowering.compute(tensor, at) if is_here else lowering.evaluate(tensor, at)

        def targets(lowering: Lowering) -> list[Target]:
            return [
                ElementStore(value(lowering, at), region.buffer, region.at(at))
                for at in positions(tensor.shape, looped)
            ]

        domain = [tensor.shape[axis] for axis in looped]
        grid = grid_of(math.prod(domain), self._profile, accumulates=False, row_length=tensor.row_length)
        node = self._add_loop(domain, targets, region.buffer, grid, [tensor])
        node.root, node.region, node.element = tensor, region, value
        return node

    def _add_loop(
        self,
        domain: Sequence[int],
        targets: Callable[[Lowering], list[Target]],
        buffer: Buffer,
        grid: LoopGrid,
        operands: Sequence[Tensor],
    ) -> FusibleLoop:
        node = FusibleLoop(domain, grid, self.level(*operands), targets)
        node.writes = [buffer]
        self._add(node)
        return node

    def _is_small(self, tensor: Tensor) -> bool:
        """Return whether one kernel without loops can compute all elements of a tensor."""
        lowering = self.lowering(())
        lowering.most_steps = MOST_SCALARS
        try:
            for at in positions(tensor.shape, ()):
                lowering.compute(tensor, at)
        except TooLarge:
            return False
        return True

    def _unrolls_folds(self, tensor: Tensor) -> bool:
        """Return whether a kernel for a tensor would unroll folds that other elements in the same row could share."""
        lowering = self.lowering(tensor.shape)
        lowering.most_steps = MOST_SCALARS
        try:
            lowering.compute(tensor, [Index.of(axis) for axis in range(tensor.ndim)])
        except TooLarge:
            return False
        return any(not has_parts(x, self.stored) for x in lowering.unrolled)

    def _scatter_store(self, tensor: ScatterSet, region: Stored) -> ScheduleNode:
        x = tensor.x
        looped = long_axes(x.shape, range(x.ndim))
        # If several elements have the same position, the last one must win. Unrolled axes vary fastest, so the looped
        # axes must be the leading axes.
        if not looped or looped != list(range(len(looped))):
            looped = list(range(x.ndim))

        def targets(lowering: Lowering) -> list[Target]:
            found: list[Target] = []
            for at in positions(x.shape, looped):
                value = lowering.evaluate(x, at)
                index = offset_of(lowering, tensor.coordinates, at, tensor.shape, region.strides, region.offset)
                found.append(ScatterStore(value, region.buffer, lowering.index_value(index)))
            return found

        domain = [x.shape[axis] for axis in looped]
        grid = grid_of(math.prod(domain), self._profile, accumulates=False, is_sequential=True)
        return self._add_loop(domain, targets, region.buffer, grid, [tensor])

    def _lower(self, nodes: Sequence[FusibleLoop]) -> None:
        """Add the nodes that store all tensors needed by one loop, or by several loops over one point."""
        while needed := self._needed(nodes):
            for tensor in needed:
                self._need(tensor)

    def _needed(self, nodes: Sequence[FusibleLoop]) -> list[Tensor]:
        domain, roots = nodes[0].domain, {node.root for node in nodes}
        lowering = self.lowering(domain)
        try:
            for node in nodes:
                node.targets(lowering)
        except TooLarge:
            needed = [*lowering.missing, *(lowering.scalars() or lowering.divided(nodes[0].root))]
            if not needed:
                raise
            return needed
        needed = list(lowering.missing)
        if not needed and domain and not nodes[0].is_late and not nodes[0].after:
            least, load = _SHARED_ON_CPU if self._profile.runs_items_serially else _SHARED_ON_GPU
            least = self.context.options.least_shared_steps or least
            for tensor, elements in lowering.long_values(least, load).items():
                self._computed.setdefault(tensor, (nodes[0], elements))
        if not needed and not domain and len(lowering.steps) > self.context.options.loop_steps:
            return lowering.repeated(roots)
        if not needed and domain and len(lowering.steps) > MOST_SCALARS:
            return lowering.scalars() or lowering.long_folds(nodes[0].root)
        return needed

    def _lower_waiting(self) -> None:
        """Lower nodes until everything that they need is stored, and record the buffers that they read."""
        while self._waiting:
            while self._waiting:
                nodes = [heapq.heappop(self._waiting)[-1]]
                if not nodes[0].domain:
                    nodes += [entry[-1] for entry in self._waiting if not entry[-1].domain]
                    self._waiting = [entry for entry in self._waiting if entry[-1].domain]
                    heapq.heapify(self._waiting)
                self._lower(nodes)
            # Lowering a node may replace a tensor that another node reads, and the replacement may need a larger
            # program, so check all nodes again.
            points = self.lowering(())
            for node in self._nodes:
                if isinstance(node, FusibleLoop) and not self._note_reads(node, points):
                    self._wait(node)

    def _note_reads(self, node: FusibleLoop, points: Lowering) -> bool:
        """Record the buffers that a node reads; return False if the node is too large."""
        lowering = self.lowering(node.domain) if node.domain else points
        try:
            targets = node.targets(lowering)
        except TooLarge:
            return False
        matrices = (target.matrix for target in targets if isinstance(target, ColumnSum))
        needed = lowering.buffers_needed([x for target in targets for x in results_of(target)])
        node.reads = {*needed, *matrices}
        return True


def long_axes(shape: Sequence[int], axes: Iterable[int]) -> list[int]:
    """Return the axes to loop over when short axes are unrolled; return all given axes if no axis is long."""
    axes = [axis for axis in axes if not is_same(shape[axis], 1)]
    long = [axis for axis in axes if not is_at_most(shape[axis], UNROLLED)]
    if not long:
        return axes
    short = math.prod(shape[axis] for axis in axes if axis not in long)
    return long if short <= 2 * UNROLLED else axes


def offset_of(
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
