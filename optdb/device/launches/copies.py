"""Merges the small copies that update variables into one launch of *scattered* tiles (``programs``).

A training step ends with one copy per parameter. Most of these copies take less time than the driver needs to enqueue
them.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from optdb.device.launches.entries import PIECE_NBYTES, addresses_of, buffers_of, entry_of, table_of
from optdb.device.launches.merging import Course, Pause, in_thread, ranges_of_copy
from optdb.device.launches.programs import SCATTERED, merged_program
from optdb.device.launches.residencies import group_size
from optdb.runtime.background import unhurried
from optdb.runtime.build import build
from optdb.runtime.commands import Command, CommandList, EnqueueCopy, EnqueueKernel
from optdb.runtime.context import Context
from optdb.runtime.dependencies import phases_of
from optdb.runtime.library import cl

#: The maximum size in bytes of a merged copy; larger copies use the driver's command.
_MAX_NBYTES = 1 << 18
_MIN_COPIES = 4


def copies_course(context: Context, commands: CommandList, setting: str) -> Course:
    """Merge the small copies among bound commands; `setting` is the value of the flag ``optdb.merge_launches``."""
    due = calls_until_gathering(context, commands, setting)
    if due == math.inf:
        return None
    yield Pause(calls=int(due))
    if setting == "always":
        return [gathered(context, commands)]
    merged = yield from in_thread(functools.partial(gathered, context, commands))
    return None if merged is None else [merged]


def calls_until_gathering(context: Context, commands: Sequence[Command], setting: str) -> float:
    """Return the number of calls after which merging copies pays off; infinity if it never pays off."""
    quirks = context.profile.quirks
    if setting == "never" or not (quirks.keeps_addresses and quirks.copy_s):
        return math.inf
    saved = sum(len(run) - 1 for run, merges in _runs(commands) if merges)
    if not saved:
        return math.inf
    return 0 if setting == "always" else math.ceil(quirks.kernel_compile_s / (saved * quirks.copy_s))


def build_early(context: Context) -> None:
    """If the device needs the program for merged copies, build it in advance, so that no call waits for it."""
    if context.profile.quirks.persistent_launches and context.profile.quirks.copy_s:
        _program(context)


def gathered(context: Context, commands: Sequence[Command]) -> CommandList:
    """Replace sequences of consecutive, independent small copies with launches."""
    return CommandList(
        command for run, merges in _runs(commands) for command in ([_launch(context, run)] if merges else run)
    )


def _runs(commands: Iterable[Command]) -> Iterator[tuple[list[Any], bool]]:
    """Yield sequences of commands, each with a flag that says whether it has enough independent copies for a launch."""
    roots: dict[int, tuple[int, int]] = {}
    for is_copy, group in itertools.groupby(unhurried(commands), _is_small_copy):
        block: list[Any] = list(group)
        ranges = [ranges_of_copy(copy, roots) for copy in block] if is_copy else []
        while block:
            # A sequence ends before a copy that depends on an earlier copy in the sequence.
            independent = itertools.takewhile(lambda phase: not phase, phases_of(ranges))
            length = sum(1 for _ in independent) if is_copy else len(block)
            yield block[:length], is_copy and length >= _MIN_COPIES
            block, ranges = block[length:], ranges[length:]


def _is_small_copy(command: Command) -> bool:
    return isinstance(command, EnqueueCopy) and not command.is_rebindable and command.nbytes <= _MAX_NBYTES


def _launch(context: Context, copies: Sequence[EnqueueCopy]) -> EnqueueKernel:
    program, buffers = _program(context), buffers_of(copies)
    addresses = addresses_of(context, program, buffers)
    table, starts = table_of(entry_of(copy, 0, addresses) for copy in copies)
    tiles = [
        start | tile << 32
        for start, copy in zip(starts, copies, strict=True)
        for tile in range(-(-copy.nbytes // PIECE_NBYTES))
    ]
    flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
    args = tuple(cl.Buffer(context.cl_context, flags, hostbuf=words) for words in (np.array(tiles, np.uint64), table))
    kernel = cl.Kernel(program, SCATTERED)
    kernel.set_args(*args)
    items = group_size(context)
    return EnqueueKernel(
        context.queue, kernel, (len(tiles) * items,), (items,), args, kept_alive=tuple(buffers)
    ).prepare()


def _program(context: Context) -> cl.Program:
    source, _ = merged_program(SCATTERED, {}, group_size(context))
    return build(context, source, name="the program of batched copies")
