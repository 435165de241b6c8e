"""A persistent kernel's program, and its launches that replace runs of commands (`PersistentProgram`).

A launch reads tables: the entries of the commands, the tiles of each phase, and the bounds of the phases. Commands that
depend on each other are in different phases, and the groups meet at a barrier between two phases.
"""

from __future__ import annotations

import itertools
import logging
import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from optdb.codegen.gemm import quad_tiles
from optdb.codegen.gemm.quad_tiles import Halves
from optdb.codegen.kernels.programs import known_origin
from optdb.device.launches.accesses import Accesses
from optdb.device.launches.building import ProgramDescription, build, build_in_child, logged
from optdb.device.launches.entries import addresses_of, buffers_of, entry_of, launch_entry, on_device, table_of
from optdb.device.launches.programs import ENTRY_WORDS, PERSISTENT, KernelKey
from optdb.device.launches.residencies import Residency, synchronizes
from optdb.numpy_types import HostArray
from optdb.runtime.background import unhurried
from optdb.runtime.commands import EnqueueKernel
from optdb.runtime.dependencies import roomy_phases_of
from optdb.runtime.grid_failures import grid_words
from optdb.runtime.library import cl

_logger = logging.getLogger(__name__)

#: The number of polls after which a group stops waiting for others, about ten seconds on a GPU.
_POLLS = 1 << 24


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
        """Build or load the program, with `in_child` in a child process; raise BuildError if that fails."""
        context = self._resident.context
        program, self._cases = (build_in_child if in_child else build)(context, self._description)
        with logged("reading the addresses of buffers"):
            self._addresses = addresses_of(context, program, self._buffers)
        self._program = program

    def merged(self, run: Sequence[Any], accesses: Accesses) -> list[Any]:
        """Return the commands that replace a run; unsupported commands stay between merged launches."""
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
        """Return the launch that executes a run; in 'split' mode, one launch per phase."""
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
        words = unhurried((np.array(bounds, np.uint32), tiles, table))
        tables = [on_device(self._queue, array) for array in words]
        _logger.info("one launch runs %d commands in %d phases and %d tiles", len(run), phases, len(tiles))
        buffers = buffers_of(run)
        if self._resident.is_split:
            return [self._launch(tables, buffers, phase, phase + 1) for phase in range(phases)]
        return [self._launch(tables, buffers, 0, phases)]

    def _halved(self, run: Sequence[Any], counts: Sequence[int], phases: Sequence[int]) -> dict[int, Halves]:
        """For products whose phase would leave groups idle, map the command's number to a half-tile launch."""
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
        """Return a run's tiles, phase by phase, and the bounds of each phase.

        A tile is a number, whose lower half is the start of the command's entry, and whose upper half is the tile's
        index.
        """
        by_phase: dict[int, list[int]] = {}
        for number, phase in enumerate(phases):
            by_phase.setdefault(phase, []).append(number)
        tiles: list[HostArray] = []
        bounds = [0]
        for phase in unhurried(range(len(by_phase))):
            of_phase = [starts[number] | tile << 32 for number in by_phase[phase] for tile in range(counts[number])]
            if self._resident.is_split:  # a phase's tiles run in any order
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
