"""Replaces commands of a plan by persistent launches; for processors, see ``sequential``.

:func:`persistent_course` finds runs of commands that one persistent kernel can execute (``programs``), assigns phases
by their dependencies, and writes the tables. If the groups of a launch can meet at a barrier, a launch has as many
groups as the device runs at once. Otherwise one group does all the work, which is useful only for tests.

Unless the user forces merging, no call waits for it. A background thread finds the commands that can be merged. The
program is built once the launches that merging would have saved add up to a quarter of its compile time, or immediately
if an earlier process has built it. A child process builds it (``building``); a thread loads it and makes the commands.
Then several configurations are timed (``runtime.timing``): persistent launches of all small commands, of long runs
only, of the smallest commands only, and none. The fastest one is kept.

A command with more tiles than the resident groups process in a few rounds keeps its own launch, which fills the device
with more groups. Other commands are reordered around such launches where they are independent.
"""

from __future__ import annotations

import itertools
import logging
import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from optdb.codegen.gemm import quad_tiles
from optdb.codegen.gemm.blocks import has_large_tiles
from optdb.codegen.gemm.quad_tiles import Halves
from optdb.codegen.kernels.programs import known_origin
from optdb.device.launches.accesses import Accesses, body_of
from optdb.device.launches.building import ProgramDescription, build, build_apart, logged
from optdb.device.launches.entries import (
    MAX_PATTERN_NBYTES,
    PIECE_NBYTES,
    addresses_of,
    buffers_of,
    entry_of,
    launch_entry,
    on_device,
    table_of,
)
from optdb.device.launches.merging import Course, Pause, Segments, in_thread
from optdb.device.launches.programs import (
    ENTRY_WORDS,
    NOINLINE,
    PERSISTENT,
    KernelKey,
)
from optdb.numpy_types import HostArray
from optdb.runtime.background import unhurried
from optdb.runtime.build import BuildError
from optdb.runtime.commands import CommandList, EnqueueCopy, EnqueueFill, EnqueueKernel
from optdb.runtime.context import Context
from optdb.runtime.dependencies import roomy_phases_of, stages_of
from optdb.runtime.grid_barriers import GROUP_BARRIER, GridBarrier, is_tried, usable_barrier
from optdb.runtime.grid_failures import grid_words
from optdb.runtime.library import cl
from optdb.runtime.timing import StepTrial

__all__ = ["Residency", "is_decided", "persistent_course", "residency"]

_logger = logging.getLogger(__name__)

#: Work items of a group, by the kind of the device.
_ITEMS = {"cpu": 1, "gpu": 256}
#: Maximum number of tiles per group; a command with more tiles keeps a launch of its own. cifar_resnet takes as long
#: with eight as with two, but eight halves the number of commands.
_MAX_ROUNDS = 4
#: Maximum number of tiles per group if only the smallest commands are merged: those that leave compute units idle.
_MAX_ROUNDS_OF_SMALLEST = 1
#: Maximum number of tiles per group for products and for reductions, whose items synchronize: in a launch of their own,
#: several groups share a compute unit; in a persistent launch, each unit has one group. On an H200, the sum of 3,200
#: rows of 10,000 columns takes 75 us in its own launch, and 130 us as a phase; a product of 512 x 512 x 3840 with large
#: tiles takes 80 us in its own launch, and 210 us beside other commands of a phase.
_MAX_ROUNDS_OF_PRODUCTS, _MAX_ROUNDS_OF_REDUCTIONS = 2, 1
_PRODUCT = "matmul_"
#: Maximum number of tiles of a command if a single group does all the work, in tests.
_MAX_TILES_ALONE = 1 << 12
#: Number of groups of launches that are split at their barriers.
_SPLIT_GROUPS = 3
#: Number of calls before a thread looks for commands to merge: a function that is called less often gains nothing.
_CALLS_UNTIL_LOADED = 8
#: Share of the compile time that saved launches must reach before the build starts; no call waits for the compiler.
_BACKGROUND_SHARE = 0.25
#: Number of times that a group polls for the others before it gives up: about ten seconds on a GPU.
_POLLS = 1 << 24
#: Minimum number of commands to merge.
_MIN_COMMANDS = 2
#: The configurations that are timed: the maximum number of tiles per group, and the minimum number of commands of a
#: run. Short runs gain little, since a phase takes 2.1 to 2.5 us and a launch hardly more. The first configuration
#: merges all commands that another one merges.
_WAYS = (_MAX_ROUNDS, 4), (_MAX_ROUNDS, 8), (_MAX_ROUNDS_OF_SMALLEST, 8)
#: Among configurations within 3 % of the fastest, the one with the fewest launches is taken: it needs the least host
#: time, and the host may be busier later.
_AS_QUICK = 1.03
_KINDS = (EnqueueKernel, EnqueueCopy, EnqueueFill)
#: The number of items of a team is a multiple of this: the warp size of a GPU.
_TEAM_ITEMS = 32

#: For each segment, runs of commands, each with the handle of the queue that merges it, or 0.
_Runs = list[list[tuple[list[Any], int]]]


@dataclass(frozen=True)
class Residency:
    """How a context runs persistent launches."""

    context: Context
    barrier: GridBarrier
    groups: int  #: Number of groups, all of them resident at once.
    items: int  #: Number of work items of a group.
    #: Whether each phase is a launch of its own, whose commands run in any order.
    is_split: bool = False
    min_commands: int = _MIN_COMMANDS  #: Minimum number of commands to merge.
    max_rounds: int = _MAX_ROUNDS  #: Maximum number of tiles of a command per group.
    options: tuple[str, ...] = ()  #: Compiler options.
    attribute: str = NOINLINE  #: Attribute of functions without barriers.

    def tiles_of(self, command: Any) -> int:
        """Return the number of tiles of a command."""
        if isinstance(command, EnqueueKernel):
            return -(-math.prod(command.global_size) // self.items)
        nbytes: int = command.nbytes
        return -(-nbytes // PIECE_NBYTES)

    def max_tiles(self, command: Any) -> int:
        """Return the maximum number of tiles of a command; with more tiles, it keeps a launch of its own."""
        if not self.barrier.meets:
            return _MAX_TILES_ALONE
        most = self.max_rounds * self.groups
        if not isinstance(command, EnqueueKernel):
            return most
        if has_large_tiles(command.name):
            return 0
        if command.name.startswith(_PRODUCT):
            return min(most, _MAX_ROUNDS_OF_PRODUCTS * self.groups)
        return min(most, _MAX_ROUNDS_OF_REDUCTIONS * self.groups) if _synchronizes(command) else most


def residency(context: Context, wish: str) -> Residency | None:
    """Return how a context runs persistent launches; None if it runs none.

    The wish is the flag ``optdb.persistent_launches``: 'auto', 'always', 'never' or 'split'.
    """
    profile = context.profile
    quirks = profile.quirks
    if wish == "never" or not quirks.keeps_addresses or (wish == "auto" and not quirks.persistent_launches):
        return None
    items = min(_ITEMS[profile.device_kind], profile.max_local_size)
    if wish == "split":
        return Residency(context, GROUP_BARRIER, _SPLIT_GROUPS, items, is_split=True)
    if profile.is_processor or quirks.is_memory_checker:
        return Residency(context, GROUP_BARRIER, 1, items)
    barrier = usable_barrier(context)
    if barrier is None:
        return None
    return Residency(context, barrier, context.device.max_compute_units, items)


def is_decided(context: Context, wish: str) -> bool:
    """Tell whether `residency` would return without waiting; if not, start the trial in the background."""
    profile = context.profile
    if wish != "auto" or not profile.quirks.persistent_launches or profile.is_processor:
        return True
    return is_tried(context)


def persistent_course(
    segments: Segments, residencies: Mapping[int, Residency], accesses: Accesses, wish: str
) -> Course:
    """Merge commands of segments into persistent launches.

    Parameters
    ----------
    segments : sequence of CommandList
        Bound commands, each segment enqueued in order.
    residencies : mapping
        Maps the handle of a queue to the residency that merges its commands.
    accesses : callable
        Returns the bytes that a command uses.
    wish : str
        The value of the flag; with 'auto', no call waits, and steps are timed.
    """
    merger = PersistentMerger(segments, residencies, accesses, is_timed=wish == "auto")
    if merger.command_count < _MIN_COMMANDS:
        return None
    if wish != "auto":
        yield Pause()
        return merger.merged_at_once()
    yield Pause(calls=_CALLS_UNTIL_LOADED)
    due = yield from in_thread(merger.look)
    if due is None:
        return None
    yield Pause(calls=due)
    tried = yield from in_thread(merger.prepare)
    if tried is None:
        return None
    trial = StepTrial((resident.context.queue for resident in residencies.values()), len(tried))
    in_place = 0
    while (way := trial.begin()) is not None:
        yield Pause(None if way == in_place else tried[way], is_watched=True, call_ended=trial.end)
        in_place = way
    return tried[_quickest(trial, tried)]


def _quickest(trial: StepTrial, tried: Sequence[Segments]) -> int:
    """Return the index of the fastest configuration; among equally fast ones, of the one with the fewest launches."""
    medians = trial.medians
    with_them = ", ".join(f"{median * 1e3:.3f}" for median in medians[1:])
    _logger.info("a step takes %.3f ms without persistent launches, with them %s", medians[0] * 1e3, with_them)
    as_quick = [way for way, median in enumerate(medians) if median <= _AS_QUICK * min(medians)]
    return min(as_quick, key=lambda way: sum(map(len, tried[way])))


class PersistentMerger:
    """Finds commands that persistent launches can execute, and makes these; see `persistent_course` for parameters."""

    def __init__(
        self, segments: Segments, residencies: Mapping[int, Residency], accesses: Accesses, is_timed: bool
    ) -> None:
        self._segments = segments
        self._residencies = residencies
        self._accesses = accesses
        self._is_timed = is_timed
        #: The commands that persistent launches can execute. Finding them reads kernel bodies, so no later call waits.
        self._mergeable = [command for command in itertools.chain(*segments) if _is_mergeable(command, residencies)]
        #: The configurations: for each segment, the runs of commands with the queues that merge them.
        self._ways: list[_Runs] = []
        self._programs: dict[int, PersistentProgram] = {}

    @property
    def command_count(self) -> int:
        """Number of commands that persistent launches can execute."""
        return len(self._mergeable)

    def merged_at_once(self) -> Segments | None:
        """Return the merged segments; None if there is nothing to merge."""
        if self.look() is None:
            return None
        self._build(apart=False)
        return self._merged(self._ways[0])

    def look(self) -> int | None:
        """Find commands to merge; return the number of calls until a build pays off, or None if it never does."""
        with logged("looking for what can be merged"):
            self._ways = self._found_ways()
            merged: dict[int, list[Any]] = {}
            for run, handle in itertools.chain(*self._ways[0]) if self._ways else ():
                if handle:
                    merged.setdefault(handle, []).extend(run)
            self._programs = {
                handle: PersistentProgram(self._residencies[handle], run) for handle, run in merged.items()
            }
            if not self._ways:
                return None
            was_built = self._is_timed and all(program.was_built for program in self._programs.values())
            return 0 if was_built else self._calls_until_paid()

    def _found_ways(self) -> list[_Runs]:
        """Return the configurations, without those that merge as many commands as an earlier one."""
        ways: dict[int, _Runs] = {}
        for most, least in _WAYS if self._is_timed else [(_MAX_ROUNDS, _MIN_COMMANDS)]:
            chosen = {
                handle: replace(resident, max_rounds=most, min_commands=least)
                for handle, resident in self._residencies.items()
            }
            way = [list(_runs(segment, chosen, self._accesses)) for segment in self._segments]
            count = sum(len(run) for run, handle in itertools.chain(*way) if handle)
            ways.setdefault(count, way)
        ways.pop(0, None)
        return list(ways.values())

    def prepare(self) -> list[Segments] | None:
        """Build the programs in child processes; return the unmerged segments, and those of each configuration."""
        self._build(apart=True)
        if not any(program.is_built for program in self._programs.values()):
            return None
        tried = [self._segments]
        for way in self._ways:
            with logged("preparing merged launches"):
                tried.append(self._merged(way))
        return tried

    def _build(self, apart: bool) -> None:
        for program in self._programs.values():
            try:
                program.build(apart)
            except BuildError as error:
                _logger.warning("Launches are not merged, since what merges them does not build:\n%s", error.log)

    def _merged(self, way: _Runs) -> Segments:
        return [
            CommandList(
                command
                for run, handle in runs
                for command in (self._programs[handle].merged(run, self._accesses) if handle else run)
            )
            for runs in way
        ]

    def _calls_until_paid(self) -> int:
        """Return the number of calls after which the saved launches add up to a share of the compile time."""
        commands, quirks = self._mergeable, next(iter(self._residencies.values())).context.profile.quirks
        saved_s = len(commands) * quirks.launch_s
        compile_s = len(_kernels(commands)) * quirks.kernel_compile_s
        return math.ceil(_BACKGROUND_SHARE * compile_s / saved_s) if saved_s else 0


def _is_mergeable(command: Any, residencies: Mapping[int, Residency]) -> bool:
    resident = residencies.get(command.queue.int_ptr)
    return resident is not None and _may_be_merged(command, resident)


def _runs(
    segment: Iterable[Any], residencies: Mapping[int, Residency], accesses: Accesses
) -> Iterator[tuple[list[Any], int]]:
    """Yield the commands in an order that keeps dependencies: runs to be merged, with their queues, and others."""

    def key(command: Any) -> int:
        # The address of a rebindable operand is unknown.
        is_known = isinstance(command, _KINDS) and not command.is_rebindable
        handle = command.queue.int_ptr
        return handle if is_known and handle in residencies else 0

    for handle, commands in itertools.groupby(segment, key):
        block = list(commands)
        if not handle:
            yield block, 0
            continue
        # Commands that keep launches of their own are in even stages.
        kinds = [_is_mergeable(command, residencies) for command in unhurried(block)]
        stages = stages_of(list(map(accesses, unhurried(block))), kinds)
        ordered = sorted(range(len(block)), key=stages.__getitem__)
        for stage, numbers in itertools.groupby(ordered, stages.__getitem__):
            run = [block[number] for number in numbers]
            is_merged = stage % 2 and len(run) >= residencies[handle].min_commands
            yield run, handle if is_merged else 0


class PersistentProgram:
    """A program that runs the groups of some kernels, all of one context."""

    def __init__(self, resident: Residency, commands: Sequence[Any]) -> None:
        self._resident = resident
        options = *resident.barrier.options, *resident.options
        self._description = ProgramDescription(
            PERSISTENT,
            _kernels(commands),
            resident.items,
            resident.barrier,
            resident.attribute,
            options,
        )
        self._buffers = buffers_of(commands)
        #: Queue for uploads.
        self._queue = cl.CommandQueue(resident.context.cl_context, resident.context.device)
        self._program: cl.Program | None = None
        #: Set by `build`: the numbers of the program's cases, and the addresses of the commands' buffers.
        self._cases: Mapping[KernelKey, int] = {}
        self._addresses: Mapping[int, int] = {}

    @property
    def was_built(self) -> bool:
        """Whether an earlier process has built the program, and has probably left it on disk."""
        return self._description.was_built(self._resident.context)

    @property
    def is_built(self) -> bool:
        """Whether the program was built in this process."""
        return self._program is not None

    def build(self, apart: bool) -> None:
        """Build the program, or load it from disk; raise BuildError if it fails.

        If `apart`, a child process builds it.
        """
        context = self._resident.context
        program, self._cases = (build_apart if apart else build)(context, self._description)
        with logged("reading the addresses of buffers"):
            self._addresses = addresses_of(context, program, self._buffers)
        self._program = program

    def merged(self, run: Sequence[Any], accesses: Accesses) -> list[Any]:
        """Return the commands that replace a run; unsupported commands stay between the merged ones."""
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
        """Return the launch that executes a run, or one launch for each phase if it is split."""
        counts = list(map(self._resident.tiles_of, unhurried(run)))
        is_long = list(map(_synchronizes, unhurried(run)))
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
        words = unhurried((np.array(bounds, np.uint32), tiles, table))
        tables = [on_device(self._queue, array) for array in words]
        _logger.info("one launch does %d commands in %d phases and %d tiles", len(run), phases, len(tiles))
        buffers = buffers_of(run)
        if self._resident.is_split:
            return [self._launch(tables, buffers, phase, phase + 1) for phase in range(phases)]
        return [self._launch(tables, buffers, 0, phases)]

    def _halved(self, run: Sequence[Any], counts: Sequence[int], phases: Sequence[int]) -> dict[int, Halves]:
        """Return the products, by number, to compute by half tiles because their phase leaves groups idle."""
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
        """Return the launch that computes a product by half tiles; None if the command has none."""
        if not isinstance(command, EnqueueKernel) or command.local_size != (self._resident.items,):
            return None
        unit, name = known_origin(command.kernel)
        halves = quad_tiles.halves(name, command.args)
        return halves if halves is not None and (unit, halves.kernel) in self._cases else None

    def _tiles(
        self, phases: Sequence[int], counts: Sequence[int], starts: Sequence[int]
    ) -> tuple[HostArray, list[int]]:
        """Return the tiles of a run, phase by phase, and the bounds of the phases among them.

        A tile is a number: the lower half is the start of the command's entry in the table, from `starts`, and the
        upper half is the index of the tile in the command. Tiles of phases that are separate launches are shuffled.
        """
        by_phase: dict[int, list[int]] = {}
        for number, phase in enumerate(phases):
            by_phase.setdefault(phase, []).append(number)
        tiles: list[HostArray] = []
        bounds = [0]
        for phase in unhurried(range(len(by_phase))):
            of_phase = [starts[number] | tile << 32 for number in by_phase[phase] for tile in range(counts[number])]
            if self._resident.is_split:
                random.Random(bounds[-1]).shuffle(of_phase)
            tiles.append(np.array(of_phase, np.uint64))
            bounds.append(bounds[-1] + len(of_phase))
        return np.concatenate(tiles), bounds

    def _launch(self, tables: Sequence[cl.Buffer], buffers: Sequence[cl.Buffer], first: int, end: int) -> EnqueueKernel:
        resident = self._resident
        context, groups, items = resident.context, resident.groups, resident.items
        words = grid_words(context.cl_context)
        args: tuple[Any, ...] = *tables, *map(np.uint32, (first, end, groups)), words, np.uint32(_POLLS)
        assert self._program is not None  # built before its first launch
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


def _may_be_merged(command: Any, resident: Residency) -> bool:
    """Tell whether a persistent kernel can run a bound command."""
    if not isinstance(command, _KINDS):
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


def _synchronizes(command: Any) -> bool:
    """Tell whether the items of a command synchronize, as in products and reductions."""
    body = body_of(command) if isinstance(command, EnqueueKernel) else None
    return body is not None and body.synchronizes


def _kernels(commands: Iterable[Any]) -> dict[KernelKey, int]:
    """Return the kernels that commands launch, and those that may replace them, each with its smallest group size."""
    kernels: dict[KernelKey, int] = {}
    for command in unhurried(commands):
        if isinstance(command, EnqueueKernel):
            key, group = known_origin(command.kernel), math.prod(command.local_size or ())
            kernels[key] = min(kernels.get(key, group), group)
            half = quad_tiles.half_kernel(key[1])
            if half is not None:
                kernels[key[0], half] = group
    return kernels
