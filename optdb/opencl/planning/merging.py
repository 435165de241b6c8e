"""Merges consecutive small launches of a plan into one launch.

On a CPU a launch takes some ten microseconds, and most kernels of a small graph less than one. :class:`Merging` finds
the commands of a plan that have a single work item, which one core computes anyway, and those that are so small that
several cores gain less than the launch costs. Where such commands are consecutive, they are written into a list that
one kernel executes (``optdb.codegen.kernels.sequences``).

The device measures how long a command runs: for some calls, commands go through a profiling queue, and the host waits
for each. Commands are timed in order and within the program's calls, since many commands cannot be repeated. The host's
clock would not do: to wake a waiting thread takes longer than many a kernel.

To compile the merged kernel takes as long as to compile those that it replaces. So it is compiled when the launches
that it would have saved have taken that long: a program that ends before then has lost nothing, and one that goes on
has lost at most twice the minimum (ski rental; Karlin et al., "Competitive snoopy caching", Algorithmica 3, 1988).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optdb.codegen.kernels.programs import TranslationUnit, origin
from optdb.codegen.kernels.sequences import (
    ADDRESS,
    SEQUENCE,
    copy_entry,
    fill_entry,
    launch_entry,
    listed,
    sequence_program,
)
from optdb.host.api.config import config, logger
from optdb.runtime.build import BuildError, make
from optdb.runtime.commands import Command, EnqueueCopy, EnqueueFill, EnqueueKernel
from optdb.runtime.device_profiles import profile_of
from optdb.runtime.library import cl
from optdb.runtime.timing import seconds_of, timed_beside

__all__ = ["LAUNCH_OVERHEAD_S", "PROBED_CALLS", "Merging", "may_be_merged"]

#: The most bytes that one work item copies.
_MAX_COPIED_BYTES = 1 << 15
#: Launches of more work items are not timed.
_MAX_WORK_ITEMS = 64
#: The longest pattern of a fill that can be merged.
_MAX_PATTERN_BYTES = 8
#: What it costs to compile a kernel on PoCL.
KERNEL_COMPILE_S = 0.1
#: What a launch costs on PoCL, on one core and on several, which it has to wake.
LAUNCH_OVERHEAD_S, SHARED_LAUNCH_OVERHEAD_S = 1e-5, 2e-5
#: The number of calls that time commands: the quickest counts, since other programs disturb.
PROBED_CALLS = 5


class Merging:
    """Decides which launches of a plan are merged, and when; `done` if nothing is left to decide."""

    def __init__(self, segments: Sequence[Sequence[Any]]) -> None:
        #: Bound commands, each segment enqueued in order.
        self._segments = segments
        self._calls = 0
        self._probes: list[list[Any]] = []
        #: Which commands are small, by their `id`; None before they have been timed.
        self._small: set[int] | None = None
        self._wish = config.optdb.merge_launches
        self.done = self._wish == "never"
        self._wait(may_be_merged)

    def next(self) -> Sequence[Sequence[Any]] | None:
        """Return the segments to enqueue from the next call on; None if they stay as they are."""
        self._calls += 1
        if self.done or self._calls <= self._due:
            return None
        if not self._probes:
            self._probes = probed(self._segments)
            self._due += PROBED_CALLS
            return self._probes
        if self._small is None:
            probes = (probe for probe in itertools.chain(*self._probes) if isinstance(probe, Probe))
            mergeable = (probe for probe in probes if may_be_merged(probe.command))
            self._small = {id(probe.command) for probe in mergeable if _is_single(probe.command) or probe.small}
            self._wait(self._is_small)
            if self.done or self._calls <= self._due:
                return self._segments
        self.done = True
        return self._merged()

    def expect(self, times: int) -> bool:
        """Credit `times` calls that will run without Python; return whether a merge or a probe is due before them."""
        if self.done:
            return False
        if self._calls < self._due and (self._small is not None or not self._probes):
            self._calls = min(self._calls + times, self._due)
        return self._calls >= self._due or bool(self._probes and self._small is None)

    def _wait(self, is_small: Callable[[Any], bool]) -> None:
        """Compute after how many calls it pays to merge commands."""
        runs = self._runs(is_small)
        kinds = _kinds(runs)
        self.done = self.done or not kinds
        self._due = 0
        if kinds and self._wish == "auto":
            saved_s = sum((len(run) - 1) * LAUNCH_OVERHEAD_S for run in runs)
            self._due = math.ceil((len(kinds) + 2) * KERNEL_COMPILE_S / saved_s)

    def _merged(self) -> Sequence[Sequence[Any]]:
        """Return the merged commands of each segment; the unmerged ones if the program does not build."""
        try:
            program = _Program(_kinds(self._runs(self._is_small)))
        except BuildError as error:
            logger.warning("Small launches are done one by one, since what merges them does not build:\n%s", error.log)
            return self._segments
        return [
            [
                command
                for run, merges in _runs(segment, lambda command: self._is_small(command) and program.supports(command))
                for command in (program.commands(run) if merges else run)
            ]
            for segment in self._segments
        ]

    def _runs(self, is_small: Callable[[Any], bool]) -> list[list[Any]]:
        """Return the runs of commands that can be merged."""
        return [run for segment in self._segments for run, merges in _runs(segment, is_small) if merges]

    def _is_small(self, command: Any) -> bool:
        return id(command) in self._small


@dataclass(eq=False)
class Probe:
    """A bound command that is timed whenever it is enqueued."""

    command: Any
    #: A profiling queue of the same device.
    timed: cl.CommandQueue
    #: The shortest run so far.
    seconds: float = float("inf")

    def enqueue(self) -> None:
        """Run the command, and measure how long it takes."""
        self.command.queue.finish()
        event = self.command.enqueue_on(self.timed)
        event.wait()
        self.seconds = min(self.seconds, seconds_of(event))

    @property
    def small(self) -> bool:
        """Whether one core alone loses less on the command than a launch costs."""
        # An upper bound: late cores leave the first one more than its share.
        others = profile_of(self.timed.device).compute_units - 1
        return self.seconds * others < SHARED_LAUNCH_OVERHEAD_S


def probed(segments: Iterable[Sequence[Any]]) -> list[list[Any]]:
    """Return segments with a probe in place of each command, and a profiling queue beside each of their queues."""
    queues: dict[int, cl.CommandQueue] = {}

    def probe(command: Any) -> Any:
        if not isinstance(command, EnqueueKernel | EnqueueCopy | EnqueueFill):
            return command
        queue = command.queue
        if queue.int_ptr not in queues:
            queues[queue.int_ptr] = timed_beside(queue)
        return Probe(command, queues[queue.int_ptr])

    return [[probe(command) for command in segment] for segment in segments]


class _Program:
    """A program that runs sequences of some kernels, all of one context."""

    def __init__(self, kinds: Sequence[tuple[TranslationUnit, str]]) -> None:
        source, self._cases = sequence_program(kinds)
        self._program = make(kinds[0][0].context, source, name="what merges launches")
        self._addresses: dict[int, int] = {}

    def supports(self, command: Any) -> bool:
        """Tell whether the program can run a command."""
        return not isinstance(command, EnqueueKernel) or origin(command.kernel) in self._cases

    def commands(self, run: Sequence[Any]) -> list[Any]:
        """Return the launch that replaces a run of commands."""
        queue = run[0].queue
        self._find(queue, (buffer for command in run for _, buffer in command.operands()))
        content = listed(self._entry(command) for command in run)
        flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
        kernel, list_ = cl.Kernel(self._program, SEQUENCE), cl.Buffer(queue.context, flags, hostbuf=content)
        kernel.set_args(list_)
        return [EnqueueKernel(queue, kernel, (1,), (1,), (list_,))]

    def _entry(self, command: Any) -> list[int]:
        match command:
            case EnqueueKernel():
                return launch_entry(
                    self._cases[origin(command.kernel)], command.global_size, command.args, self._addresses
                )
            case EnqueueCopy():
                target = self._addresses[command.target.int_ptr] + command.target_offset
                source = self._addresses[command.source.int_ptr] + command.source_offset
                return copy_entry(target, source, command.nbytes)
            case _:
                target = self._addresses[command.target.int_ptr] + command.offset
                return fill_entry(target, command.nbytes, command.pattern)

    def _find(self, queue: cl.CommandQueue, buffers: Iterable[cl.Buffer]) -> None:
        """Find the addresses of buffers."""
        new = {buffer.int_ptr: buffer for buffer in buffers if buffer.int_ptr not in self._addresses}
        address = np.zeros(1, np.uint64)
        on_device = cl.Buffer(queue.context, cl.mem_flags.WRITE_ONLY, address.nbytes)
        kernel = cl.Kernel(self._program, ADDRESS)
        for handle, buffer in new.items():
            kernel.set_args(buffer, on_device)
            cl.enqueue_nd_range_kernel(queue, kernel, (1,), (1,))
            cl.enqueue_copy(queue, address, on_device, is_blocking=True)
            self._addresses[handle] = int(address[0])


def _runs(segment: Sequence[Any], is_small: Callable[[Any], bool]) -> Iterator[tuple[list[Any], bool]]:
    """Yield runs of commands of one queue, either all small or none, and whether the run can be merged."""

    def key(command: Any) -> tuple[bool, int]:
        return is_small(command), command.queue.int_ptr

    for (small, _), commands in itertools.groupby(segment, key):
        run = list(commands)
        yield run, small and len(run) > 1


def _kinds(runs: Iterable[Sequence[Any]]) -> list[tuple[TranslationUnit, str]]:
    """Return the kernels that some runs of commands launch, each once."""
    commands = itertools.chain(*runs)
    return list(dict.fromkeys(origin(command.kernel) for command in commands if isinstance(command, EnqueueKernel)))


def _is_single(command: Any) -> bool:
    """Tell whether one work item computes a command that can be merged."""
    if isinstance(command, EnqueueKernel):
        return math.prod(command.global_size) == 1
    return command.nbytes <= _MAX_COPIED_BYTES


def may_be_merged(command: Command) -> bool:
    """Tell whether a command, recorded or bound, can be merged if it is small.

    A list holds addresses, so it cannot be rebound.
    """
    if config.optdb.merge_launches == "never" or command.is_rebindable:
        return False
    quirks = profile_of(command.queue.device).quirks
    if not (quirks.wakes_threads_per_launch and quirks.compiles_body_repeatedly):
        return False  # merging does not pay, or kernels' bodies cannot be called by others
    if isinstance(command, EnqueueFill):
        return command.pattern.nbytes <= _MAX_PATTERN_BYTES
    return not isinstance(command, EnqueueKernel) or _may_be_listed(command)


def _may_be_listed(command: EnqueueKernel) -> bool:
    """Tell whether another kernel can run a launch, one work item after the other."""
    kind = origin(command.kernel)
    outlined = kind is not None and kind[0].outlines(kind[1])
    is_ungrouped = math.prod(command.local_size or command.global_size) == 1
    return outlined and is_ungrouped and math.prod(command.global_size) <= _MAX_WORK_ITEMS
