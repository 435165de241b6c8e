"""Merges consecutive small launches into one launch whose single work item executes them in order.

A command is small if it has one work item, or if the profiling events of a few calls show that running it on several
cores saves less time than a launch costs. Compilation starts when the launch time that merging would have saved reaches
the compile time. This rule costs at most twice the minimum (ski rental; Karlin et al., "Competitive snoopy caching",
Algorithmica 3, 1988).
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optdb.codegen.kernels.programs import known_origin, origin
from optdb.device.launches.entries import addresses_of, buffers_of, entry_of, table_of
from optdb.device.launches.merging import Course, Pause, Segments
from optdb.device.launches.programs import SEQUENCE, KernelKey, merged_program
from optdb.runtime.build import BuildError, make
from optdb.runtime.commands import Command, CommandList, EnqueueCopy, EnqueueFill, EnqueueKernel, EnqueueUpload
from optdb.runtime.device_profiles import profile_of
from optdb.runtime.library import cl
from optdb.runtime.timing import seconds_of, timed_beside

_logger = logging.getLogger(__name__)

#: The maximum size in bytes of a copy or fill that one work item executes.
_MAX_COPIED_BYTES = 1 << 15
#: The maximum number of work items in a timed launch.
_MAX_WORK_ITEMS = 64
#: The maximum length in bytes of a mergeable fill's pattern.
_MAX_PATTERN_BYTES = 8
#: The number of calls in which commands are timed; the minimum time is used, since other programs cause noise.
PROBED_CALLS = 5


def sequential_course(segments: Segments, setting: str) -> Course:
    """Merge small launches in the segments of a plan; `setting` is the value of the flag ``optdb.merge_launches``."""
    due = math.inf if setting == "never" else _calls_until_paid(segments, may_be_merged, setting)
    if due == math.inf:
        return None
    yield Pause(calls=int(due))
    probes = probed(segments)
    probing_ends = int(due) + PROBED_CALLS
    yield Pause(probes, calls=probing_ends, is_watched=True)
    found = (probe for probe in itertools.chain(*probes) if isinstance(probe, Probe) and may_be_merged(probe.command))
    small = {id(probe.command) for probe in found if _is_single(probe.command) or probe.small}

    def is_small(command: Any) -> bool:
        return id(command) in small

    due = _calls_until_paid(segments, is_small, setting)
    if due == math.inf:
        return segments
    if due > probing_ends:
        yield Pause(segments, calls=int(due))
    return _merged(segments, is_small)


def _calls_until_paid(segments: Segments, is_small: Callable[[Any], bool], setting: str) -> float:
    """Return the number of calls after which merging pays off; infinity if no command is small."""
    runs = [run for run, merges in _runs(segments, is_small) if merges]
    kernels = _kernels(runs)
    if not kernels:
        return math.inf
    if setting != "auto":
        return 0
    costs = profile_of(runs[0][0].queue.device).quirks
    saved_s = sum((len(run) - 1) * costs.launch_s for run in runs)
    return math.ceil((len(kernels) + 2) * costs.kernel_compile_s / saved_s)


def _merged(segments: Segments, is_small: Callable[[Any], bool]) -> Segments:
    """Return the merged commands of each segment; if a program does not build, return the segments unchanged."""
    runs: dict[int, list[list[Any]]] = {}
    for run, merges in _runs(segments, is_small):
        if merges:
            runs.setdefault(run[0].queue.int_ptr, []).append(run)
    kernels = {handle: _kernels(of_queue) for handle, of_queue in runs.items()}
    try:
        programs = {handle: SequenceProgram(of_queue) for handle, of_queue in kernels.items() if of_queue}
    except BuildError as error:
        _logger.warning("Small launches are not merged, since the merged program does not build:\n%s", error.log)
        return segments

    def is_merged(command: Any) -> bool:
        program = programs.get(command.queue.int_ptr) if is_small(command) else None
        return program is not None and program.supports(command)

    return [
        CommandList(
            command
            for run, merges in _runs([segment], is_merged)
            for command in ([programs[run[0].queue.int_ptr].launch(run)] if merges else run)
        )
        for segment in segments
    ]


def _kernels(runs: Iterable[Sequence[Any]]) -> list[KernelKey]:
    launches = (command for command in itertools.chain(*runs) if isinstance(command, EnqueueKernel))
    return list(dict.fromkeys(known_origin(launch.kernel) for launch in launches))


class SequenceProgram:
    """Runs sequences of launches in one context; the constructor builds the program, or raises BuildError."""

    def __init__(self, kernels: Sequence[KernelKey]) -> None:
        self._context = kernels[0][0].context
        source, self._cases = merged_program(SEQUENCE, dict.fromkeys(kernels, 1), items=1)
        self._program = make(self._context, source, name="the program of merged launches")
        self._addresses: dict[int, int] = {}

    def supports(self, command: Any) -> bool:
        return not isinstance(command, EnqueueKernel) or known_origin(command.kernel) in self._cases

    def launch(self, run: Sequence[Any]) -> EnqueueKernel:
        buffers = [buffer for buffer in buffers_of(run) if buffer.int_ptr not in self._addresses]
        self._addresses |= addresses_of(self._context, self._program, buffers)
        cases = [self._cases[known_origin(x.kernel)] if isinstance(x, EnqueueKernel) else 0 for x in run]
        table, starts = table_of(entry_of(command, case, self._addresses) for command, case in zip(run, cases))
        flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
        first, entries = (
            cl.Buffer(self._context.cl_context, flags, hostbuf=words) for words in (np.array(starts, np.uint64), table)
        )
        kernel, args = cl.Kernel(self._program, SEQUENCE), (first, np.uint32(len(run)), entries)
        kernel.set_args(*args)
        return EnqueueKernel(run[0].queue, kernel, (1,), (1,), args).prepare()


@dataclass(eq=False)
class Probe:
    """A bound command that is timed whenever it is enqueued."""

    command: Any
    #: A profiling queue on the command's device.
    timed: cl.CommandQueue
    seconds: float = float("inf")

    def enqueue(self) -> None:
        self.command.queue.finish()
        event = self.command.enqueue_on(self.timed)
        event.wait()
        self.seconds = min(self.seconds, seconds_of(event))

    @property
    def small(self) -> bool:
        """Whether running the command on one core adds less time than a launch costs."""
        # The estimate is an upper bound: if other cores start late, the first core does more than its share.
        profile = profile_of(self.timed.device)
        return self.seconds * (profile.compute_units - 1) < profile.quirks.shared_launch_s


def probed(segments: Iterable[Sequence[Any]]) -> list[CommandList]:
    """Replace each timeable command with a `Probe`, which enqueues the command in a profiling queue."""
    queues: dict[int, cl.CommandQueue] = {}

    def probe(command: Any) -> Any:
        if not isinstance(command, EnqueueKernel | EnqueueCopy | EnqueueFill):
            return command
        queue = command.queue
        if queue.int_ptr not in queues:
            queues[queue.int_ptr] = timed_beside(queue)
        return Probe(command, queues[queue.int_ptr])

    return [CommandList(map(probe, segment)) for segment in segments]


def _runs(segments: Segments, is_small: Callable[[Any], bool]) -> Iterator[tuple[list[Any], bool]]:
    """Yield sequences of commands in one queue, all small or all large, each with a flag: whether it can be merged."""

    def key(command: Any) -> tuple[bool, int]:
        return is_small(command), command.queue.int_ptr

    for segment in segments:
        for (small, _), commands in itertools.groupby(segment, key):
            run = list(commands)
            yield run, small and len(run) > 1


def _is_single(command: Any) -> bool:
    if isinstance(command, EnqueueKernel):
        return math.prod(command.global_size) == 1
    return bool(command.nbytes <= _MAX_COPIED_BYTES)


def may_be_merged(command: Command) -> bool:
    """Return whether a command, recorded or bound, can be merged if it is small."""
    # Tables hold addresses, so a rebindable command cannot be merged.
    if command.is_rebindable or not isinstance(command, EnqueueKernel | EnqueueCopy | EnqueueFill | EnqueueUpload):
        return False
    quirks = profile_of(command.queue.device).quirks
    if not (quirks.launch_s and quirks.compiles_body_repeatedly):
        return False  # merging does not pay off, or kernel bodies cannot be called from another kernel
    if isinstance(command, EnqueueFill):
        return bool(command.pattern.nbytes <= _MAX_PATTERN_BYTES)
    if not isinstance(command, EnqueueKernel):
        return True
    is_ungrouped = math.prod(command.local_size or command.global_size) == 1
    is_short = math.prod(command.global_size) <= _MAX_WORK_ITEMS
    kernel = origin(command.kernel)
    return is_ungrouped and is_short and kernel is not None and kernel[1] in kernel[0].outlined[1]
