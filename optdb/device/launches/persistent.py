"""Replaces a plan's commands with persistent launches, in which resident work groups execute many small commands.

Calls wait for merging only if the flag ``optdb.persistent_launches`` is not 'auto'. The build starts when the launch
time that merging would have saved reaches a share of the compile time. Then several configurations are timed, and the
fastest one is kept. A launch reads tables of commands, tiles and phases. Commands that depend on each other are in
different phases, and the groups wait at a barrier between two phases. A merged command may be moved past unmerged
commands that are independent of it.
"""

from __future__ import annotations

import itertools
import logging
import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from optdb.codegen.gemm import quad_tiles
from optdb.codegen.gemm.quad_tiles import Halves
from optdb.codegen.kernels.programs import known_origin
from optdb.device.launches.building import ProgramDescription, build, build_in_child, logged
from optdb.device.launches.entries import addresses_of, buffers_of, entry_of, launch_entry, table_of
from optdb.device.launches.merging import Accesses, Course, Pause, Segments, in_thread
from optdb.device.launches.programs import ENTRY_WORDS, PERSISTENT, KernelKey
from optdb.device.launches.residencies import (
    MAX_ROUNDS,
    MERGEABLE_KINDS,
    MIN_COMMANDS,
    Residency,
    can_execute,
    synchronizes,
)
from optdb.numpy_types import HostArray
from optdb.runtime.background import unhurried
from optdb.runtime.build import BuildError
from optdb.runtime.commands import CommandList, EnqueueKernel
from optdb.runtime.dependencies import roomy_phases_of, stages_of
from optdb.runtime.grid_failures import grid_words
from optdb.runtime.library import cl
from optdb.runtime.timing import StepTrial

_logger = logging.getLogger(__name__)

#: The number of polls after which a group stops waiting for other groups; these polls take about ten seconds on a GPU.
_POLLS = 1 << 24
#: The maximum number of tiles per group if only commands that leave compute units idle are merged.
_MAX_ROUNDS_OF_SMALLEST = 1
#: The number of calls before a thread looks for commands to merge.
_CALLS_UNTIL_LOADED = 8
#: The build starts when merging would have saved this share of the compile time.
_BACKGROUND_SHARE = 0.25
#: The configurations to time: pairs of the maximum number of tiles per group and the minimum number of merged commands.
#: The first configuration merges all commands that the other configurations merge.
_CONFIGURATIONS = (MAX_ROUNDS, 4), (MAX_ROUNDS, 8), (_MAX_ROUNDS_OF_SMALLEST, 8)
#: Among configurations within 3 % of the fastest, choose the one with the fewest launches.
_AS_QUICK = 1.03

#: For each segment, sequences of commands, each with the handle of its queue, or with 0 if it is not merged.
_Runs = list[list[tuple[list[Any], int]]]


class PersistentProgram:
    """A program that runs the work groups of several kernels in one context."""

    def __init__(self, resident: Residency, commands: Sequence[Any]) -> None:
        self._resident = resident
        self._description = ProgramDescription(kernels_of(commands), resident.items, resident.barrier)
        self._buffers = buffers_of(commands)
        self._queue = cl.CommandQueue(resident.context.cl_context, resident.context.device)
        self._program: cl.Program | None = None
        #: Set by `build`: the case number of each kernel, and the addresses of the commands' buffers.
        self._cases: Mapping[KernelKey, int] = {}
        self._addresses: Mapping[int, int] = {}

    @property
    def was_built(self) -> bool:
        return self._description.was_built(self._resident.context)

    @property
    def is_built(self) -> bool:
        return self._program is not None

    def build(self, in_child: bool) -> None:
        """Build or load the program, in a child process if `in_child`; raise BuildError if that fails."""
        context = self._resident.context
        program, self._cases = (build_in_child if in_child else build)(context, self._description)
        with logged("reading the addresses of buffers"):
            self._addresses = addresses_of(context, program, self._buffers)
        self._program = program

    def merged(self, run: Sequence[Any], accesses: Accesses) -> list[Any]:
        """Return commands that replace those in `run`; commands that cannot be merged stay between merged launches."""
        result: list[Any] = []
        for supported, commands in itertools.groupby(run, self._supports):
            part = list(commands)
            is_enough = len(part) >= self._resident.min_commands
            result += self._launches(part, accesses) if supported and is_enough else part
        return result

    def _supports(self, command: Any) -> bool:
        if not self.is_built:
            return False
        return not isinstance(command, EnqueueKernel) or known_origin(command.kernel) in self._cases

    def _launches(self, run: Sequence[Any], accesses: Accesses) -> list[Any]:
        """Return the launch that executes the commands in `run`; in 'split' mode, return one launch per phase."""
        counts = list(map(self._resident.tiles_of, unhurried(run)))
        is_long = list(map(synchronizes, unhurried(run)))
        used = list(map(accesses, unhurried(run)))
        phases_of_run = roomy_phases_of(used, counts, is_long, self._resident.groups)
        halved = self._halved(run, counts, phases_of_run)
        entries = [self._entry(command, halved.get(number)) for number, command in enumerate(unhurried(run))]
        if max(map(len, entries)) > ENTRY_WORDS:
            return list(run)
        counts = [halved[number].groups if number in halved else count for number, count in enumerate(counts)]
        # A group reads ENTRY_WORDS words of each entry, so the table is padded.
        table, starts = table_of(entries, ENTRY_WORDS)
        tiles, bounds = self._tiles(phases_of_run, counts, starts)
        phases = len(bounds) - 1
        tables: list[cl.Buffer] = []
        for words in unhurried((np.array(bounds, np.uint32), tiles, table)):
            tables.append(cl.Buffer(self._queue.context, cl.mem_flags.READ_ONLY, words.nbytes))
            cl.enqueue_copy(self._queue, tables[-1], words)
        _logger.info("one launch runs %d commands in %d phases and %d tiles", len(run), phases, len(tiles))
        buffers = buffers_of(run)
        if self._resident.is_split:
            return [self._launch(tables, buffers, phase, phase + 1) for phase in range(phases)]
        return [self._launch(tables, buffers, 0, phases)]

    def _halved(self, run: Sequence[Any], counts: Sequence[int], phases: Sequence[int]) -> dict[int, Halves]:
        """Return half-tile launches of products whose phases would leave groups idle; the keys are command numbers."""
        filled: Counter[int] = Counter()
        for phase, count in zip(phases, counts, strict=True):
            filled[phase] += count
        halved = {}
        for number, command in enumerate(unhurried(run)):
            halves = self._halves(command)
            if halves is None:
                continue
            more = halves.groups - counts[number]
            if filled[phases[number]] + more <= self._resident.groups:
                filled[phases[number]] += more
                halved[number] = halves
        return halved

    def _halves(self, command: Any) -> Halves | None:
        if not isinstance(command, EnqueueKernel) or command.local_size != (self._resident.items,):
            return None
        unit, name = known_origin(command.kernel)
        halves = quad_tiles.halves(name, command.args)
        return halves if halves is not None and (unit, halves.kernel) in self._cases else None

    def _tiles(
        self, phases: Sequence[int], counts: Sequence[int], starts: Sequence[int]
    ) -> tuple[HostArray, list[int]]:
        """Return the tiles (low half: the entry's start; high half: the tile's index), and the bounds of the phases."""
        by_phase: dict[int, list[int]] = {}
        for number, phase in enumerate(phases):
            by_phase.setdefault(phase, []).append(number)
        tiles: list[HostArray] = []
        bounds = [0]
        for phase in unhurried(range(len(by_phase))):
            of_phase = [starts[number] | tile << 32 for number in by_phase[phase] for tile in range(counts[number])]
            if self._resident.is_split:  # tiles of a phase may run in any order
                random.Random(bounds[-1]).shuffle(of_phase)
            tiles.append(np.array(of_phase, np.uint64))
            bounds.append(bounds[-1] + len(of_phase))
        return np.concatenate(tiles), bounds

    def _launch(self, tables: Sequence[cl.Buffer], buffers: Sequence[cl.Buffer], first: int, end: int) -> EnqueueKernel:
        resident = self._resident
        context, groups, items = resident.context, resident.groups, resident.items
        words = grid_words(context.cl_context)
        args: tuple[Any, ...] = *tables, *map(np.uint32, (first, end, groups)), words, np.uint32(_POLLS)
        assert self._program is not None  # a program is built before its first launch
        kernel = cl.Kernel(self._program, PERSISTENT)
        kernel.set_args(*args)
        return EnqueueKernel(
            context.queue, kernel, (groups * items,), (items,), args, kept_alive=tuple(buffers)
        ).prepare()

    def _entry(self, command: Any, halves: Halves | None) -> list[int]:
        if not isinstance(command, EnqueueKernel):
            return entry_of(command, 0, self._addresses)
        unit, name = known_origin(command.kernel)
        if halves is None:
            return entry_of(command, self._cases[unit, name], self._addresses)
        case = self._cases[unit, halves.kernel]
        return launch_entry(case, (self._resident.items,), (halves.groups,), halves.args, self._addresses)


def kernels_of(commands: Iterable[Any]) -> dict[KernelKey, int]:
    """Return the smallest group size of each launched kernel and of its half-tile variant, if any."""
    kernels: dict[KernelKey, int] = {}
    for command in unhurried(commands):
        if isinstance(command, EnqueueKernel):
            key, group = known_origin(command.kernel), math.prod(command.local_size or ())
            kernels[key] = min(kernels.get(key, group), group)
            half = quad_tiles.half_kernel(key[1])
            if half is not None:
                kernels[key[0], half] = group
    return kernels


def persistent_course(
    segments: Segments, residencies: Mapping[int, Residency], accesses: Accesses, setting: str
) -> Course:
    """Merge commands into persistent launches; `residencies` has queue handles as keys."""
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
        """Merge immediately; return the merged segments, or None if there is nothing to merge."""
        if self.find_commands() is None:
            return None
        self._build(in_child=False)
        return self._merged(self._configurations[0])

    def find_commands(self) -> int | None:
        """Find commands to merge; return after how many calls a build pays off, or None if no command is found."""
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
        """Return the configurations; if several merge the same number of commands, keep only the first of them."""
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
        """Build the programs in child processes; return the unmerged segments, then each configuration's segments."""
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
        """Return the number of calls after which the saved launch time reaches a share of the compile time."""
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
    """Reorder the commands; yield sequences of them, each with its queue's handle, or with 0 if it is not merged."""

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
        # Stages with even numbers contain the commands that keep their own launches.
        kinds = [_is_mergeable(command, residencies) for command in unhurried(block)]
        stages = stages_of(list(map(accesses, unhurried(block))), kinds)
        ordered = sorted(range(len(block)), key=stages.__getitem__)
        for stage, numbers in itertools.groupby(ordered, stages.__getitem__):
            run = [block[number] for number in numbers]
            is_merged = stage % 2 and len(run) >= residencies[handle].min_commands
            yield run, handle if is_merged else 0
