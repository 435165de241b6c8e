"""Traces the commands of a function for inputs of more than one shape, without a device.

A :class:`Tracer` listens to commands as a recorder does (``optdb.runtime.recording``), but in place of the device:
arrays have no memory, their lengths may be sizes (``optdb.runtime.sizes``), and uploads may have unknown values. So
a function can be traced for a device that is not there. An operation that needs values ends the trace.

The result is a :class:`Trace`, which ``optdb.runtime.exported.writing`` puts into a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from optdb.numpy_types import AnyDtype, HostArray
from optdb.runtime.arrays import DeviceArray
from optdb.runtime.build import source_of
from optdb.runtime.commands import (
    CommandList,
    EnqueueDownload,
    EnqueueKernel,
    EnqueueUpload,
    HostCall,
    Memory,
)
from optdb.runtime.context import Context
from optdb.runtime.deferred import DeferredArray
from optdb.runtime.library import cl
from optdb.runtime.recording import Recorder
from optdb.runtime.sizes import ShapeEnv


@dataclass(frozen=True)
class Code:
    """A kernel, as its program's source and its name there."""

    source: str
    function_name: str


class Untraceable(RuntimeError):
    """A function does something that cannot be traced. The message names it and the cure."""


@dataclass(frozen=True)
class OutputSpec:
    """A result of a traced function: its layout on the device, or its value.

    The value is an ArrayLayout, DeferredArray, SymInt, SymIntVector or numpy.ndarray.
    """

    value: Any
    dtype: AnyDtype


@dataclass
class Trace:
    """The commands, sizes and results of a traced function."""

    #: The kind that its kernels are written for, 'cpu' or 'gpu'.
    device_kind: str
    #: The number of compute units over which the example's work was divided.
    compute_units: int
    #: The expressions of its sizes, and the guards under which it holds.
    rules: ShapeEnv = field(default_factory=ShapeEnv)
    #: The shape of each argument.
    arguments: list[tuple[Any, ...]] = field(default_factory=list)
    #: The number of the shared value in a memory.
    states: dict[Memory, int] = field(default_factory=dict)
    #: The values of a memory that never change.
    constants: dict[Memory, HostArray] = field(default_factory=dict)
    #: In order; their numbers may be sizes, and an upload's value a `DeferredArray`.
    commands: CommandList = field(default_factory=CommandList)
    outputs: list[OutputSpec] = field(default_factory=list)
    #: The dtypes that kernels compute in and that not every device has.
    flags: set[str] = field(default_factory=set)


class Tracer(Recorder):
    """Listens to the commands of one thread in place of the device, and writes a trace."""

    tracing = True
    takes_bound = False

    def __init__(self, trace: Trace, context: Context) -> None:
        super().__init__()
        self.trace = trace
        self._context = context
        # Kept alive, so that no other buffer gets one of their handles.
        self._alive: list[Any] = []

    @contextmanager
    def following(self) -> Iterator[None]:
        """Trace the commands of the block."""
        with self.segment() as segment:
            segment.commands = self.trace.commands
            yield

    def state(self, queue: cl.CommandQueue, number: int, shape: Sequence[int], dtype: Any) -> DeviceArray:
        """Return the array of a shared value; within `following`."""
        array = DeviceArray(queue, tuple(shape), dtype)
        if array.base_data is not None:
            self.allocate(array.base_data, array.nbytes)
            self.trace.states[self.memory(array.base_data)] = number
        return array

    def memory(self, buffer: cl.Buffer) -> Memory:
        """Return a buffer's name in the trace."""
        self._alive.append(buffer)
        return super().memory(buffer)

    def on(self, command: Any) -> None:
        """Record a command, a launch with its kernel's source; raise Untraceable if a file cannot hold it."""
        match command:
            case EnqueueKernel():
                source = source_of(self._context, command.kernel.program)
                if not source:
                    raise Untraceable(f"nothing is known of what the kernel {command.name} was built from")
                self.write(replace(command, kernel=Code(source, command.name)))
            case EnqueueDownload() | HostCall():
                raise Untraceable(command.reason)
            case _:
                self.write(command)

    def allocate(self, buffer: cl.Buffer, nbytes: int) -> Memory:
        """Record a new buffer."""
        self._alive.append(buffer)
        return super().allocate(buffer, nbytes)

    def _write_upload(self, command: EnqueueUpload) -> None:
        """Record an upload, of a deferred array or of the present values."""
        is_known = not isinstance(command.value, DeferredArray)
        value = np.array(command.value, order="C") if is_known else command.value
        target = self.memory(command.target)
        if command.is_constant and is_known and isinstance(command.offset, int) and not command.offset:
            self.trace.constants[target] = value
            return
        self._segment.commands.append(EnqueueUpload(command.queue, target, command.offset, value))
