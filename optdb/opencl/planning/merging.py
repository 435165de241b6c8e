"""Small launches of a plan, done by one launch where they stand behind each other.

On a processor a launch takes some ten microseconds, and most kernels of a small graph less than one. :class:`Merging`
looks which of a plan's commands are of a single work item, which one core had computed anyway, and has others looked
at that are small (``probing``). Where these stand behind each other, they are written into a list that one kernel goes
through (``optdb.opencl.kernels.sequences``).

To compile that kernel takes as long as to compile those that it replaces. So it is made when the launches that it
would have spared have taken that long: a program that ends before then has lost nothing, and one that goes on has lost
no more than twice what it had to (ski rental; Karlin et al., "Competitive snoopy caching", Algorithmica 3, 1988).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optdb.host.config import config
from optdb.host.logging import logger
from optdb.opencl.kernels.programs import Unit, origin
from optdb.opencl.kernels.sequences import (
    ADDRESS,
    SEQUENCE,
    copy_entry,
    fill_entry,
    launch_entry,
    listed,
    sequence_program,
)
from optdb.opencl.planning.probing import CALLS, OF_A_LAUNCH, Probe, probed
from optdb.runtime.bound import BoundLaunch
from optdb.runtime.build import BuildError, make
from optdb.runtime.device_profiles import profile_of
from optdb.runtime.library import cl
from optdb.runtime.recording import Command, Launch

__all__ = ["Merging", "may_be_merged"]

Bound = Callable[[], Any]

#: So many bytes are copied by one work item.
_SMALL = 1 << 15
#: Launches of more work items than these are not worth to be looked at.
_MOST_ITEMS = 64
#: What it costs to compile a kernel on PoCL, in seconds.
_OF_A_KERNEL = 0.1


class Merging:
    """What is to be merged of a plan, and when.

    Parameters
    ----------
    stretches : sequence of sequence of callable
        Commands behind each other, as `Room.bind` gives them.

    Attributes
    ----------
    done : bool
        Whether there is nothing left to do.
    """

    def __init__(self, stretches: Sequence[Sequence[Bound]]) -> None:
        self._stretches = stretches
        self._calls = 0
        self._probes: list[list[Bound]] = []
        #: Which commands are small, by their `id`; None before they have been looked at.
        self._small: set[int] | None = None
        self._wish = config.optdb.merge_launches
        self.done = self._wish == "never"
        self._wait(_possible)

    def next(self) -> list[list[Bound]] | None:
        """Return what is to be done in place of the stretches from the next call on; None if that is as before."""
        self._calls += 1
        if self.done or self._calls <= self._due:
            return None
        if not self._probes:
            self._probes = probed(self._stretches)
            self._due += CALLS
            return self._probes
        if self._small is None:
            self._small = {id(probe.command) for probe in self._small_ones()}
            self._wait(self._is_small)
            if self.done or self._calls <= self._due:
                return [list(stretch) for stretch in self._stretches]
        self.done = True
        return self._merged()

    def expect(self, times: int) -> bool:
        """Take note that so many calls are to come, which can be the same; tell whether to change something before."""
        if self.done:
            return False
        if self._calls < self._due and (self._small is not None or not self._probes):
            self._calls = min(self._calls + times, self._due)
        return self._calls >= self._due or bool(self._probes and self._small is None)

    def _wait(self, small: Callable[[Bound], bool]) -> None:
        """Find out behind how many calls it pays to merge commands."""
        runs = [run for stretch in self._stretches for run in _runs(stretch, small) if run.merges]
        kinds = {_kind(one) for run in runs for one in run.launches}
        self.done = self.done or not kinds
        self._due = 0
        if kinds and self._wish == "auto":
            spared = sum((len(run.commands) - 1) * OF_A_LAUNCH for run in runs)
            self._due = math.ceil((len(kinds) + 2) * _OF_A_KERNEL / spared)

    def _merged(self) -> list[list[Bound]]:
        """Return the commands of each stretch, as few as can be; as they were, if the driver refuses."""
        runs = [run for stretch in self._stretches for run in _runs(stretch, self._is_small)]
        kinds = dict.fromkeys(_kind(one) for run in runs if run.merges for one in run.launches)
        try:
            program = _Program(kinds)
        except BuildError as error:
            logger.warning("Small launches are done one by one, since what merges them does not build:\n%s", error.log)
            return [list(stretch) for stretch in self._stretches]
        return [
            [
                one
                for run in _runs(stretch, lambda one: self._is_small(one) and program.does(one))
                for one in program.commands(run)
            ]
            for stretch in self._stretches
        ]

    def _is_small(self, one: Bound) -> bool:
        return id(one) in self._small

    def _small_ones(self) -> Iterator[Probe]:
        """Yield the commands that can be merged, and are small."""
        for probe in itertools.chain(*self._probes):
            if not isinstance(probe, Probe) or not _possible(probe.command):
                continue
            if _single(probe.command) or probe.small:
                yield probe


@dataclass(frozen=True)
class _Run:
    """Commands behind each other of one queue, all of which are small, or none."""

    commands: list[Bound]
    small: bool

    @property
    def merges(self) -> bool:
        return self.small and len(self.commands) > 1

    @property
    def launches(self) -> list[BoundLaunch]:
        return [one for one in self.commands if isinstance(one, BoundLaunch)]


class _Program:
    """A program of sequences for some kernels.

    Parameters
    ----------
    kinds : iterable of (Unit, str)
        The kernels, all of one context.
    """

    def __init__(self, kinds: Iterable[tuple[Unit, str]]) -> None:
        kinds = list(kinds)
        source, self._cases = sequence_program(kinds)
        self._program = make(kinds[0][0].context, source, name="what merges launches")
        self._addresses: dict[int, int] = {}

    def does(self, one: Bound) -> bool:
        """Tell whether it can do a command."""
        return not isinstance(one, BoundLaunch) or _kind(one) in self._cases

    def commands(self, run: _Run) -> list[Bound]:
        """Return what does a run of commands."""
        if not run.merges:
            return run.commands
        queue = run.commands[0].args[0]
        self._find(queue, {buffer for one in run.commands for buffer in _buffers(one)})
        content = listed(self._entry(one) for one in run.commands)
        flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
        kernel, list_ = cl.Kernel(self._program, SEQUENCE), cl.Buffer(queue.context, flags, hostbuf=content)
        kernel.set_args(list_)
        return [BoundLaunch(kernel, Launch(queue, kernel, (1,), (1,), (list_,), ()), [list_])]

    def _entry(self, one: functools.partial) -> list[int]:
        if isinstance(one, BoundLaunch):
            return launch_entry(self._cases[_kind(one)], one.args[2], one.arguments, self._addresses)
        if one.func is cl.enqueue_copy:
            to, from_ = (self._addresses[buffer.int_ptr] for buffer in one.args[1:])
            span = one.keywords
            return copy_entry(to + span["dst_offset"], from_ + span["src_offset"], span["byte_count"])
        _, target, pattern, offset, nbytes = one.args
        return fill_entry(self._addresses[target.int_ptr] + offset, nbytes, pattern)

    def _find(self, queue: cl.CommandQueue, buffers: Iterable[cl.Buffer]) -> None:
        """Find out where buffers are."""
        new = [buffer for buffer in buffers if buffer.int_ptr not in self._addresses]
        found = np.zeros(1, np.uint64)
        there = cl.Buffer(queue.context, cl.mem_flags.WRITE_ONLY, found.nbytes)
        kernel = cl.Kernel(self._program, ADDRESS)
        for buffer in new:
            kernel.set_args(buffer, there)
            cl.enqueue_nd_range_kernel(queue, kernel, (1,), (1,))
            cl.enqueue_copy(queue, found, there, is_blocking=True)
            self._addresses[buffer.int_ptr] = int(found[0])


def _runs(stretch: Sequence[Bound], small: Callable[[Bound], bool]) -> Iterator[_Run]:
    """Yield the commands of a stretch in runs of those that are small, and others."""

    def sort(one: Bound) -> tuple[bool, int]:
        return small(one), one.args[0].int_ptr if isinstance(one, functools.partial) else 0

    for (merges, _), commands in itertools.groupby(stretch, sort):
        yield _Run(list(commands), merges)


def _single(one: Bound) -> bool:
    """Tell whether a command is for a single work item, and can be merged."""
    if not _possible(one):
        return False
    if isinstance(one, BoundLaunch):
        return math.prod(one.args[2]) == 1
    return (one.keywords["byte_count"] if one.func is cl.enqueue_copy else one.args[4]) <= _SMALL


def _possible(one: Bound) -> bool:
    """Tell whether a command can be merged, on a device whose kernels can be done by others, if it is small."""
    if not isinstance(one, functools.partial) or not _merges(one.args[0]):
        return False
    if getattr(one, "moves", False):  # a list has addresses
        return False
    if isinstance(one, BoundLaunch):
        return _may_be_listed(*one.args[1:4])
    if one.func is cl.enqueue_copy:
        return isinstance(one.args[2], cl.MemoryObject)
    return one.func is cl.enqueue_fill_buffer and one.args[2].nbytes <= 8


def _merges(queue: cl.CommandQueue) -> bool:
    """Tell whether it pays to merge launches on a queue's device, and its kernels' bodies can be called by others."""
    quirks = profile_of(queue.device).quirks
    return quirks.wakes_threads_per_launch and quirks.compiles_body_repeatedly


def may_be_merged(command: Command) -> bool:
    """Tell whether a command that was recorded could be merged, if it is small, and uses no memory that moves."""
    if config.optdb.merge_launches == "never" or not _merges(command.queue):
        return False
    return not isinstance(command, Launch) or _may_be_listed(command.kernel, command.items, command.group)


def _may_be_listed(kernel: cl.Kernel, items: Sequence[int], groups: Sequence[int] | None) -> bool:
    """Tell whether a launch of a kernel can be done by another kernel, one work item behind the other."""
    kind = _kind_of(kernel)
    outlined = kind is not None and f"{kind[1]}_chunk(" in kind[0].written
    return outlined and math.prod(groups or items) == 1 and math.prod(items) <= _MOST_ITEMS


def _kind(one: BoundLaunch) -> tuple[Unit, str] | None:
    """Return what a launch launches."""
    return _kind_of(one.args[1])


def _kind_of(kernel: cl.Kernel) -> tuple[Unit, str] | None:
    unit = origin(kernel)
    return None if unit is None else (unit, unit.plain(kernel.function_name))


def _buffers(one: functools.partial) -> list[cl.MemoryObject]:
    given = one.arguments if isinstance(one, BoundLaunch) else one.args
    return [arg for arg in given if isinstance(arg, cl.MemoryObject)]
