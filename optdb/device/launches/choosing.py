"""Chooses how to merge the launches of a plan: into persistent launches if the device has them, else sequences."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from optdb.device.launches import persistent, residencies
from optdb.device.launches.accesses import Accesses, body_of
from optdb.device.launches.merging import Course, LaunchMerging, Pause, Segments
from optdb.device.launches.sequential import sequential_course
from optdb.runtime.commands import EnqueueKernel
from optdb.runtime.context import Context

__all__ = ["plan_merging"]


def plan_merging(
    segments: Segments, contexts: Sequence[Context], accesses: Accesses, merge: str, persist: str, at_once: bool
) -> LaunchMerging:
    """Return the object that merges the launches of a plan.

    Parameters
    ----------
    segments : sequence of CommandList
        Bound commands, each segment enqueued in order.
    contexts : sequence of Context
        The contexts of the commands.
    accesses : callable
        Returns the bytes that a command uses.
    merge, persist : str
        The flags ``optdb.merge_launches`` and ``optdb.persistent_launches``.
    at_once : bool
        Whether the flag value 'auto' means to merge at once, because others wait for each call.
    """

    def sooner(setting: str) -> str:
        return "always" if at_once and setting == "auto" else setting

    return LaunchMerging(_course(segments, contexts, accesses, sooner(merge), persist, sooner(persist)))


def _course(
    segments: Segments, contexts: Sequence[Context], accesses: Accesses, merge: str, persist: str, when: str
) -> Course:
    if merge == "never":
        return None

    def are_decided() -> bool:
        return all(residencies.is_decided(context, when) for context in contexts)

    if not are_decided():
        # Read the kernel bodies now, so that the call that decides does not have to.
        for command in itertools.chain(*segments):
            if isinstance(command, EnqueueKernel):
                body_of(command)
        yield Pause(is_ready=are_decided)
    chosen = {context.queue.int_ptr: residencies.residency(context, persist) for context in contexts}
    persisting = {handle: resident for handle, resident in chosen.items() if resident is not None}
    if persisting:
        return (yield from persistent.persistent_course(segments, persisting, accesses, when))
    return (yield from sequential_course(segments, merge))
