"""Orders the nodes of a schedule; loops over the same domain that do not wait for each other become one kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from optdb.codegen.loops.body import Buffer, TooLarge
from optdb.codegen.loops.kernel import LoopKernel
from optdb.device.schedule.lowering import Lowering
from optdb.device.schedule.points import PointLoops
from optdb.device.schedule.schedule_nodes import MOST_BUFFERS, FusedKernel, FusibleLoop, Needs, ScheduleNode, Step
from optdb.runtime.device_profiles import DeviceProfile


def ordered_steps(
    nodes: Sequence[ScheduleNode],
    lowering_of: Callable[[Sequence[int]], Lowering],
    points: PointLoops,
    profile: DeviceProfile,
) -> list[Step | int]:
    """Order nodes, and fuse loops; return a number for each kernel of `points`.

    `lowering_of` writes the body of a kernel over a domain.
    """
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
        if loops and not loops[0].domain:
            steps += points.add(loops)
        else:
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
    return [FusedKernel(LoopKernel(lowering, targets, profile), first.grid)]
