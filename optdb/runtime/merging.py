"""Merges consecutive small launches of a plan into one launch.

On a CPU a launch takes some ten microseconds, and most kernels of a small graph less than one. :class:`Merging` finds
the commands of a plan that have a single work item, which one core computes anyway, and those that are so small that
several cores gain less than the launch costs. Where such commands are consecutive, one launch replaces them. A
:class:`KernelMerger` writes the kernel that runs them one after the other.

The device measures how long a command runs: for some calls, commands go through a profiling queue, and the host waits
for each. Commands are timed in order and within the program's calls, since many commands cannot be repeated. The host's
clock would not do: to wake a waiting thread takes longer than many a kernel.

To compile the merged kernel takes as long as to compile those that it replaces. So it is compiled when the launches
that it would have saved have taken that long: a program that ends before then has lost nothing, and one that goes on
has lost at most twice the minimum (ski rental; Karlin et al., "Competitive snoopy caching", Algorithmica 3, 1988).
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from optdb.runtime.build import BuildError
from optdb.runtime.commands import Command, CommandList, EnqueueCopy, EnqueueFill, EnqueueKernel
from optdb.runtime.device_profiles import profile_of
from optdb.runtime.library import cl
from optdb.runtime.timing import seconds_of, timed_beside

__all__ = ["PROBED_CALLS", "KernelMerger", "Merging", "may_be_merged"]

_logger = logging.getLogger(__name__)

#: The most bytes that one work item copies.
_MAX_COPIED_BYTES = 1 << 15
#: Launches of more work items are not timed.
_MAX_WORK_ITEMS = 64
#: The longest pattern of a fill that can be merged.
_MAX_PATTERN_BYTES = 8
#: The number of calls that time commands: the quickest counts, since other programs disturb.
PROBED_CALLS = 5


class MergedProgram(Protocol):
    """A program that runs sequences of some kernels."""

    def supports(self, command: Command) -> bool:
        """Tell whether the program can run a command."""

    def commands(self, run: Sequence[Command]) -> list[Command]:
        """Return the launch that replaces a run of bound commands."""


class KernelMerger(Protocol):
    """Writes kernels that run others, one work item after the other."""

    def kernel_of(self, command: EnqueueKernel) -> Hashable | None:
        """Return what tells a launch's kernel from others; None if no other kernel can run it."""

    def program(self, kernels: Sequence[Any]) -> MergedProgram:
        """Build a program that runs sequences of some kernels, all of one context; raise BuildError if it fails."""


class Merging:
    """Decides which launches of a plan are merged, and when; `done` if nothing is left to decide.

    The wish is 'auto', 'always' or 'never', as of the flag ``optdb.merge_launches``.
    """

    def __init__(self, segments: Sequence[CommandList], wish: str, merger: KernelMerger) -> None:
        #: Bound commands, each segment enqueued in order.
        self._segments = segments
        self._calls = 0
        self._probes: list[CommandList] = []
        #: Which commands are small, by their `id`; None before they have been timed.
        self._small: set[int] | None = None
        self._wish = wish
        self._sequencer = merger
        self.done = wish == "never"
        if not self.done:
            self._wait(self._may_be_merged)

    def next(self) -> Sequence[CommandList] | None:
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
            mergeable = (probe for probe in probes if self._may_be_merged(probe.command))
            self._small = {id(probe.command) for probe in mergeable if _is_single(probe.command) or probe.small}
            self._wait(self._is_small)
            if self.done or self._calls <= self._due:
                return self._segments
        self.done = True
        return self._merged()

    def call_ended(self) -> None:
        """Do nothing: commands are timed one by one."""

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
        kernels = self._kernels(runs)
        self.done = self.done or not kernels
        self._due = 0
        if kernels and self._wish == "auto":
            costs = profile_of(runs[0][0].queue.device).quirks
            saved_s = sum((len(run) - 1) * costs.launch_s for run in runs)
            self._due = math.ceil((len(kernels) + 2) * costs.kernel_compile_s / saved_s)

    def _merged(self) -> Sequence[CommandList]:
        """Return the merged commands of each segment; the unmerged ones if the program does not build."""
        try:
            program = self._sequencer.program(self._kernels(self._runs(self._is_small)))
        except BuildError as error:
            _logger.warning("Small launches are done one by one, since what merges them does not build:\n%s", error.log)
            return self._segments
        return [
            CommandList(
                command
                for run, merges in _runs(segment, lambda command: self._is_small(command) and program.supports(command))
                for command in (program.commands(run) if merges else run)
            )
            for segment in self._segments
        ]

    def _runs(self, is_small: Callable[[Any], bool]) -> list[list[Any]]:
        """Return the runs of commands that can be merged."""
        return [run for segment in self._segments for run, merges in _runs(segment, is_small) if merges]

    def _is_small(self, command: Any) -> bool:
        return self._small is not None and id(command) in self._small

    def _may_be_merged(self, command: Any) -> bool:
        return may_be_merged(command, self._sequencer)

    def _kernels(self, runs: Iterable[Sequence[Any]]) -> list[Any]:
        """Return the kernels that some runs of commands launch, each once."""
        launches = (command for command in itertools.chain(*runs) if isinstance(command, EnqueueKernel))
        return list(dict.fromkeys(map(self._sequencer.kernel_of, launches)))


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
        profile = profile_of(self.timed.device)
        return self.seconds * (profile.compute_units - 1) < profile.quirks.shared_launch_s


def probed(segments: Iterable[Sequence[Any]]) -> list[CommandList]:
    """Return segments with a probe in place of each command, and a profiling queue beside each of their queues."""
    queues: dict[int, cl.CommandQueue] = {}

    def probe(command: Any) -> Any:
        if not isinstance(command, EnqueueKernel | EnqueueCopy | EnqueueFill):
            return command
        queue = command.queue
        if queue.int_ptr not in queues:
            queues[queue.int_ptr] = timed_beside(queue)
        return Probe(command, queues[queue.int_ptr])

    return [CommandList(map(probe, segment)) for segment in segments]


def _runs(segment: Sequence[Any], is_small: Callable[[Any], bool]) -> Iterator[tuple[list[Any], bool]]:
    """Yield runs of commands of one queue, either all small or none, and whether the run can be merged."""

    def key(command: Any) -> tuple[bool, int]:
        return is_small(command), command.queue.int_ptr

    for (small, _), commands in itertools.groupby(segment, key):
        run = list(commands)
        yield run, small and len(run) > 1


def _is_single(command: Any) -> bool:
    """Tell whether one work item computes a command that can be merged."""
    if isinstance(command, EnqueueKernel):
        return math.prod(command.global_size) == 1
    return bool(command.nbytes <= _MAX_COPIED_BYTES)


def may_be_merged(command: Command, merger: KernelMerger) -> bool:
    """Tell whether a command, recorded or bound, can be merged if it is small.

    A list holds addresses, so it cannot be rebound.
    """
    if command.is_rebindable:
        return False
    quirks = profile_of(command.queue.device).quirks
    if not (quirks.launch_s and quirks.compiles_body_repeatedly):
        return False  # merging does not pay, or kernels' bodies cannot be called by others
    if isinstance(command, EnqueueFill):
        return bool(command.pattern.nbytes <= _MAX_PATTERN_BYTES)
    if not isinstance(command, EnqueueKernel):
        return True
    is_ungrouped = math.prod(command.local_size or command.global_size) == 1
    is_short = math.prod(command.global_size) <= _MAX_WORK_ITEMS
    return is_ungrouped and is_short and merger.kernel_of(command) is not None
