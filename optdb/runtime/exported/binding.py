"""A trace that is bound to the sizes of one call, with memory and kernels.

Here the numbers of a file meet a device. Each is checked before use: copies, fills and uploads lie
within their memory, and kernels get as many arguments as they take, each of its kind.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from optdb.runtime.arrays import span, to_host
from optdb.runtime.buffer_assignment import BufferAssignment, CommandGroup, Liveness, check_device_memory, liveness
from optdb.runtime.commands import (
    Command,
    CommandList,
    EnqueueCopy,
    EnqueueFill,
    EnqueueKernel,
    EnqueueUpload,
    Memory,
)
from optdb.runtime.context import Context
from optdb.runtime.exported.archive import Archive
from optdb.runtime.exported.errors import FileError
from optdb.runtime.exported.limits import Budget
from optdb.runtime.exported.programs import Kernels
from optdb.runtime.exported.reading import FileTrace, MemorySpec
from optdb.runtime.exported.rehearsal import Rehearsals
from optdb.runtime.exported.rules import Call, Values
from optdb.runtime.exported.sources import LONG16
from optdb.runtime.library import cl
from optdb.runtime.recording import ArrayLayout
from optdb.runtime.tables import TABLES

#: The most elements in a result: more cannot be addressed.
_MOST_ELEMENTS = 1 << 58
#: Host bytes of a bound command, including the driver's kernel, and of a size.
_COMMAND_BYTES = 8192
_VALUE_BYTES = 512
#: The largest number, and how many arrays there are while a table is made.
_NUMBER_BYTES = 16
_TABLE_ARRAYS = 3
_BYTES_OF_AN_ITEM = 64


@dataclass(frozen=True)
class Resources:
    """The resources that all traces of a loaded file share."""

    archive: Archive
    context: Context
    kernels: Kernels
    #: The buffers of the shared values.
    states: Sequence[cl.Buffer]
    budget: Budget
    #: Runs the first calls in a child process; None if nothing does.
    rehearsals: Rehearsals | None = None
    #: The buffers of constants that kernels read, by name; they are made on first use.
    constants: dict[str, cl.Buffer] = field(default_factory=dict)

    #: Held during a call.
    lock: threading.RLock = field(default_factory=threading.RLock)

    def buffer(self, name: str) -> cl.Buffer:
        """Return a buffer with constants."""
        if name not in self.constants:
            value = self.archive.array(name)
            self.budget.keep_on_device(value.nbytes, f"the constants in {name}")
            self.constants[name] = buffer_with(self.context, value)
        return self.constants[name]


def buffer_with(context: Context, value: np.ndarray) -> cl.Buffer:
    """Return a new buffer with an array in C order."""
    buffer = cl.Buffer(context.cl_context, cl.mem_flags.READ_WRITE, max(value.nbytes, 1))
    if value.nbytes:
        cl.enqueue_copy(context.queue, buffer, value, is_blocking=True)
    return buffer


class Bound:
    """A trace that is bound for calls like one, whose sizes are `values`.

    The arguments `free` may have other values in each call: it sets the kernel arguments that depend on them. Raises
    FileError if a command is not valid, LimitError if it takes more than the file may, and MemoryError if the device
    has no room for its values.
    """

    def __init__(
        self, trace: FileTrace, values: Values, call: Call, resources: Resources, free: frozenset[int]
    ) -> None:
        self._trace = trace
        self._values = values
        self._resources = resources
        #: Host bytes that this and a call of it take.
        self.host_bytes = self._host_bytes(call)
        resources.budget.reserve_host(self.host_bytes, "a call, with its results,")
        #: Memories that the file wants to begin where a buffer begins, besides those of its kernels.
        self._own_buffer: set[Memory] = set()
        self._memories = [self._memory(spec) for spec in trace.memories]
        commands = CommandList(self._command(said) for said in trace.commands)
        self._outputs = [self._output(output) for output in trace.outputs]
        live = self._liveness(commands)
        # Before buffers are assigned, which takes long where there are many memories.
        limits, peak_nbytes = resources.budget.limits, live.peak_nbytes
        limits.check("max_device_bytes", resources.budget.device_bytes + peak_nbytes, "what is computed in a call")
        self._check_work(commands)
        self._buffers = BufferAssignment(live, self._check_device_memory)
        #: Device bytes that its values take.
        self.nbytes = self._buffers.nbytes
        self._commands = CommandList()
        #: The commands that upload from the host in each call, each with its source and its space.
        self._uploads: list[tuple[EnqueueUpload, list[Any], int]] = []
        #: Kernels, slots and numbers of the kernel arguments that may change in each call.
        self._free: list[tuple[Any, int, list[Any]]] = []
        self._value_guards = trace.rules.value_guards(free)
        #: Whether a result is copied to the host, after all else in the queue.
        self._waits = any(output.get("memory") is not None for output in trace.outputs)
        for said, command in zip(trace.commands, commands, strict=True):
            self._bind(command, said)

    def suits(self, call: Call) -> bool:
        """Update the values for a call like the one that this is for; return False if a guard breaks."""
        if not self._value_guards:
            return True
        values = self._value_guards.values(self._values, call)
        if values is None:
            return False
        self._values = values
        for kernel, place, arg in self._free:
            kernel.set_arg(place, self._argument(arg))
        return True

    def run(self, call: Call) -> list[np.ndarray]:
        """Run the commands; return the results."""
        # All checks of a call come before its first command.
        sources = [np.asarray(self._source(source, call), order="C") for _, source, _ in self._uploads]
        for value, (_, _, space) in zip(sources, self._uploads, strict=True):
            if value.nbytes > space:
                raise FileError(f"{value.nbytes} bytes are to be uploaded, and there is room for {space}")
        # Dropping an event waits for its upload. At the end of the next call, these uploads are done, or that call
        # waits for a later command.
        last_events = [upload.event for upload, _, _ in self._uploads]
        for value, (upload, _, _) in zip(sources, self._uploads, strict=True):
            upload.value = value
        self._commands.enqueue()
        results = [output(call) for output in self._outputs]
        last_events.clear()
        return results

    def _host_bytes(self, call: Call) -> int:
        trace = self._trace
        nbytes = _COMMAND_BYTES * len(trace.commands) + _VALUE_BYTES * (len(trace.rules.entries) + len(trace.memories))
        nbytes += sum(self._source_bytes(command[3], call) for command in trace.commands if command[0] == "upload")
        return nbytes + sum(self._output_bytes(output, call) for output in trace.outputs)

    def _source_bytes(self, source: list[Any], call: Call) -> int:
        """Return the memory for an upload, at most: a table has as many numbers as its array."""
        match source:
            case ["argument", number]:
                return call.arguments[number].nbytes
            case ["array", name]:
                return self._resources.archive.array(name).nbytes
            case ["value", _, values]:
                return _NUMBER_BYTES * len(values)
            case ["shaped", inner, _]:
                return self._source_bytes(inner, call)
        # While a table is made, its source and the sorted copy exist, too.
        return _TABLE_ARRAYS * (self._source_bytes(source[2][0], call) * _NUMBER_BYTES + _NUMBER_BYTES)

    def _output_bytes(self, output: dict[str, Any], call: Call) -> int:
        """Return the host memory that a result takes."""
        match output:
            case {"values": values}:
                return _NUMBER_BYTES * len(values)
            case {"array": name}:
                return self._resources.archive.array(name).nbytes
            case {"source": source}:
                return 2 * self._source_bytes(source, call)
        shape = self._values.numbers(output["shape"])
        return math.prod(max(length, 0) for length in shape) * np.dtype(output["dtype"]).itemsize

    def _check_work(self, commands: CommandList) -> None:
        """Refuse more work than a call may take."""
        items = sum(math.prod(command.global_size) for command in commands if isinstance(command, EnqueueKernel))
        nbytes = sum(command.nbytes for command in commands if isinstance(command, EnqueueCopy | EnqueueFill))
        nbytes += sum(_space(command) for command in commands if isinstance(command, EnqueueUpload))
        self._resources.budget.limits.check("max_work_items", items + nbytes // _BYTES_OF_AN_ITEM, "a call")

    def _check_device_memory(self, context: cl.Context, nbytes: int, memories: Iterable[Memory]) -> None:
        """Refuse more memory than the file may take, or than the device has."""
        self._resources.budget.reserve_device(nbytes, "what is computed in a call")
        check_device_memory(context, nbytes, memories)

    def _memory(self, spec: MemorySpec) -> Memory:
        context = self._resources.context.cl_context
        if spec.nbytes is None:
            resources = self._resources
            buffer = resources.buffer(spec.array) if spec.state is None else resources.states[spec.state]
            return Memory(buffer.size, context, buffer)
        nbytes = self._values.number(spec.nbytes)
        if nbytes < 0:
            raise FileError(f"a memory is to have {nbytes} bytes")
        memory = Memory(nbytes, context)
        if spec.bare:
            self._own_buffer.add(memory)
        return memory

    def _command(self, said: list[Any]) -> Command:
        """Return a command of a file as one that can be bound; an upload's source stays as in the file."""
        queue, numbers = self._resources.context.queue, self._values.numbers
        match said:
            case ["launch", *parts]:
                return self._launch(*parts)
            case ["copy", target, target_offset, source, source_offset, nbytes]:
                target, source = self._memories[target], self._memories[source]
                target_offset, source_offset, nbytes = numbers((target_offset, source_offset, nbytes))
                _check_within(target, target_offset, nbytes)
                _check_within(source, source_offset, nbytes)
                if target is source and abs(target_offset - source_offset) < nbytes:
                    raise FileError("bytes are to be copied onto themselves")
                return EnqueueCopy(queue, target, target_offset, source, source_offset, nbytes)
            case ["fill", target, offset, nbytes, hexadecimal]:
                target, (offset, nbytes) = self._memories[target], numbers((offset, nbytes))
                _check_within(target, offset, nbytes)
                pattern = np.frombuffer(bytes.fromhex(hexadecimal), np.uint8)
                if nbytes % pattern.nbytes or offset % pattern.nbytes:
                    raise FileError(
                        f"{nbytes} bytes from {offset} on are to be filled with a pattern of {pattern.nbytes}"
                    )
                return EnqueueFill(queue, target, offset, nbytes, pattern)
        _, target, offset, source = said
        upload = EnqueueUpload(queue, self._memories[target], self._values.number(offset), source)
        _check_within(upload.target, upload.offset, 0)
        return upload

    def _launch(
        self, program: int, name: str, items: list, group: list | None, args: list, arrays: list
    ) -> EnqueueKernel:
        kernel = self._resources.kernels.get(program, name)
        sizes = self._values.numbers(items)
        groups = None if group is None else self._values.numbers(group)
        kernel.check_sizes(sizes, groups)
        bound_args = tuple(map(self._argument, args))
        for place in arrays:
            memory, offset = bound_args[place], int(bound_args[place + 1])
            if memory is not None and not 0 <= offset <= memory.nbytes:
                raise FileError(f"an array begins {offset} bytes into a memory of {memory.nbytes}")
        kernel.check_arguments(bound_args)
        # A memory that is not in `arrays` begins where a buffer begins, regardless of the file.
        return EnqueueKernel(self._resources.context.queue, kernel, sizes, groups, bound_args, tuple(arrays))

    def _argument(self, arg: list[Any] | None) -> Any:
        match arg:
            case ["memory", number]:
                return self._memories[number]
            case ["local", nbytes]:
                return cl.LocalMemory(nbytes)
            case ["number", dtype, values] if dtype == LONG16:
                packed = np.zeros((), cl.cltypes.long16)
                packed[()] = tuple(self._numbers("int64", values).tolist())
                return packed
            case ["number", dtype, [value]]:
                return _number(dtype, self._values.value(value))
        return None

    def _source(self, source: list[Any], call: Call) -> Any:
        """Return the value of an upload in a call."""
        match source:
            case ["argument", number]:
                return call.arguments[number]
            case ["array", name]:
                return self._resources.archive.array(name)
            case ["value", dtype, values]:
                return self._numbers(dtype, values)
            case ["shaped", inner, lengths]:
                value, shape = np.asarray(self._source(inner, call)), self._values.numbers(lengths)
                if len(shape) > 32 or math.prod(shape) != value.size or any(length < 0 for length in shape):
                    raise FileError(f"an array of shape {value.shape} is to get the shape {shape}")
                return value.reshape(shape)
        _, name, (inner, *numbers) = source
        value = self._source(inner, call)
        try:
            return TABLES[name][0](value, *map(self._values.value, numbers))
        except (AttributeError, TypeError) as error:
            raise FileError(f"the table {name} cannot be made of what it is given: {error}") from None

    def _numbers(self, dtype: str, said: Sequence[Any]) -> np.ndarray:
        return np.array([_number(dtype, self._values.value(value)) for value in said], dtype)

    def _output(self, output: dict[str, Any]) -> Callable[[Call], np.ndarray]:
        """Return the function that gives a result after a call."""
        dtype = np.dtype(output["dtype"])
        match output:
            case {"values": values, "vector": is_vector}:
                shape = (len(values),) if is_vector else (1,) * output.get("ndim", 0)
                return lambda call: self._numbers(dtype.name, values).reshape(shape)
            case {"array": name}:
                constant = self._resources.archive.array(name)
                return lambda call: constant.copy()
            case {"source": source}:
                return lambda call: np.array(self._source(source, call))
        layout = self._layout(output, dtype)
        return lambda call: to_host(self._buffers.array(layout))

    def _layout(self, output: dict[str, Any], dtype: np.dtype) -> ArrayLayout:
        shape, strides = (self._values.numbers(output[name]) for name in ("shape", "strides"))
        offset = self._values.number(output["offset"])
        if any(length < 0 for length in shape) or math.prod(max(length, 1) for length in shape) > _MOST_ELEMENTS:
            raise FileError(f"a result is to have the shape {shape}")
        number = output.get("memory")
        if 0 in shape:
            number, offset = None, 0
        elif number is None:
            raise FileError("a result has elements, and no memory")
        memory = None if number is None else self._memories[number]
        layout = ArrayLayout(self._resources.context.queue, memory, offset, shape, strides, dtype)
        if memory is not None:
            start, stop = span(layout)
            _check_within(memory, start, stop - start)
        return layout

    def _liveness(self, commands: CommandList) -> Liveness:
        """Return the liveness of each memory that has no buffer of its own."""
        outputs = [output.get("memory") for output in self._trace.outputs]
        results = [self._memories[number] for number in outputs if number is not None]
        live = liveness([CommandGroup(commands)], results)
        return replace(live, own_buffer=live.own_buffer | self._own_buffer)

    def _bind(self, command: Command, said: list[Any]) -> None:
        """Bind a command, unless it does nothing."""
        if isinstance(command, EnqueueCopy | EnqueueFill) and not command.nbytes:
            return
        if isinstance(command, EnqueueKernel) and 0 in command.global_size:
            return
        bound = command.bind(self._buffers.locate)
        self._commands.append(bound)
        if isinstance(bound, EnqueueUpload):
            # An upload blocks only if the caller may change its array, and if nothing waits at the end of the call.
            bound.is_blocking = not self._waits and command.value[0] in ("argument", "shaped")
            self._uploads.append((bound, command.value, _space(command)))
        elif isinstance(bound, EnqueueKernel):
            for slot, arg in enumerate(said[5]):
                if arg is not None and arg[0] == "number" and any(map(self._value_guards.has, arg[2])):
                    self._free.append((bound.kernel, slot, arg))


def _space(upload: EnqueueUpload) -> int:
    """Return the bytes that an upload may have."""
    return upload.target.nbytes - upload.offset


def _check_within(memory: Memory, offset: int, nbytes: int) -> None:
    if offset < 0 or nbytes < 0 or offset + nbytes > memory.nbytes:
        raise FileError(f"{nbytes} bytes from {offset} on are not within a memory of {memory.nbytes}")


def _number(dtype: str, value: Any) -> np.generic:
    """Return a number of a dtype; raise FileError if the dtype cannot hold it."""
    kind = np.dtype(dtype)
    if value is None:
        raise FileError(f"what stands where a {dtype} is wanted cannot be worked out")
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        if not isinstance(value, int) or not limits.min <= value <= limits.max:
            raise FileError(f"{value!r} stands where a {dtype} is wanted")
    with np.errstate(all="ignore"):
        return kind.type(value)
