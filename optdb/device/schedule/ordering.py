"""Orders the nodes of a schedule; loops over the same domain that do not wait for each other become one kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from optdb.codegen.loops.body import Buffer, TooLarge
from optdb.codegen.loops.kernel import LoopKernel
from optdb.codegen.loops.targets import ElementStore
from optdb.codegen.scalars.costs import SLOW_ON_CPU, SLOW_ON_GPU
from optdb.device.schedule.lowering import ElementValues, Lowering
from optdb.device.schedule.points import PointLoops
from optdb.device.schedule.schedule_nodes import (
    MOST_BUFFERS,
    FusedKernel,
    FusibleLoop,
    Needs,
    ScheduleNode,
    Step,
    reaches,
)
from optdb.device.tensors import Mapped, Replacements, Stored
from optdb.runtime.device_profiles import DeviceProfile
from optdb.runtime.sizes import example_value


def ordered_steps(
    nodes: Sequence[ScheduleNode],
    lowering_of: Callable[[Sequence[int]], Lowering],
    points: PointLoops,
    profile: DeviceProfile,
) -> list[Step | int]:
    """Order nodes, and fuse loops; return the steps, with a number for each kernel that `points` will build.

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
    """Return the loops to fuse next: the class with the fewest blocked loops or, in a tie, with the fewest points."""
    # Keys are compared by identity, since comparing symbolic lengths would restrict them.
    keys: dict[Any, Any] = {}
    for node in pending:
        if isinstance(node, FusibleLoop):
            key = node.domain, node.grid
            keys.setdefault(key, key)
    classes: dict[Any, list[FusibleLoop]] = {}
    for node in ready:
        if isinstance(node, FusibleLoop):
            classes.setdefault(keys[node.domain, node.grid], []).append(node)

    def pending_needs(node: ScheduleNode) -> list[ScheduleNode]:
        return [need for need in needs[node] if need in pending]

    def blocked(key: Any) -> int:
        """Return how many loops of a class wait only for loops of other classes."""
        late: set[ScheduleNode] = set(classes[key])
        count = 0
        for node in pending:  # nodes may be listed before the nodes that they need
            if node in late or not isinstance(node, FusibleLoop) or keys[node.domain, node.grid] is not key:
                continue
            count += not reaches(node, set(classes[key]), pending_needs)
        return count

    if all(node.is_late for node in ready):
        # A loop over few points might overwrite elements that a loop over many points still reads.
        return classes[max(classes, key=lambda key: example_value(math.prod(key[0])))]
    return classes[min(classes, key=lambda key: (blocked(key), example_value(math.prod(key[0]))))]


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
    return [FusedKernel(LoopKernel(lowering, targets, profile), first.grid, nodes)]


class SlowValues:
    """Lets kernels load the results of slow functions that an earlier kernel has computed.

    Two loops over the same data remain separate kernels if one of them needs a sum over all points of the other, or if
    one of them unrolls an axis. Without this pass, each kernel would compute the values that both kernels use.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        lowering_of: Callable[[Sequence[int]], Lowering],
        stored: Replacements,
        profile: DeviceProfile,
    ) -> None:
        self._steps = list(steps)
        self._lowering_of = lowering_of
        self._stored = stored
        self._profile = profile
        self._slow = SLOW_ON_CPU if profile.runs_items_serially else SLOW_ON_GPU
        #: For each tensor, the number of the first kernel that computes it, and its values in this kernel.
        self._first: dict[Mapped, tuple[int, ElementValues]] = {}
        #: Maps a tensor to the location at which the first kernel stores it.
        self._regions: dict[Mapped, Stored] = {}

    def share(self) -> list[Step]:
        """Return the steps; kernels that compute values for later kernels also store these values."""
        looping = {n: step for n, step in enumerate(self._steps) if isinstance(step, FusedKernel) and step.loops}
        for number, step in looping.items() if len(looping) > 1 else ():
            self._share(number, step)
        return self._steps

    def _share(self, number: int, step: FusedKernel) -> None:
        values = self._values(step)
        known: dict[Mapped, Stored] = {}
        for x in values:
            if x in self._regions or (x in self._first and self._producer(x).n_buffers + len(known) < MOST_BUFFERS):
                known[x] = self._regions.get(x) or Stored(Buffer(x.size, x.dtype), x.shape)
        loading = self._loading(step, known) if known else step
        if known and loading.n_buffers <= MOST_BUFFERS:
            for x, region in known.items():
                if region.buffer in loading.kernel.body.buffers_read and x not in self._regions:
                    self._store(x, region)
            self._steps[number], values = loading, self._values(loading)
        for x, elements in values.items():
            self._first.setdefault(x, (number, elements))

    def _values(self, step: FusedKernel) -> dict[Mapped, ElementValues]:
        body = step.kernel.body
        assert isinstance(body, Lowering)  # loops over one point share another kind of body
        return body.values_of(lambda tensor, _: tensor.uses_any(self._slow))

    def _producer(self, tensor: Mapped) -> FusedKernel:
        step = self._steps[self._first[tensor][0]]
        assert isinstance(step, FusedKernel)
        return step

    def _store(self, tensor: Mapped, region: Stored) -> None:
        """Let the first kernel that computes a tensor store the tensor."""
        producer, (number, elements) = self._producer(tensor), self._first[tensor]
        stores = [ElementStore(value, region.buffer, region.at(at)) for at, value in elements.items()]
        kernel = LoopKernel(producer.kernel.body, [*producer.kernel.targets, *stores], self._profile)
        self._steps[number] = FusedKernel(kernel, producer.grid, producer.loops)
        self._regions[tensor] = region

    def _loading(self, step: FusedKernel, known: dict[Mapped, Stored]) -> FusedKernel:
        """Return the kernel that a step becomes if the `known` tensors are stored."""
        lowering = self._lowering_of(step.loops[0].domain)
        self._stored.update(known.items())
        try:
            targets = [target for loop in step.loops for target in loop.targets(lowering)]
        finally:
            for x in known:
                del self._stored[x]
        return FusedKernel(LoopKernel(lowering, targets, self._profile), step.grid, step.loops)
