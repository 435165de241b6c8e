"""How a context runs persistent launches (`Residency`), and which commands they can execute.

If groups can synchronize at a grid barrier, a launch has as many groups as the device runs concurrently. Otherwise, a
single group does all the work, which is useful only for tests.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from optdb.codegen.gemm.blocks import has_large_tiles
from optdb.device.launches.entries import MAX_PATTERN_NBYTES, PIECE_NBYTES
from optdb.device.launches.merging import body_of
from optdb.runtime.commands import EnqueueCopy, EnqueueFill, EnqueueKernel
from optdb.runtime.context import Context
from optdb.runtime.grid_barriers import GROUP_BARRIER, GridBarrier, is_tried, usable_barrier
from optdb.runtime.library import cl

#: Work-group size for each device kind.
_ITEMS = {"cpu": 1, "gpu": 256}
#: The maximum number of tiles per group; a command with more tiles keeps its own launch.
MAX_ROUNDS = 4
#: The maximum number of tiles per group for products and for reductions. The work items of products and reductions
#: synchronize, so these kernels are faster if several groups share a compute unit, which they do only in a separate
#: launch. On an H200, the sum of 3,200 rows of 10,000 columns takes 75 us in a separate launch, and 130 us in a
#: persistent launch.
_MAX_ROUNDS_OF_PRODUCTS, _MAX_ROUNDS_OF_REDUCTIONS = 2, 1
_PRODUCT = "matmul_"
_MAX_TILES_ALONE = 1 << 12
#: The number of groups per launch if launches are split at grid barriers.
_SPLIT_GROUPS = 3
MIN_COMMANDS = 2
#: The classes of commands that a persistent kernel can execute.
MERGEABLE_KINDS = (EnqueueKernel, EnqueueCopy, EnqueueFill)
#: The number of items in a team is a multiple of this number, a GPU's warp size.
_TEAM_ITEMS = 32


@dataclass(frozen=True)
class Residency:
    """How a context runs persistent launches."""

    context: Context
    barrier: GridBarrier
    groups: int  #: Number of groups, which are all resident at once.
    items: int  #: Work-group size.
    #: Whether each phase is a separate launch, which runs its commands in any order.
    is_split: bool = False
    min_commands: int = MIN_COMMANDS  #: Minimum number of commands to merge.
    max_rounds: int = MAX_ROUNDS  #: Maximum number of tiles per group for one command.

    def tiles_of(self, command: Any) -> int:
        if isinstance(command, EnqueueKernel):
            return -(-math.prod(command.global_size) // self.items)
        nbytes: int = command.nbytes
        return -(-nbytes // PIECE_NBYTES)

    def max_tiles(self, command: Any) -> int:
        """Return the maximum number of tiles that a merged command may have."""
        if not self.barrier.meets:
            return _MAX_TILES_ALONE
        most = self.max_rounds * self.groups
        if not isinstance(command, EnqueueKernel):
            return most
        if has_large_tiles(command.name):  # in a merged kernel, such products take 2.6 times as long
            return 0
        if command.name.startswith(_PRODUCT):
            return min(most, _MAX_ROUNDS_OF_PRODUCTS * self.groups)
        return min(most, _MAX_ROUNDS_OF_REDUCTIONS * self.groups) if synchronizes(command) else most


def group_size(context: Context) -> int:
    """Return the work-group size of merged kernels whose groups share the work."""
    return min(_ITEMS[context.profile.device_kind], context.profile.max_local_size)


def residency(context: Context, setting: str) -> Residency | None:
    """Return how a context runs persistent launches; None if the flag's value `setting` or the device prevents them."""
    profile = context.profile
    quirks = profile.quirks
    if setting == "never" or not quirks.keeps_addresses or (setting == "auto" and not quirks.persistent_launches):
        return None
    items = group_size(context)
    if setting == "split":
        return Residency(context, GROUP_BARRIER, _SPLIT_GROUPS, items, is_split=True)
    if profile.is_processor or quirks.is_memory_checker:
        return Residency(context, GROUP_BARRIER, 1, items)
    barrier = usable_barrier(context)
    if barrier is None:
        return None
    return Residency(context, barrier, context.device.max_compute_units, items)


def is_decided(context: Context, setting: str) -> bool:
    """Return whether `residency` returns without waiting for a trial; if not, start the trial in the background."""
    profile = context.profile
    if setting != "auto" or not profile.quirks.persistent_launches or profile.is_processor:
        return True
    return is_tried(context)


def can_execute(command: Any, resident: Residency) -> bool:
    """Return whether a persistent kernel can run a bound command."""
    if not isinstance(command, MERGEABLE_KINDS):
        return False
    if command.is_rebindable or resident.tiles_of(command) > resident.max_tiles(command):
        return False
    if isinstance(command, EnqueueFill):
        return bool(command.pattern.nbytes <= MAX_PATTERN_NBYTES)
    return isinstance(command, EnqueueCopy) or _runs_as_body(command, resident)


def _runs_as_body(command: EnqueueKernel, resident: Residency) -> bool:
    body = body_of(command)
    if body is None or command.kept_alive or len(body.params) != len(command.args):
        return False
    if any(isinstance(arg, cl.LocalMemory) for arg in command.args):
        return False
    group = math.prod(command.local_size or ())
    if not body.synchronizes or group == resident.items:
        return True
    has_teams = resident.barrier.has_teams and body.may_be_team
    return has_teams and group % _TEAM_ITEMS == 0 and resident.items % group == 0


def synchronizes(command: Any) -> bool:
    """Return whether a command's work items synchronize, as in products and reductions."""
    body = body_of(command) if isinstance(command, EnqueueKernel) else None
    return body is not None and body.synchronizes
