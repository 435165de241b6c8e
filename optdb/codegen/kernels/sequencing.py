"""Replaces launches by one launch of a kernel that runs them in sequence, for ``optdb.runtime.merging``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from optdb.codegen.kernels.programs import TranslationUnit, known_origin, origin
from optdb.codegen.kernels.sequences import (
    ADDRESS,
    SEQUENCE,
    copy_entry,
    fill_entry,
    launch_entry,
    listed,
    sequence_program,
)
from optdb.runtime.build import make
from optdb.runtime.commands import EnqueueCopy, EnqueueKernel
from optdb.runtime.library import cl

__all__ = ["SequenceProgram", "Sequencer"]


class Sequencer:
    """Writes kernels that run kernels of this package; it tells these by their unit, and their name in it."""

    def kernel_of(self, command: EnqueueKernel) -> tuple[TranslationUnit, str] | None:
        """Return a launch's kernel; None if its body is no function that another kernel can call."""
        kernel = origin(command.kernel)
        return kernel if kernel is not None and kernel[0].outlines(kernel[1]) else None

    def program(self, kernels: Sequence[tuple[TranslationUnit, str]]) -> SequenceProgram:
        """Build a program that runs sequences of some kernels."""
        return SequenceProgram(kernels)


class SequenceProgram:
    """A program that runs sequences of some kernels, all of one context."""

    def __init__(self, kernels: Sequence[tuple[TranslationUnit, str]]) -> None:
        source, self._cases = sequence_program(kernels)
        self._program = make(kernels[0][0].context, source, name="what merges launches")
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
        return [EnqueueKernel(queue, kernel, (1,), (1,), (list_,)).prepare()]

    def _entry(self, command: Any) -> list[int]:
        match command:
            case EnqueueKernel():
                case = self._cases[known_origin(command.kernel)]
                return launch_entry(case, command.global_size, command.args, self._addresses)
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
