"""Puts functions into a file: traces, signatures, and the shared values.

``docs/reference/exported-files.md`` describes the format. A number of a trace is a plain one, or ``"$7"`` for the size
that the trace's entry 7 computes.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from optdb.runtime.calling import Signature
from optdb.runtime.commands import Command, EnqueueCopy, EnqueueFill, EnqueueKernel, Memory
from optdb.runtime.exported.archive import array_bytes, pack
from optdb.runtime.exported.preprocessing import preprocess
from optdb.runtime.exported.reading import Function, SharedValue
from optdb.runtime.exported.sources import SourceError, read_program
from optdb.runtime.library import cl
from optdb.runtime.recording import ArrayLayout
from optdb.runtime.sizes import DeferredArray, SymbolicArgument, SymInt, SymIntVector
from optdb.runtime.tracing import Trace, Untraceable


def write(path: str | Path, functions: Sequence[Function], states: Sequence[SharedValue], about: str = "") -> None:
    """Write functions over the same shared values into a file, which replaces what is there.

    The first function is what a call of the loaded file calls; `states` are by the numbers that traces know them by. No
    two of either have one name. `about` says what made the file.
    """
    members = _Members()
    described = [
        {"name": state.name, "broadcastable": state.broadcastable, "array": members.array(state.value)}
        for state in states
    ]
    methods = [
        {
            "name": function.name,
            "signature": _signature(function.signature, members),
            "traces": [_TraceWriter(trace, members).described() for trace in function.traces],
        }
        for function in functions
    ]
    manifest = {"about": about, "states": described, "programs": members.programs, "methods": methods}
    pack(Path(path), manifest, members.contents)


def describe(trace: Trace) -> tuple[list[Any], dict[str, bytes]]:
    """Return the memories, commands and results of a trace in the form of a file, and the members that they name."""
    members = _Members()
    described = _TraceWriter(trace, members).described()
    return [described[name] for name in ("memories", "commands", "outlets")], members.contents


class _Members:
    """The members of a file, each content once."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.programs: list[dict[str, Any]] = []
        self._numbers: dict[str, int] = {}
        self._arrays: dict[bytes, str] = {}

    def array(self, value: np.ndarray) -> str:
        """Return the name of the member for an array."""
        content = array_bytes(value)
        if content not in self._arrays:
            name = self._arrays[content] = f"arrays/{len(self._arrays)}.npy"
            self.contents[name] = content
        return self._arrays[content]

    def program(self, source: str) -> int:
        """Return the number of a program, written as the compiler sees it; Untraceable if a file cannot hold it."""
        if source not in self._numbers:
            try:
                plain, kernels = _plain_program(source)
            except SourceError as error:
                raise Untraceable(f"a kernel {error}. Its source begins with\n{source[:200]}") from None
            self._numbers[source] = self._numbers.get(plain, len(self.programs))
            if plain not in self._numbers:
                name = f"programs/{len(self.programs)}.cl"
                self._numbers[plain] = len(self.programs)
                self.contents[name] = plain.encode()
                self.programs.append({"source": name, "kernels": kernels})
        return self._numbers[source]


@functools.lru_cache(maxsize=512)
def _plain_program(source: str) -> tuple[str, Mapping[str, Sequence[str]]]:
    plain = preprocess(source)
    return plain, read_program(plain)


def _signature(signature: Signature, members: _Members) -> dict[str, Any]:
    arguments = []
    for argument in signature.arguments:
        default = None if argument.default is None else members.array(argument.default)
        # The file calls the fields as the class does.
        arguments.append({**vars(argument), "default": default})
    return {"arguments": arguments, "returns": signature.returns, "keys": signature.keys}


class _TraceWriter:
    """Describes one trace."""

    def __init__(self, trace: Trace, members: _Members) -> None:
        self._trace = trace
        self._members = members
        self._memories: dict[Memory, int] = {}
        self._described: list[dict[str, Any]] = []
        self._own_buffer = trace.commands.needing_own_buffer()

    def described(self) -> dict[str, Any]:
        """Return the manifest's description of the trace."""
        trace = self._trace
        commands = [self._command(command) for command in trace.commands]
        outputs = [{"dtype": output.dtype.name, **self._output(output.value)} for output in trace.outputs]
        return {
            "flavour": trace.device_kind,
            "units": trace.compute_units,
            "flags": sorted(trace.flags),
            "entries": [[_plain(x) for x in entry] for entry in trace.rules.entries],
            "guards": [[_plain(x) for x in guard] for guard in trace.rules.guards],
            "arguments": [_numbers(shape) for shape in trace.arguments],
            "memories": self._described,
            "commands": commands,
            "outlets": outputs,
        }

    def _command(self, command: Command) -> list[Any]:
        match command:
            case EnqueueKernel(_, kernel, items, group, args, arrays):
                program = self._members.program(kernel.source)
                args = [self._argument(arg) for arg in args]
                group = None if group is None else _numbers(group)
                return ["launch", program, kernel.function_name, _numbers(items), group, args, list(arrays)]
            case EnqueueCopy(_, target, target_offset, source, source_offset, nbytes):
                target, source = self._memory(target), self._memory(source)
                return ["copy", *_numbers([target, target_offset, source, source_offset, nbytes])]
            case EnqueueFill(_, target, offset, nbytes, pattern):
                return ["fill", *_numbers([self._memory(target), offset, nbytes]), np.asarray(pattern).tobytes().hex()]
        return ["upload", self._memory(command.target), _number(command.offset), self._source(command.value)]

    def _argument(self, arg: Any) -> list[Any] | None:
        match arg:
            case None:
                return None
            case Memory():
                return ["memory", self._memory(arg)]
            case cl.LocalMemory():
                return ["local", arg.size]
            case SymbolicArgument(dtype, values):
                return ["number", _dtype_name(dtype), _numbers(values)]
        value = np.asarray(arg)
        return ["number", _dtype_name(value.dtype), [_plain(x) for x in _items(value)]]

    def _source(self, value: DeferredArray | np.ndarray) -> list[Any]:
        match getattr(value, "source", None):
            case None:
                return ["array", self._members.array(value)]
            case ["argument", number]:
                return ["argument", number]
            case ["value", number]:
                return ["value", value.dtype.name, [_number(number)]]
            case ["values", numbers]:
                return ["value", value.dtype.name, _numbers(numbers)]
            case ["shaped", inner]:
                return ["shaped", self._source(inner), _numbers(value.shape)]
            case ["table", name, args]:
                arrays = DeferredArray | np.ndarray
                return ["table", name, [self._source(x) if isinstance(x, arrays) else _number(x) for x in args]]
        raise Untraceable(f"{value.described} would have to be uploaded")

    def _output(self, value: Any) -> dict[str, Any]:
        match value:
            case ArrayLayout():
                memory = None if value.memory is None else self._memory(value.memory)
                lengths = {"shape": _numbers(value.shape), "strides": _numbers(value.strides)}
                return {"memory": memory, "offset": _number(value.offset), **lengths}
            case SymInt():
                return {"values": [_number(value)], "vector": False}
            case SymIntVector():
                return {"values": _numbers(value), "vector": True}
            case DeferredArray(source=("value", number)):
                return {"values": [_number(number)], "vector": False, "ndim": value.ndim}
            case DeferredArray():
                return {"source": self._source(value)}
        return {"array": self._members.array(value)}

    def _memory(self, memory: Memory) -> int:
        if memory not in self._memories:
            self._memories[memory] = len(self._memories)
            self._described.append(self._content(memory))
        return self._memories[memory]

    def _content(self, memory: Memory) -> dict[str, Any]:
        if memory in self._trace.states:
            return {"state": self._trace.states[memory]}
        bare = memory in self._own_buffer
        if memory in self._trace.constants:
            return {"array": self._members.array(self._trace.constants[memory]), "bare": bare}
        if memory.buffer is not None:
            content = np.empty(memory.buffer.size, np.uint8)
            with cl.CommandQueue(memory.context) as queue:
                cl.enqueue_copy(queue, content, memory.buffer)
            return {"array": self._members.array(content), "bare": bare}
        return {"nbytes": _number(memory.nbytes), "bare": bare}


def _items(value: np.ndarray) -> list[Any]:
    """Return the numbers of one number, or of a vector of OpenCL's."""
    return list(value[()]) if value.dtype.names or value.dtype.subdtype else [value[()]]


def _dtype_name(dtype: np.dtype) -> str:
    return "long16" if dtype == cl.cltypes.long16 else dtype.name


def _number(x: Any) -> Any:
    return f"${x.number}" if isinstance(x, SymInt) else _plain(x)


def _numbers(values: Sequence[Any]) -> list[Any]:
    return [_number(x) for x in values]


def _plain(x: Any) -> Any:
    value = x.item() if isinstance(x, np.generic) else x
    if isinstance(value, complex):
        raise Untraceable("a kernel is given a complex number, which a file cannot hold")
    # JSON has no infinity: such numbers are written as texts.
    return repr(value) if isinstance(value, float) and not np.isfinite(value) else value
