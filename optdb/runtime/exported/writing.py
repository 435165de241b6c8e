"""Writes functions to a file: their traces, signatures and shared values, as the records in ``manifest``."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from optdb.numpy_types import AnyDtype, HostArray
from optdb.runtime.calling import Signature
from optdb.runtime.commands import Command, CommandList, EnqueueCopy, EnqueueFill, EnqueueKernel, EnqueueUpload, Memory
from optdb.runtime.deferred import DeferredArray, FromArgument, FromArray, FromNumbers, FromTable, Reshaped, SavedSource
from optdb.runtime.exported.archive import pack
from optdb.runtime.exported.manifest import (
    ArrayResult,
    ConstantMemory,
    ConstantResult,
    Function,
    HostResult,
    Manifest,
    MemorySpec,
    NumbersResult,
    ProgramSpec,
    Result,
    SavedTrace,
    SharedMemory,
    SharedValue,
    Workspace,
)
from optdb.runtime.exported.preprocessing import preprocess
from optdb.runtime.exported.sources import SourceError, read_program
from optdb.runtime.expressions import LONG16, KernelRef, LocalArgument, NumberArgument, Slot
from optdb.runtime.library import cl
from optdb.runtime.recording import ArrayLayout, OutputSpec, Trace, Untraceable
from optdb.runtime.records import Members
from optdb.runtime.sizes import SymbolicArgument, SymInt, SymIntVector, operand


def write(
    path: str | Path,
    functions: Mapping[str, tuple[Signature, Sequence[Trace]]],
    states: Sequence[SharedValue],
    about: str = "",
) -> None:
    """Write functions and their shared values to a file, which is replaced if it exists.

    `functions` maps names to signatures and traces; calling the loaded file calls the first function. A trace's
    `states` are indices into the argument `states`. `about` names the program that creates the file.
    """
    programs = Programs()
    methods = [
        Function(name, signature, [saved(trace, programs) for trace in traces])
        for name, (signature, traces) in functions.items()
    ]
    members = Members()
    manifest = Manifest(about, states, programs.specs, methods).to_json(members)
    pack(Path(path), manifest, members.contents)


def saved(trace: Trace, programs: Programs) -> SavedTrace:
    """Convert a trace to the record that a file stores, and add its kernels to `programs`."""
    return _TraceWriter(trace, programs).saved()


class Programs:
    """The programs in a file, without duplicates."""

    def __init__(self) -> None:
        self.specs: list[ProgramSpec] = []
        self._numbers: dict[str, int] = {}

    def number(self, source: str) -> int:
        """Preprocess and add a program, and return its index; raise Untraceable if a file cannot store it."""
        if source not in self._numbers:
            try:
                spec = _plain_program(source)
            except SourceError as error:
                raise Untraceable(f"a kernel {error}. Its source begins with\n{source[:200]}") from None
            if spec.source not in self._numbers:
                self._numbers[spec.source] = len(self.specs)
                self.specs.append(spec)
            self._numbers[source] = self._numbers[spec.source]
        return self._numbers[source]


@functools.lru_cache(maxsize=512)
def _plain_program(source: str) -> ProgramSpec:
    plain = preprocess(source)
    return ProgramSpec(plain, read_program(plain))


class _TraceWriter:
    def __init__(self, trace: Trace, programs: Programs) -> None:
        self._trace = trace
        self._programs = programs
        self._slots: dict[Memory, Slot] = {}
        self._memories: list[MemorySpec] = []
        self._own_buffer = trace.commands.needing_own_buffer()

    def saved(self) -> SavedTrace:
        trace = self._trace
        commands = CommandList(map(self._command, trace.commands))
        results = [self._result(output) for output in trace.outputs]
        return SavedTrace(
            trace.device_kind,
            trace.compute_units,
            tuple(sorted(trace.flags)),
            trace.rules.entries,
            list(trace.rules.guards),
            tuple(map(_operands, trace.arguments)),
            self._memories,
            commands,
            results,
        )

    def _command(self, command: Command) -> Command:
        # Saved commands have no queue.
        command = replace(command.with_operands(self._slot), queue=cast("cl.CommandQueue", None))
        match command:
            case EnqueueKernel():
                command.kernel = KernelRef(self._programs.number(command.kernel.source), command.name)
                command.global_size = _operands(command.global_size)
                command.local_size = None if command.local_size is None else _operands(command.local_size)
                command.args = tuple(map(_argument, command.args))
                return command
            case EnqueueCopy():
                command.target_offset, command.source_offset = _operands([command.target_offset, command.source_offset])
                command.nbytes = operand(command.nbytes)
                return command
            case EnqueueFill():
                command.nbytes, command.pattern = operand(command.nbytes), np.asarray(command.pattern).tobytes()
            case EnqueueUpload():
                command.value = _source(command.value)
            case _:
                raise TypeError(f"files cannot contain {command.name}")
        command.offset = operand(command.offset)
        return command

    def _result(self, output: OutputSpec) -> Result:
        dtype, value = output.dtype.name, output.value
        match value:
            case ArrayLayout():
                memory = None if value.memory is None else self._slot(value.memory)
                return ArrayResult(
                    dtype, memory, operand(value.offset), _operands(value.shape), _operands(value.strides)
                )
            case SymInt():
                return NumbersResult(dtype, (operand(value),), 0)
            case SymIntVector():
                return NumbersResult(dtype, _operands(value), 1)
            case DeferredArray(source=FromNumbers(numbers=numbers)):
                return NumbersResult(dtype, _operands(numbers), value.ndim)
            case DeferredArray():
                return HostResult(_source(value))
        return ConstantResult(value)

    def _slot(self, memory: Memory) -> Slot:
        if memory not in self._slots:
            self._slots[memory] = Slot(len(self._slots))
            self._memories.append(self._spec(memory))
        return self._slots[memory]

    def _spec(self, memory: Memory) -> MemorySpec:
        if memory in self._trace.states:
            return SharedMemory(self._trace.states[memory])
        if memory in self._trace.constants:
            return ConstantMemory(self._trace.constants[memory])
        if memory.buffer is not None:
            content = np.empty(memory.buffer.size, np.uint8)
            with cl.CommandQueue(memory.context) as queue:
                cl.enqueue_copy(queue, content, memory.buffer)
            return ConstantMemory(content)
        return Workspace(operand(memory.nbytes), memory in self._own_buffer)


def _operands(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(map(operand, values))


def _argument(arg: Any) -> Any:
    match arg:
        case None | Slot():
            return arg
        case cl.LocalMemory():
            return LocalArgument(arg.size)
        case SymbolicArgument():
            return NumberArgument(_dtype_name(arg.dtype), _operands(arg.values))
    value = np.asarray(arg)
    # NumPy represents an OpenCL vector as one array element.
    is_vector = value.dtype.names or value.dtype.subdtype
    numbers = [operand(x) for x in (value[()] if is_vector else [value[()]])]
    if any(isinstance(number, complex) for number in numbers):
        raise Untraceable("a kernel takes a complex number, which a file cannot contain")
    return NumberArgument(_dtype_name(value.dtype), tuple(numbers))


def _source(value: DeferredArray | HostArray) -> SavedSource:
    if not isinstance(value, DeferredArray):
        return FromArray(value)
    source = value.source
    match source:
        case FromArgument():
            return source
        case FromNumbers():
            return FromNumbers(source.dtype, _operands(source.numbers))
        case Reshaped():
            return Reshaped(_source(source.array), _operands(value.shape))
        case FromTable():
            return FromTable(source.table, _source(source.array), _operands(source.numbers))
    raise Untraceable(f"a file cannot contain {source}, which would have to be uploaded")


def _dtype_name(dtype: AnyDtype) -> str:
    return LONG16 if dtype == cl.cltypes.long16 else dtype.name
