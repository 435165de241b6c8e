"""Merges small copies of next values into one launch (``persistent_program``).

A training step ends with one copy per parameter, most of which run in less time than the driver needs to enqueue them.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from optdb.device.launches.accesses import ranges_of_copy
from optdb.device.launches.merging import Course, Pause, in_thread
from optdb.device.launches.persistent_program import PersistentProgram
from optdb.device.launches.residencies import WORK_GROUP_ITEMS, Residency
from optdb.runtime.background import unhurried
from optdb.runtime.commands import Command, CommandList, EnqueueCopy
from optdb.runtime.context import Context
from optdb.runtime.grid_barriers import GROUP_BARRIER

#: The maximum size in bytes of a merged copy; larger copies use the driver's command.
_MAX_NBYTES = 1 << 18
_MIN_COPIES = 4
#: The number of groups for each compute unit; each group copies several tiles if there are more.
_GROUPS_PER_UNIT = 4


def copies_course(context: Context, commands: CommandList, setting: str) -> Course:
    """Merge the small copies among bound commands.

    The setting is the flag ``optdb.merge_launches``: 'auto', 'always' or 'never'. With 'auto', no call waits.
    """
    due = calls_until_gathering(context, commands, setting)
    if due == math.inf:
        return None
    yield Pause(calls=int(due))
    if setting == "always":
        return [gathered(context, commands)]
    merged = yield from in_thread(functools.partial(gathered, context, commands))
    return None if merged is None else [merged]


def calls_until_gathering(context: Context, commands: Sequence[Command], setting: str) -> float:
    """Return the number of calls after which merging copies pays off, or infinity."""
    quirks = context.profile.quirks
    if setting == "never" or not (quirks.keeps_addresses and quirks.copy_s):
        return math.inf
    saved = sum(len(run) - 1 for run, merges in _runs(commands) if merges)
    if not saved:
        return math.inf
    return 0 if setting == "always" else math.ceil(quirks.kernel_compile_s / (saved * quirks.copy_s))


def build_early(context: Context) -> None:
    """Build the program for merged copies in advance on devices that need it, so that no call waits."""
    if context.profile.quirks.persistent_launches and context.profile.quirks.copy_s:
        _program(context, [])


def gathered(context: Context, commands: Sequence[Command]) -> CommandList:
    """Replace runs of consecutive small copies by a launch for each phase of independent copies."""
    runs = list(_runs(commands))
    program = _program(context, [copy for run, merges in runs if merges for copy in run])
    accesses = functools.partial(ranges_of_copy, roots={})
    return CommandList(
        command for run, merges in runs for command in (program.merged(run, accesses) if merges else run)
    )


def _runs(commands: Iterable[Command]) -> Iterator[tuple[list[Any], bool]]:
    """Yield runs of commands in order, each with a flag: whether it has enough small copies for one launch."""
    for is_copy, group in itertools.groupby(unhurried(commands), _is_small_copy):
        run: list[Any] = list(group)
        yield run, is_copy and len(run) >= _MIN_COPIES


def _is_small_copy(command: Command) -> bool:
    return isinstance(command, EnqueueCopy) and not command.is_rebindable and command.nbytes <= _MAX_NBYTES


def _program(context: Context, copies: Sequence[EnqueueCopy]) -> PersistentProgram:
    profile = context.profile
    items = min(WORK_GROUP_ITEMS[profile.device_kind], profile.max_local_size)
    groups = _GROUPS_PER_UNIT * profile.compute_units
    program = PersistentProgram(Residency(context, GROUP_BARRIER, groups, items, is_split=True), copies)
    program.build(in_child=False)
    return program
