"""The nodes of a schedule: separate operations, and loops; loops over the same domain are fused into one kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from optdb.codegen.loops.body import Buffer, RowProduct, TooLarge
from optdb.codegen.loops.kernel import LoopGrid, LoopKernel
from optdb.codegen.loops.repeated import MovingRow
from optdb.codegen.loops.targets import ColumnSum, Target
from optdb.codegen.operation import Operation
from optdb.device.iterations import Iteration
from optdb.device.schedule.lowering import Lowering
from optdb.device.tensors import Stored, Tensor
from optdb.runtime.context import Context
from optdb.runtime.device_profiles import DeviceProfile

#: Maximum number of buffers that a fused kernel uses: devices limit the size of kernel arguments.
MOST_BUFFERS = 48


class ScheduleNode:
    """A computation that writes buffers, and the nodes that must precede it."""

    def __init__(self) -> None:
        #: The buffers that the node reads, and nodes that must precede it for other reasons.
        self.reads: set[Buffer] = set()
        self.after: list[ScheduleNode] = []
        self.writes: list[Buffer] = []
        #: Whether the node must run after all nodes for which this is False.
        self.is_late = False


#: Maps a node to the nodes that must precede it.
Needs = dict[ScheduleNode, set[ScheduleNode]]


class ScheduledOperation(ScheduleNode):
    """A separate operation on stored tensors."""

    def __init__(self, make: Callable[[Context], Operation], inputs: Sequence[Any], outputs: Sequence[Stored]) -> None:
        super().__init__()
        self.make = make
        self.inputs = list(inputs)
        self.outputs = list(outputs)
        self.reads = {x.buffer for x in inputs if isinstance(x, Stored)}
        self.writes = [x.buffer for x in outputs]


class FusibleLoop(ScheduleNode):
    """A loop over a domain, which can be fused with other loops over the same domain."""

    def __init__(self, domain: Sequence[int], grid: LoopGrid, targets: Callable[[Lowering], list[Target]]) -> None:
        super().__init__()
        #: The tensor that the node stores, if any.
        self.root: Tensor | None = None
        self.domain = tuple(domain)
        self.grid = grid
        self.targets = targets


@dataclass(eq=False)
class FusedKernel:
    """A fused kernel with its launch parameters."""

    kernel: LoopKernel
    grid: LoopGrid
    loops: Sequence[FusibleLoop]

    @property
    def writes(self) -> list[Buffer]:
        return list(dict.fromkeys(buffer for loop in self.loops for buffer in loop.writes))


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
    """Return the approximate number of scalar operations in a step; operations on matrices count as matrix products."""
    if isinstance(step, ScheduledIteration):
        return step.iteration.steps * sum(map(work_of, step.body))
    if isinstance(step, FusedKernel):
        kernel = step.kernel
        rows = [x.length for x in (*kernel.body.sources, *kernel.targets) if isinstance(x, RowProduct | ColumnSum)]
        return kernel.points * (len(kernel.program.steps) + 1 + sum(rows))
    arrays = [x for x in (*step.inputs, *step.outputs) if isinstance(x, Stored)]
    longest = max((length for x in arrays if len(x.shape) > 1 for length in x.shape), default=1)
    return longest * sum(x.size for x in arrays)


def ordered_steps(
    nodes: Sequence[ScheduleNode], lowering_of: Callable[[Sequence[int]], Lowering], profile: DeviceProfile
) -> list[Any]:
    """Order nodes, and fuse loops; `lowering_of` writes the body of a kernel over a domain."""
    writers: dict[Buffer, list[ScheduleNode]] = {}
    for node in nodes:
        for buffer in node.writes:
            writers.setdefault(buffer, []).append(node)
    needs = {
        node: {w for buffer in node.reads for w in writers.get(buffer, ()) if w is not node} | set(node.after)
        for node in nodes
    }
    steps: list[Any] = []
    pending = dict.fromkeys(nodes)
    while pending:
        ready = [node for node in pending if not any(need in pending for need in needs[node])]
        if not ready:
            raise AssertionError("units of a schedule wait for each other")
        ready = [node for node in ready if not node.is_late] or ready
        operations = [node for node in ready if not isinstance(node, FusibleLoop)]
        loops = [] if operations else _next_loops(ready, pending, needs)
        for done in (*operations, *loops):
            del pending[done]
        steps += operations or _fused(loops, lowering_of, profile)
    return steps


def _next_loops(ready: list[ScheduleNode], pending: dict[ScheduleNode, None], needs: Needs) -> list[FusibleLoop]:
    """Return the class of loops to fuse next: the one with the fewest blocked loops or, if tied, the fewest points."""
    classes: dict[Any, list[FusibleLoop]] = {}
    for node in ready:
        if isinstance(node, FusibleLoop):
            classes.setdefault((node.domain, node.grid), []).append(node)

    def blocked(key: Any) -> int:
        """Return how many loops of a class wait only for loops of other classes."""
        late: set[ScheduleNode] = set(classes[key])
        count = 0
        for node in pending:  # nodes may be listed before the nodes that they need
            if node in late or not isinstance(node, FusibleLoop) or (node.domain, node.grid) != key:
                continue
            count += not _reaches(node, set(classes[key]), pending, needs)
        return count

    if all(node.is_late for node in ready):
        # A loop over few points might overwrite elements that a loop over many points still reads.
        return classes[max(classes, key=lambda key: math.prod(key[0]))]
    return classes[min(classes, key=lambda key: (blocked(key), math.prod(key[0])))]


def _reaches(node: ScheduleNode, targets: set[ScheduleNode], pending: dict[ScheduleNode, None], needs: Needs) -> bool:
    stack, seen = [node], {node}
    while stack:
        for need in needs[stack.pop()]:
            if need in targets:
                return True
            if need in pending and need not in seen:
                seen.add(need)
                stack.append(need)
    return False


def _fused(
    nodes: Sequence[FusibleLoop], lowering_of: Callable[[Sequence[int]], Lowering], profile: DeviceProfile
) -> list[FusedKernel]:
    """Return one kernel for loops over the same domain, or several if one would be too large."""
    first = nodes[0]
    lowering = lowering_of(first.domain)
    try:
        targets = [target for node in nodes for target in node.targets(lowering)]
        if len(nodes) > 1 and len({*lowering.buffers_read, *(b for node in nodes for b in node.writes)}) > MOST_BUFFERS:
            raise TooLarge
    except TooLarge:
        if len(nodes) == 1:
            raise
        half = len(nodes) // 2
        return [*_fused(nodes[:half], lowering_of, profile), *_fused(nodes[half:], lowering_of, profile)]
    return [FusedKernel(LoopKernel(lowering, targets, profile), first.grid, list(nodes))]
