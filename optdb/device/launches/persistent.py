"""Replaces a plan's commands by persistent launches, in which resident groups execute chains of small commands.

Calls do not wait for merging unless the user forces it. The build starts when the launch time that merging would have
saved reaches a share of the compile time, or at once if an earlier process has built the program. Then several
configurations are timed (``runtime.timing``), and the fastest one is kept. Commands may move past independent, unmerged
commands.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from optdb.device.launches.accesses import Accesses
from optdb.device.launches.building import logged
from optdb.device.launches.merging import Course, Pause, Segments, in_thread
from optdb.device.launches.persistent_program import PersistentProgram, kernels_of
from optdb.device.launches.residencies import MAX_ROUNDS, MERGEABLE_KINDS, MIN_COMMANDS, Residency, can_execute
from optdb.runtime.background import unhurried
from optdb.runtime.build import BuildError
from optdb.runtime.commands import CommandList
from optdb.runtime.dependencies import stages_of
from optdb.runtime.timing import StepTrial

__all__ = ["MAX_ROUNDS", "persistent_course"]

_logger = logging.getLogger(__name__)

#: The maximum number of tiles per group if only commands that leave compute units idle are merged.
_MAX_ROUNDS_OF_SMALLEST = 1
#: The number of calls before a thread looks for commands to merge.
_CALLS_UNTIL_LOADED = 8
#: The share of the compile time that merging must have been able to save before the build starts.
_BACKGROUND_SHARE = 0.25
#: The timed configurations: pairs of the maximum number of tiles per group and the minimum number of commands in a run.
#: The first configuration merges all commands that the others merge.
_CONFIGURATIONS = (MAX_ROUNDS, 4), (MAX_ROUNDS, 8), (_MAX_ROUNDS_OF_SMALLEST, 8)
#: Among configurations within 3 % of the fastest, choose the one with the fewest launches.
_AS_QUICK = 1.03

#: For each segment, its runs of commands, each with its queue's handle, or 0 if it is not merged.
_Runs = list[list[tuple[list[Any], int]]]


def persistent_course(
    segments: Segments, residencies: Mapping[int, Residency], accesses: Accesses, setting: str
) -> Course:
    """Merge commands into persistent launches; `residencies` has queue handles as keys.

    With the setting 'auto', no call waits, and configurations are timed.
    """
    merger = PersistentMerger(segments, residencies, accesses, is_timed=setting == "auto")
    if len(merger.mergeable) < MIN_COMMANDS:
        return None
    if setting != "auto":
        yield Pause()
        return merger.merged_at_once()
    yield Pause(calls=_CALLS_UNTIL_LOADED)
    due = yield from in_thread(merger.find_commands)
    if due is None:
        return None
    yield Pause(calls=due)
    tried = yield from in_thread(merger.prepare)
    if tried is None:
        return None
    trial = StepTrial((resident.context.queue for resident in residencies.values()), len(tried))
    in_place = 0
    while (number := trial.begin()) is not None:
        yield Pause(None if number == in_place else tried[number], is_watched=True, call_ended=trial.end)
        in_place = number
    return tried[_quickest(trial, tried)]


def _quickest(trial: StepTrial, tried: Sequence[Segments]) -> int:
    """Return the index of the fastest configuration; prefer fewer launches among equally fast ones."""
    medians = trial.medians
    with_them = ", ".join(f"{median * 1e3:.3f}" for median in medians[1:])
    _logger.info("a step takes %.3f ms without persistent launches, and with them %s ms", medians[0] * 1e3, with_them)
    as_quick = [number for number, median in enumerate(medians) if median <= _AS_QUICK * min(medians)]
    return min(as_quick, key=lambda number: sum(map(len, tried[number])))


class PersistentMerger:
    """Finds the commands that persistent launches can execute, and creates the launches."""

    def __init__(
        self, segments: Segments, residencies: Mapping[int, Residency], accesses: Accesses, is_timed: bool
    ) -> None:
        self._segments = segments
        self._residencies = residencies
        self._accesses = accesses
        self._is_timed = is_timed
        #: The commands that persistent launches can execute.
        self.mergeable = [command for command in itertools.chain(*segments) if _is_mergeable(command, residencies)]
        self._configurations: list[_Runs] = []
        self._programs: dict[int, PersistentProgram] = {}

    def merged_at_once(self) -> Segments | None:
        """Merge at once; return the merged segments, or None if there is nothing to merge."""
        if self.find_commands() is None:
            return None
        self._build(in_child=False)
        return self._merged(self._configurations[0])

    def find_commands(self) -> int | None:
        """Find commands to merge; return the number of calls after which a build pays off, or None."""
        with logged("finding launches to merge"):
            self._configurations = self._find_configurations()
            merged: dict[int, list[Any]] = {}
            for run, handle in itertools.chain(*self._configurations[0]) if self._configurations else ():
                if handle:
                    merged.setdefault(handle, []).extend(run)
            self._programs = {
                handle: PersistentProgram(self._residencies[handle], run) for handle, run in merged.items()
            }
            if not self._configurations:
                return None
            was_built = self._is_timed and all(program.was_built for program in self._programs.values())
            return 0 if was_built else self._calls_until_paid()

    def _find_configurations(self) -> list[_Runs]:
        """Return the configurations; of several that merge equally many commands, only the first."""
        found: dict[int, _Runs] = {}
        for most, least in _CONFIGURATIONS if self._is_timed else [(MAX_ROUNDS, MIN_COMMANDS)]:
            chosen = {
                handle: replace(resident, max_rounds=most, min_commands=least)
                for handle, resident in self._residencies.items()
            }
            configuration = [list(_runs(segment, chosen, self._accesses)) for segment in self._segments]
            count = sum(len(run) for run, handle in itertools.chain(*configuration) if handle)
            found.setdefault(count, configuration)
        found.pop(0, None)
        return list(found.values())

    def prepare(self) -> list[Segments] | None:
        """Build the programs in child processes; return the unmerged segments, then those of each configuration."""
        self._build(in_child=True)
        if not any(program.is_built for program in self._programs.values()):
            return None
        tried = [self._segments]
        for configuration in self._configurations:
            with logged("preparing merged launches"):
                tried.append(self._merged(configuration))
        return tried

    def _build(self, in_child: bool) -> None:
        for program in self._programs.values():
            try:
                program.build(in_child)
            except BuildError as error:
                _logger.warning("Launches are not merged, since the merged program does not build:\n%s", error.log)

    def _merged(self, configuration: _Runs) -> Segments:
        return [
            CommandList(
                command
                for run, handle in runs
                for command in (self._programs[handle].merged(run, self._accesses) if handle else run)
            )
            for runs in configuration
        ]

    def _calls_until_paid(self) -> int:
        """Return after how many calls the saved launches add up to a share of the compile time."""
        commands, quirks = self.mergeable, next(iter(self._residencies.values())).context.profile.quirks
        saved_s = len(commands) * quirks.launch_s
        compile_s = len(kernels_of(commands)) * quirks.kernel_compile_s
        return math.ceil(_BACKGROUND_SHARE * compile_s / saved_s) if saved_s else 0


def _is_mergeable(command: Any, residencies: Mapping[int, Residency]) -> bool:
    resident = residencies.get(command.queue.int_ptr)
    return resident is not None and can_execute(command, resident)


def _runs(
    segment: Iterable[Any], residencies: Mapping[int, Residency], accesses: Accesses
) -> Iterator[tuple[list[Any], int]]:
    """Yield runs of reordered commands, each with its queue's handle, or 0 if the run is not merged."""

    def key(command: Any) -> int:
        # The address of a rebindable operand is unknown.
        is_known = isinstance(command, MERGEABLE_KINDS) and not command.is_rebindable
        handle = command.queue.int_ptr
        return handle if is_known and handle in residencies else 0

    for handle, commands in itertools.groupby(segment, key):
        block = list(commands)
        if not handle:
            yield block, 0
            continue
        # Even stages contain the commands that keep their own launches.
        kinds = [_is_mergeable(command, residencies) for command in unhurried(block)]
        stages = stages_of(list(map(accesses, unhurried(block))), kinds)
        ordered = sorted(range(len(block)), key=stages.__getitem__)
        for stage, numbers in itertools.groupby(ordered, stages.__getitem__):
            run = [block[number] for number in numbers]
            is_merged = stage % 2 and len(run) >= residencies[handle].min_commands
            yield run, handle if is_merged else 0
