"""Small launches of a plan, done by one launch where they stand behind each other.

On a processor a launch takes some ten microseconds, and most kernels of a small graph less than one. :class:`Merging`
looks which of a plan's commands are of a single work item, which one core had computed anyway, and which others are so
small that several cores gain less than the launch costs. Where these stand behind each other, they are written into a
list that one kernel goes through (``optdb.codegen.kernels.sequences``).

How long a command runs is told by the device: for some calls, commands go through a queue that keeps times, and are
waited for. That is done in order and within calls that are made anyway, since many commands cannot be done twice. The
host's clock would not do: to wake a thread that waits takes longer than many a kernel.

To compile that kernel takes as long as to compile those that it replaces. So it is made when the launches that it
would have spared have taken that long: a program that ends before then has lost nothing, and one that goes on has lost
no more than twice what it had to (ski rental; Karlin et al., "Competitive snoopy caching", Algorithmica 3, 1988).
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
from optdb.host.config import config
from optdb.host.logging import logger
from optdb.runtime.build import BuildError, make
from optdb.runtime.commands import Command, EnqueueCopy, EnqueueFill, EnqueueKernel
from optdb.runtime.device_profiles import profile_of
from optdb.runtime.library import cl
from optdb.runtime.timing import seconds_of, timed_beside

__all__ = ["LAUNCH_OVERHEAD_S", "PROBED_CALLS", "Merging", "may_be_merged"]

#: So many bytes are copied by one work item.
_MAX_COPIED_BYTES = 1 << 15
#: Launches of more work items than these are not worth to be timed.
_MAX_WORK_ITEMS = 64
#: A pattern of a fill is at most so long.
_MAX_PATTERN_BYTES = 8
#: What it costs to compile a kernel on PoCL.
KERNEL_COMPILE_S = 0.1
#: What a launch costs on PoCL, and what one costs that several cores share, which are woken for it.
LAUNCH_OVERHEAD_S, SHARED_LAUNCH_OVERHEAD_S = 1e-5, 2e-5
#: Commands are timed in so many calls: the quickest counts, since other programs disturb.
PROBED_CALLS = 5


class Merging:
    """What is to be merged of a plan, and when; `done` if there is nothing left to do."""

    def __init__(self, segments: Sequence[Sequence[Any]]) -> None:
        #: Bound commands that are enqueued one behind the other.
        self._segments = segments
        self._calls = 0
        self._probes: list[list[Any]] = []
        #: Which commands are small, by their `id`; None before they have been timed.
        self._small: set[int] | None = None
        self._wish = config.optdb.merge_launches
        self.done = self._wish == "never"
        self._wait(may_be_merged)

    def next(self) -> Sequence[Sequence[Any]] | None:
        """Return what to enqueue in place of the segments from the next call on; None if that is as before."""
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
        """Credit `times` calls that are to come without Python; return whether a change is due before them."""
        if self.done:
            return False
        if self._calls < self._due and (self._small is not None or not self._probes):
            self._calls = min(self._calls + times, self._due)
        return self._calls >= self._due or bool(self._probes and self._small is None)

    def _wait(self, is_small: Callable[[Any], bool]) -> None:
        """Find out after how many calls it pays to merge commands."""
        runs = self._runs(is_small)
        kinds = _kinds(runs)
        self.done = self.done or not kinds
        self._due = 0
        if kinds and self._wish == "auto":
            saved_s = sum((len(run) - 1) * LAUNCH_OVERHEAD_S for run in runs)
            self._due = math.ceil((len(kinds) + 2) * KERNEL_COMPILE_S / saved_s)

    def _merged(self) -> Sequence[Sequence[Any]]:
        """Return the commands of each segment, as few as can be; as they were, if the driver refuses."""
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
    #: A queue of the same device, that keeps times.
    timed: cl.CommandQueue
    #: How long the quickest ran.
    seconds: float = float("inf")

    def enqueue(self) -> None:
        """Do the command, and measure how long that takes."""
        self.command.queue.finish()
        event = self.command.enqueue_on(self.timed)
        event.wait()
        self.seconds = min(self.seconds, seconds_of(event))

    @property
    def small(self) -> bool:
        """Whether one core loses less by doing it all alone than a launch costs."""
        # At most: that the others are late has let the first one do more than its share.
        others = profile_of(self.timed.device).compute_units - 1
        return self.seconds * others < SHARED_LAUNCH_OVERHEAD_S


def probed(segments: Iterable[Sequence[Any]]) -> list[list[Any]]:
    """Return segments with a probe in place of each command, with one more queue for each queue that they use."""
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
    """A program of sequences for some kernels, all of one context."""

    def __init__(self, kinds: Sequence[tuple[TranslationUnit, str]]) -> None:
        source, self._cases = sequence_program(kinds)
        self._program = make(kinds[0][0].context, source, name="what merges launches")
        self._addresses: dict[int, int] = {}

    def supports(self, command: Any) -> bool:
        """Tell whether it can do a command."""
        return not isinstance(command, EnqueueKernel) or origin(command.kernel) in self._cases

    def commands(self, run: Sequence[Any]) -> list[Any]:
        """Return what does a run of commands."""
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
    """Yield runs of commands of one queue, all of which are small, or none; and whether there is what to merge."""

    def key(command: Any) -> tuple[bool, int]:
        return is_small(command), command.queue.int_ptr

    for (small, _), commands in itertools.groupby(segment, key):
        run = list(commands)
        yield run, small and len(run) > 1


def _kinds(runs: Iterable[Sequence[Any]]) -> list[tuple[TranslationUnit, str]]:
    """Return what some runs of commands launch, each once."""
    commands = itertools.chain(*runs)
    return list(dict.fromkeys(origin(command.kernel) for command in commands if isinstance(command, EnqueueKernel)))


def _is_single(command: Any) -> bool:
    """Tell whether a command that can be merged is for a single work item."""
    if isinstance(command, EnqueueKernel):
        return math.prod(command.global_size) == 1
    return command.nbytes <= _MAX_COPIED_BYTES


def may_be_merged(command: Command) -> bool:
    """Tell whether a command, recorded or bound, can be merged if it is small.

    A list has addresses, so it cannot be rebound.
    """
    if config.optdb.merge_launches == "never" or command.is_rebindable:
        return False
    quirks = profile_of(command.queue.device).quirks
    if not (quirks.wakes_threads_per_launch and quirks.compiles_body_repeatedly):
        return False  # it does not pay, or kernels' bodies cannot be called by others
    if isinstance(command, EnqueueFill):
        return command.pattern.nbytes <= _MAX_PATTERN_BYTES
    return not isinstance(command, EnqueueKernel) or _may_be_listed(command)


def _may_be_listed(command: EnqueueKernel) -> bool:
    """Tell whether a launch of a kernel can be done by another kernel, one work item behind the other."""
    kind = origin(command.kernel)
    outlined = kind is not None and kind[0].outlines(kind[1])
    is_ungrouped = math.prod(command.local_size or command.global_size) == 1
    return outlined and is_ungrouped and math.prod(command.global_size) <= _MAX_WORK_ITEMS
