"""Table entries: commands encoded as 64-bit words, which a merged kernel reads (``programs``).

An entry begins with its case number. A launch's entry continues with the number of work items, the group size, the
number of groups, and the arguments, each of which is aligned to its size. A buffer is passed as its address.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from optdb.numpy_types import HostArray
from optdb.runtime.background import unhurried
from optdb.runtime.commands import EnqueueCopy, EnqueueKernel
from optdb.runtime.context import Context
from optdb.runtime.library import cl

#: The numbers of the `switch` cases for copies, for fills, and for the first kernel.
COPY, FILL, FIRST_CASE = range(3)
#: The tile size of copies and fills, in bytes.
PIECE_NBYTES = 1 << 14
#: The maximum length of a fill's pattern, in bytes.
MAX_PATTERN_NBYTES = 16
#: The name of the kernel that writes a buffer's address; every program contains it.
ADDRESS = "optdb_address"
#: The alignment of table entries, in words.
_ALIGNED_WORDS = 16


def entry_of(command: Any, case: int, addresses: Mapping[int, int]) -> list[int]:
    """Return the entry of a bound launch, copy or fill, given a case number and the addresses of buffers."""
    match command:
        case EnqueueKernel():
            # If a launch leaves the group size to the driver, its entry uses groups of one item.
            group = command.local_size or (1,) * len(command.global_size)
            groups = [total // size for total, size in zip(command.global_size, group, strict=True)]
            return launch_entry(case, group, groups, command.args, addresses)
        case EnqueueCopy():
            target = addresses[command.target.int_ptr] + command.target_offset
            return [COPY, target, addresses[command.source.int_ptr] + command.source_offset, command.nbytes]
        case _:
            content = np.asarray(command.pattern).tobytes()
            pattern = np.frombuffer(content * (MAX_PATTERN_NBYTES // len(content)), np.uint64).tolist()
            return [FILL, addresses[command.target.int_ptr] + command.offset, command.nbytes, 0, *pattern]


def launch_entry(
    case: int, group: Sequence[int], groups: Sequence[int], arguments: Iterable[Any], addresses: Mapping[int, int]
) -> list[int]:
    """Return a launch's entry; the arguments are buffers, None and NumPy values, as for OpenCL kernels."""
    group, groups = [*group, 1, 1][:3], [*groups, 1, 1][:3]
    words = [case, math.prod(group) * math.prod(groups), *group, *groups]
    for argument in arguments:
        content = _content(argument, addresses)
        count = -(-len(content) // 8)
        words += [0] * (-len(words) % (count or 1))
        words += np.frombuffer(content.ljust(8 * count, b"\0"), np.uint64).tolist()
    return words


def _content(argument: Any, addresses: Mapping[int, int]) -> bytes:
    if argument is None:
        return bytes(8)
    if isinstance(argument, cl.MemoryObject):
        return np.uint64(addresses[argument.int_ptr]).tobytes()
    return np.asarray(argument).tobytes()


def table_of(entries: Iterable[Sequence[int]], padding: int = 0) -> tuple[HostArray, list[int]]:
    """Concatenate entries to an array with `padding` words at its end; return the array and the start of each entry."""
    words: list[int] = []
    starts = []
    for entry in unhurried(entries):
        starts.append(len(words))
        words += entry
        words += [0] * (-len(words) % _ALIGNED_WORDS)
    return np.array([*words, *[0] * padding], np.uint64), starts


def buffers_of(commands: Iterable[Any]) -> list[cl.Buffer]:
    """Return the distinct buffers that commands use."""
    return list({buffer.int_ptr: buffer for command in commands for _, buffer in command.operands()}.values())


def addresses_of(context: Context, program: cl.Program, buffers: Sequence[cl.Buffer]) -> dict[int, int]:
    """Map buffer handles to addresses, without waiting for the context's queue; the buffers must not move."""
    if not buffers:
        return {}
    addresses = np.zeros(len(buffers), np.uint64)
    target = cl.Buffer(context.cl_context, cl.mem_flags.WRITE_ONLY, addresses.nbytes)
    kernel = cl.Kernel(program, ADDRESS)
    queue = cl.CommandQueue(context.cl_context, context.device)
    for index, buffer in enumerate(unhurried(buffers)):
        kernel.set_args(buffer, target, np.uint64(index))
        cl.enqueue_nd_range_kernel(queue, kernel, (1,), (1,))
    cl.enqueue_copy(queue, addresses, target, is_blocking=True)
    return {buffer.int_ptr: int(address) for buffer, address in zip(buffers, addresses, strict=True)}
