"""The distribution of a fused loop's points over work items."""

from __future__ import annotations

from dataclasses import dataclass

from optdb.codegen.elementwise import WIDTH
from optdb.runtime.device_profiles import DeviceProfile
from optdb.runtime.sizes import example_value, largest, power_of_two, specialize

#: Work-group size on devices that run the items of a group in parallel.
GROUP = 256
#: Number of work items per CPU compute unit, and minimum number of points per item.
ITEMS_PER_UNIT = 1
LEAST_POINTS = 2048
#: The number of points per GPU work item up to which results are accumulated in no more groups than compute units.
#: Persistent launches execute such kernels.
_MOST_PER_ITEM = 8


@dataclass(frozen=True)
class LoopGrid:
    """A distribution of a domain's points over work items."""

    #: The number of parts: one per work item on a CPU, or one per work group on other devices.
    parts: int
    chunk: int
    items: int
    group: int


def grid_of(
    points: int, profile: DeviceProfile, accumulates: bool, is_sequential: bool = False, row_length: int = 0
) -> LoopGrid:
    """Return the distribution of points on a device; with `is_sequential`, one item computes all points in order.

    `row_length` is the number of matrix elements that each point multiplies. The number of parts that accumulate
    results is the device's maximum or a power of two, so that kernels that read the parts have few variants.
    """
    points = largest(points, 1)
    # The number of parts suits the example's device; the result is right on all devices.
    units = example_value(profile.compute_units)
    if is_sequential:
        return LoopGrid(1, points, 1, 1)
    if profile.runs_items_serially:
        parts = power_of_two(-(-points * (1 + row_length) // LEAST_POINTS), units * ITEMS_PER_UNIT)
        chunk = -(-points // (parts * WIDTH)) * WIDTH
        parts = specialize(-(-points // chunk))
        return LoopGrid(parts, chunk, parts, 1)
    group = min(GROUP, profile.max_local_size)
    groups = -(-points // group)
    if accumulates:
        groups = power_of_two(-(-points // (group * 4)), units * 8)
        resident = 1 << (units.bit_length() - 1)
        if groups > resident and points <= resident * group * _MOST_PER_ITEM:
            groups = resident
    return LoopGrid(groups, 1, groups * group, group)
