"""Traces of a function's commands, created without a device and valid for inputs of more than one shape.

A :class:`Tracer` is a recorder that does not enqueue commands: arrays have no memory, axis lengths may be symbolic, and
uploads may have unknown values. Tracing fails at an operation that needs values.
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
from optdb.runtime.commands import CommandList, EnqueueDownload, EnqueueKernel, EnqueueUpload, HostCall, Memory
from optdb.runtime.context import Context
from optdb.runtime.deferred import DeferredArray
from optdb.runtime.library import cl
from optdb.runtime.recording import Recorder
from optdb.runtime.sizes import ShapeEnv


@dataclass(frozen=True)
class Code:
    """A kernel, identified by its program's source and its name in the program."""

    source: str
    function_name: str


class Untraceable(RuntimeError):
    """A function contains an operation that cannot be traced. The message names the operation and the cure."""


@dataclass(frozen=True)
class OutputSpec:
    """A result: an ArrayLayout, DeferredArray, SymInt, SymIntVector or numpy.ndarray."""

    value: Any
    dtype: AnyDtype


@dataclass
class Trace:
    """A traced function's commands, sizes and results."""

    device_kind: str
    #: The number of compute units in the example call.
    compute_units: int
    rules: ShapeEnv = field(default_factory=ShapeEnv)
    #: The shape of each argument.
    arguments: list[tuple[Any, ...]] = field(default_factory=list)
    #: Maps the `Memory` of each shared value to its number.
    states: dict[Memory, int] = field(default_factory=dict)
    #: Maps each `Memory` that never changes to its values.
    constants: dict[Memory, HostArray] = field(default_factory=dict)
    #: The commands; numbers may be symbolic, and uploads deferred.
    commands: CommandList = field(default_factory=CommandList)
    outputs: list[OutputSpec] = field(default_factory=list)
    #: The dtypes that kernels compute in but that some devices lack.
    flags: set[str] = field(default_factory=set)


class Tracer(Recorder):
    """Records one thread's commands in a trace instead of enqueueing them."""

    tracing = True
    takes_bound = False

    def __init__(self, trace: Trace, context: Context) -> None:
        super().__init__()
        self.trace = trace
        self._context = context
        # Buffers kept alive so that drivers do not reuse their handles.
        self._alive: list[Any] = []

    @contextmanager
    def following(self) -> Iterator[None]:
        """Trace the commands of the block."""
        with self.segment() as segment:
            segment.commands = self.trace.commands
            yield

    def state(self, queue: cl.CommandQueue, number: int, shape: Sequence[int], dtype: Any) -> DeviceArray:
        """Return the array of a shared value; call this within `following`."""
        array = DeviceArray(queue, tuple(shape), dtype)
        if array.base_data is not None:
            self.allocate(array.base_data, array.nbytes)
            self.trace.states[self.memory(array.base_data)] = number
        return array

    def memory(self, buffer: cl.Buffer) -> Memory:
        self._alive.append(buffer)
        return super().memory(buffer)

    def on(self, command: Any) -> None:
        """Record a command, and the kernel source of a launch; raise Untraceable if a file cannot store the command."""
        match command:
            case EnqueueKernel():
                source = source_of(self._context, command.kernel.program)
                if not source:
                    raise Untraceable(f"the source of the kernel {command.name} is unknown")
                self.write(replace(command, kernel=Code(source, command.name)))
            case EnqueueDownload() | HostCall():
                raise Untraceable(command.reason)
            case _:
                self.write(command)

    def allocate(self, buffer: cl.Buffer, nbytes: int) -> Memory:
        self._alive.append(buffer)
        return super().allocate(buffer, nbytes)

    def _write_upload(self, command: EnqueueUpload) -> None:
        is_known = not isinstance(command.value, DeferredArray)
        value = np.array(command.value, order="C") if is_known else command.value
        target = self.memory(command.target)
        if command.is_constant and is_known and isinstance(command.offset, int) and not command.offset:
            self.trace.constants[target] = value
            return
        self._segment.commands.append(EnqueueUpload(command.queue, target, command.offset, value))
