"""The nodes of a schedule: separate operations, and loops; loops over the same domain are fused into one kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Any

from optdb.codegen.loops.body import Buffer, Index, LoweredValue, RowProduct
from optdb.codegen.loops.grids import LoopGrid
from optdb.codegen.loops.kernel import LoopKernel
from optdb.codegen.loops.repeated import MovingRow
from optdb.codegen.loops.targets import ColumnSum, ElementStore, Target, buffer_of
from optdb.codegen.operation import Operation
from optdb.codegen.scalars.program import Number
from optdb.device.iterations import Iteration
from optdb.device.schedule.lowering import Lowering
from optdb.device.tensors import Mapped, Stored, Tensor
from optdb.runtime.context import Context
from optdb.runtime.sizes import example_value

#: Maximum number of buffers that a fused kernel uses: devices limit the size of kernel arguments.
MOST_BUFFERS = 48


class ScheduleNode:
    """A computation that writes buffers, and the nodes that must precede it."""

    def __init__(self) -> None:
        #: The buffers that the node reads, and nodes that must precede it for other reasons.
        self.reads: set[Buffer] = set()
        self.after: list[ScheduleNode] = []
        self.writes: list[Buffer] = []
        #: Whether the node must run after all nodes whose `is_late` is False.
        self.is_late = False


def reaches(
    node: ScheduleNode, targets: Set[ScheduleNode], needs: Callable[[ScheduleNode], Iterable[ScheduleNode]]
) -> bool:
    """Return whether a node needs one of the targets, directly or indirectly; `needs` returns what a node needs."""
    stack, seen = [node], {node}
    while stack:
        for need in needs(stack.pop()):
            if need in targets:
                return True
            if need not in seen:
                seen.add(need)
                stack.append(need)
    return False


#: Maps a node to the nodes that must precede it.
Needs = dict[ScheduleNode, set[ScheduleNode]]


class ScheduledOperation(ScheduleNode):
    """A separate operation on stored tensors."""

    def __init__(
        self,
        make: Callable[[Context], Operation],
        inputs: Sequence[Any],
        outputs: Sequence[Stored],
        work: int | None = None,
    ) -> None:
        super().__init__()
        self.make = make
        self.inputs = list(inputs)
        self.outputs = list(outputs)
        #: The approximate number of scalar operations.
        self.work = self._estimated_work() if work is None else work
        self.reads = {x.buffer for x in inputs if isinstance(x, Stored)}
        self.writes = [x.buffer for x in outputs]

    def overwritable(self, written: Buffer) -> set[Buffer]:
        """Return the buffers that can share memory with a written buffer."""
        return set()

    def _estimated_work(self) -> int:
        arrays = [x for x in (*self.inputs, *self.outputs) if isinstance(x, Stored)]
        longest = max((example_value(length) for x in arrays if len(x.shape) > 1 for length in x.shape), default=1)
        if len(arrays) == 3 and longest > 1:
            # Matrices of shapes (m, k), (k, n) and (m, n), in a product or a triangular solve.
            return math.isqrt(math.prod(example_value(x.size) for x in arrays))
        return int(longest * sum(example_value(x.size) for x in arrays))


class FusibleLoop(ScheduleNode):
    """A loop over a domain, which can be fused with other loops over the same domain."""

    def __init__(
        self, domain: Sequence[int], grid: LoopGrid, level: int, targets: Callable[[Lowering], list[Target]]
    ) -> None:
        super().__init__()
        #: The tensor that the node stores, if any, where it stores the tensor, and what computes an element.
        self.root: Tensor | None = None
        self.region: Stored | None = None
        self.element: Callable[[Lowering, Sequence[Index]], LoweredValue | Number] | None = None
        self.domain = tuple(domain)
        self.grid = grid
        #: The level of what the node computes: it never depends on nodes of higher levels.
        self.level = level
        #: The tensors that the node also stores, for nodes of higher levels, and the elements that it computes of each.
        self.shared: dict[Mapped, tuple[Stored, list[tuple[Index, ...]]]] = {}
        self._targets = targets

    def share(self, tensor: Mapped, elements: Iterable[tuple[Index, ...]]) -> Stored:
        """Also store a tensor whose elements the node computes; return where."""
        if tensor not in self.shared:
            self.shared[tensor] = Stored(Buffer(tensor.size, tensor.dtype), tensor.shape), list(elements)
            self.writes.append(self.shared[tensor][0].buffer)
        return self.shared[tensor][0]

    def targets(self, lowering: Lowering) -> list[Target]:
        """Lower the node, and return what it writes."""
        lowering.level = self.level
        found = self._targets(lowering)
        for tensor, (region, elements) in self.shared.items():
            found += [ElementStore(lowering.evaluate(tensor, at), region.buffer, region.at(at)) for at in elements]
        return found


@dataclass(eq=False)
class FusedKernel:
    """A fused kernel with its launch parameters."""

    kernel: LoopKernel
    grid: LoopGrid
    #: The loops that the kernel runs; empty for loops over one point.
    loops: Sequence[FusibleLoop] = ()

    @property
    def writes(self) -> list[Buffer]:
        return list(dict.fromkeys(map(buffer_of, self.kernel.targets)))

    @property
    def n_buffers(self) -> int:
        return len({*self.kernel.body.buffers_read, *self.writes})


class ScheduledIteration(ScheduleNode):
    """A scheduled loop: the steps of its body, which are compiled once, and the rows that advance from step to step."""

    def __init__(self, iteration: Iteration, rows: Sequence[MovingRow], body: Sequence[Step]) -> None:
        super().__init__()
        self.iteration = iteration
        self.rows = list(rows)
        self.body = list(body)
        #: The buffers that only the body uses.
        self.own_buffers = {row.buffer for row in rows}
        for step in body:
            self.own_buffers.update(step.writes)
            if isinstance(step, ScheduledIteration):
                self.own_buffers |= step.own_buffers


Step = FusedKernel | ScheduledOperation | ScheduledIteration


def work_of(step: Step) -> int:
    """Return the approximate number of scalar operations in a step."""
    if isinstance(step, ScheduledIteration):
        return step.iteration.steps * sum(map(work_of, step.body))
    if isinstance(step, FusedKernel):
        kernel = step.kernel
        rows = [x.length for x in (*kernel.body.sources, *kernel.targets) if isinstance(x, RowProduct | ColumnSum)]
        return kernel.points * (len(kernel.program.steps) + 1 + sum(rows))
    return step.work
