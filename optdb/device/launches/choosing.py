"""Chooses how to merge a plan's launches: into persistent launches if the device supports them, else sequences."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from optdb.device.launches import persistent, residencies
from optdb.device.launches.accesses import Accesses, body_of
from optdb.device.launches.merging import Course, LaunchMerging, Pause, Segments
from optdb.device.launches.sequential import sequential_course
from optdb.runtime.commands import EnqueueKernel
from optdb.runtime.context import Context


def plan_merging(
    segments: Segments, contexts: Sequence[Context], accesses: Accesses, merge: str, persist: str, at_once: bool
) -> LaunchMerging:
    """Return the object that merges the launches of a plan, whose bound commands run in these contexts.

    `merge` and `persist` are the flags ``optdb.merge_launches`` and ``optdb.persistent_launches``. With `at_once`,
    'auto' merges immediately, because other devices wait for each call.
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
        # Parse the kernel bodies now, so that no later call waits for that.
        for command in itertools.chain(*segments):
            if isinstance(command, EnqueueKernel):
                body_of(command)
        yield Pause(is_ready=are_decided)
    chosen = {context.queue.int_ptr: residencies.residency(context, persist) for context in contexts}
    persisting = {handle: resident for handle, resident in chosen.items() if resident is not None}
    if persisting:
        return (yield from persistent.persistent_course(segments, persisting, accesses, when))
    return (yield from sequential_course(segments, merge))
