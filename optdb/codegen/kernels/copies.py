"""Gathers many small copies into one launch.

A step of a deep net ends with a copy for each parameter and running average, and the device copies most of them faster
than the driver enqueues them. :func:`gathered` replaces copies that do not depend on each other by one launch. Its
groups copy *pieces*: each is the address of the target, the address of the source, and a number of bytes.

The kernel gets addresses, and not buffers, so the driver has to keep a buffer where it is
(``quirks.keeps_addresses``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from optdb.codegen.source import filled, functions
from optdb.runtime.arrays import root_of
from optdb.runtime.background import unhurried
from optdb.runtime.build import build
from optdb.runtime.commands import Command, CommandList, EnqueueCopy, EnqueueKernel
from optdb.runtime.context import Context
from optdb.runtime.library import cl

__all__ = ["addresses_of", "build_early", "calls_until_gathering", "gathered"]

#: A group copies so many bytes.
_PIECE_NBYTES = 1 << 14
#: The driver copies more bytes by itself.
_MAX_NBYTES = 1 << 18
#: Fewer copies are enqueued one by one.
_MIN_COPIES = 4
#: Work items of a group, by the kind of the device.
_GROUP = {"cpu": 1, "gpu": 256}

_WORDS = {"ADDRESS_AT": "optdb_address_at", "COPIES": "optdb_copies"}

#: Bytes of a buffer: its handle, the first byte, and the one after the last.
_Range = tuple[int, int, int]


def calls_until_gathering(context: Context, commands: Sequence[Command], wish: str) -> float:
    """Return after how many calls it pays to gather the copies among bound commands; infinity if it never does.

    The wish is 'auto', 'always' or 'never', as of the flag ``optdb.merge_launches``.
    """
    quirks = context.profile.quirks
    saved = sum(len(run) - 1 for run in _runs(commands) if isinstance(run, list) and len(run) >= _MIN_COPIES)
    if wish == "never" or not (saved and quirks.keeps_addresses and quirks.copy_s):
        return math.inf
    return 0 if wish == "always" else math.ceil(quirks.kernel_compile_s / (saved * quirks.copy_s))


def build_early(context: Context) -> None:
    """Build what gathers copies, on devices that will need it: while the driver builds it, calls would wait."""
    if context.profile.quirks.persistent_launches and context.profile.quirks.copy_s:
        _program(context)


def gathered(context: Context, commands: Sequence[Command]) -> CommandList:
    """Return bound commands with launches in place of small copies that follow each other and are independent."""
    result = CommandList()
    for run in _runs(commands):
        if not isinstance(run, list):
            result.append(run)
        elif len(run) < _MIN_COPIES:
            result += run
        else:
            result.append(_launch(context, run))
    return result


def _runs(commands: Iterable[Command]) -> Iterator[list[EnqueueCopy] | Command]:
    """Yield the commands in order: runs of independent small copies, and each other command alone."""
    run: list[EnqueueCopy] = []
    read: list[_Range] = []
    written: list[_Range] = []
    for command in unhurried(commands):
        if not isinstance(command, EnqueueCopy) or command.is_rebindable or command.nbytes > _MAX_NBYTES:
            yield from ([run] if run else [])
            yield command
            run, read, written = [], [], []
            continue
        source = _range(command.source, command.source_offset, command.nbytes)
        target = _range(command.target, command.target_offset, command.nbytes)
        if run and (_meets(source, written) or _meets(target, written) or _meets(target, read)):
            yield run
            run, read, written = [], [], []
        run.append(command)
        read.append(source)
        written.append(target)
    if run:
        yield run


def _range(buffer: cl.MemoryObject, offset: int, nbytes: int) -> _Range:
    handle, shift = root_of(buffer)
    return handle, shift + offset, shift + offset + nbytes


def _meets(one: _Range, others: Iterable[_Range]) -> bool:
    """Tell whether bytes are among others."""
    return any(one[0] == other[0] and one[1] < other[2] and other[1] < one[2] for other in others)


def _launch(context: Context, copies: Sequence[EnqueueCopy]) -> EnqueueKernel:
    """Return a launch that does some copies; it has their buffers among its arguments, so that they exist as long."""
    buffers = list({buffer.int_ptr: buffer for copy in copies for buffer in (copy.target, copy.source)}.values())
    addresses = addresses_of(context, buffers)
    pieces = np.array(
        [
            (
                addresses[copy.target.int_ptr] + copy.target_offset + start,
                addresses[copy.source.int_ptr] + copy.source_offset + start,
                min(_PIECE_NBYTES, copy.nbytes - start),
            )
            for copy in unhurried(copies)
            for start in range(0, copy.nbytes, _PIECE_NBYTES)
        ],
        np.uint64,
    )
    flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
    list_ = cl.Buffer(context.cl_context, flags, hostbuf=pieces)
    kernel = cl.Kernel(_program(context), _WORDS["COPIES"])
    kernel.set_args(list_)
    items = min(_GROUP[context.profile.device_kind], context.profile.max_local_size)
    return EnqueueKernel(
        context.queue, kernel, (len(pieces) * items,), (items,), (list_,), kept_alive=tuple(buffers)
    ).prepare()


def addresses_of(context: Context, buffers: Sequence[cl.Buffer]) -> dict[int, int]:
    """Return the addresses of buffers on a device that keeps them, by their handles.

    The commands in the context's queue and this do not wait for each other.
    """
    if not buffers:
        return {}
    addresses = np.zeros(len(buffers), np.uint64)
    on_device = cl.Buffer(context.cl_context, cl.mem_flags.WRITE_ONLY, addresses.nbytes)
    kernel = cl.Kernel(_program(context), _WORDS["ADDRESS_AT"])
    queue = cl.CommandQueue(context.cl_context, context.device)
    for index, buffer in enumerate(unhurried(buffers)):
        kernel.set_args(buffer, on_device, np.uint64(index))
        cl.enqueue_nd_range_kernel(queue, kernel, (1,), (1,))
    cl.enqueue_copy(queue, addresses, on_device, is_blocking=True)
    return {buffer.int_ptr: int(address) for buffer, address in zip(buffers, addresses, strict=True)}


def _program(context: Context) -> cl.Program:
    code = functions("kernels/copies.cl")
    return build(context, filled("".join(code.values()), **_WORDS), name="what gathers copies")
