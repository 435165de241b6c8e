"""The units of work of a schedule, in order, with loops over one domain fused into one kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from optdb.codegen.loops.body import Buffer, TooLarge
from optdb.codegen.loops.kernel import LoopGrid, LoopKernel
from optdb.codegen.loops.targets import Target
from optdb.codegen.operation import Operation
from optdb.device.schedule.lowering import Lowering
from optdb.device.schedule.stored import Stored
from optdb.device.tensors import Tensor
from optdb.runtime.context import Context
from optdb.runtime.device_profiles import DeviceProfile

#: Maximum number of buffers of a fused kernel: devices limit the size of a kernel's arguments.
MOST_BUFFERS = 48


class WorkUnit:
    """Work that writes buffers."""

    def __init__(self) -> None:
        #: The buffers that the unit reads, and other units that have to precede it.
        self.reads: set[Buffer] = set()
        self.after: list[WorkUnit] = []
        self.writes: list[Buffer] = []
        #: Whether the unit comes after all units that are not late.
        self.is_late = False


#: Maps a unit to the units that have to precede it.
Needs = dict[WorkUnit, set[WorkUnit]]


class OperationUnit(WorkUnit):
    """A separate operation on stored tensors."""

    def __init__(self, make: Callable[[Context], Operation], inputs: Sequence[Any], outputs: Sequence[Stored]) -> None:
        super().__init__()
        self.make = make
        self.inputs = list(inputs)
        self.outputs = list(outputs)
        self.reads = {x.buffer for x in inputs if isinstance(x, Stored)}
        self.writes = [x.buffer for x in outputs]


class LoopUnit(WorkUnit):
    """Work in a fused loop: its targets, for a lowering of its domain."""

    def __init__(self, domain: Sequence[int], grid: LoopGrid, targets: Callable[[Lowering], list[Target]]) -> None:
        super().__init__()
        #: The tensor that the unit stores, if any.
        self.root: Tensor | None = None
        self.domain = tuple(domain)
        self.grid = grid
        self.targets = targets


@dataclass(eq=False)
class LoopStep:
    """A fused kernel, and how it is launched."""

    kernel: LoopKernel
    grid: LoopGrid
    units: Sequence[LoopUnit]


def ordered_steps(
    units: Sequence[WorkUnit], lowering_of: Callable[[Sequence[int]], Lowering], profile: DeviceProfile
) -> list[Any]:
    """Order units, and fuse loops.

    Parameters
    ----------
    units : sequence of WorkUnit
        The units, in any order.
    lowering_of : callable
        Returns the lowering that writes the body of a kernel over a domain.
    profile : DeviceProfile
        The profile of the device.
    """
    writers: dict[Buffer, list[WorkUnit]] = {}
    for unit in units:
        for buffer in unit.writes:
            writers.setdefault(buffer, []).append(unit)
    needs = {
        unit: {w for buffer in unit.reads for w in writers.get(buffer, ()) if w is not unit} | set(unit.after)
        for unit in units
    }
    steps: list[Any] = []
    pending = dict.fromkeys(units)
    while pending:
        ready = [unit for unit in pending if not any(need in pending for need in needs[unit])]
        if not ready:
            raise AssertionError("units of a schedule wait for each other")
        ready = [unit for unit in ready if not unit.is_late] or ready
        operations = [unit for unit in ready if not isinstance(unit, LoopUnit)]
        loops = [] if operations else _next_loops(ready, pending, needs)
        for done in (*operations, *loops):
            del pending[done]
        steps += operations or _fused(loops, lowering_of, profile)
    return steps


def _next_loops(ready: list[WorkUnit], pending: dict[WorkUnit, None], needs: Needs) -> list[LoopUnit]:
    """Return the loops of the next step: the class with the fewest blocked loops; if several have, fewest points."""
    classes: dict[Any, list[LoopUnit]] = {}
    for unit in ready:
        if isinstance(unit, LoopUnit):
            classes.setdefault((unit.domain, unit.grid), []).append(unit)

    def blocked(key: Any) -> int:
        """Return the number of loops of a class that wait only for other classes."""
        late: set[WorkUnit] = set(classes[key])
        count = 0
        for unit in pending:  # a unit may come before the units that it needs
            if unit in late or not isinstance(unit, LoopUnit) or (unit.domain, unit.grid) != key:
                continue
            count += not _reaches(unit, set(classes[key]), pending, needs)
        return count

    if all(unit.is_late for unit in ready):
        # A loop over many points may read elements where a loop over few points would overwrite them.
        return classes[max(classes, key=lambda key: math.prod(key[0]))]
    return classes[min(classes, key=lambda key: (blocked(key), math.prod(key[0])))]


def _reaches(unit: WorkUnit, targets: set[WorkUnit], pending: dict[WorkUnit, None], needs: Needs) -> bool:
    """Tell whether a unit depends on one of the targets, directly or indirectly."""
    stack, seen = [unit], {unit}
    while stack:
        for need in needs[stack.pop()]:
            if need in targets:
                return True
            if need in pending and need not in seen:
                seen.add(need)
                stack.append(need)
    return False


def _fused(
    units: Sequence[LoopUnit], lowering_of: Callable[[Sequence[int]], Lowering], profile: DeviceProfile
) -> list[LoopStep]:
    """Return one kernel for units over one domain, or several if one would be too large."""
    first = units[0]
    lowering = lowering_of(first.domain)
    try:
        targets = [target for unit in units for target in unit.targets(lowering)]
        if len(units) > 1 and len({*lowering.buffers_read, *(b for u in units for b in u.writes)}) > MOST_BUFFERS:
            raise TooLarge
    except TooLarge:
        if len(units) == 1:
            raise
        half = len(units) // 2
        return [*_fused(units[:half], lowering_of, profile), *_fused(units[half:], lowering_of, profile)]
    return [LoopStep(LoopKernel(lowering, targets, profile), first.grid, list(units))]
