"""Traces bound to the sizes in a call, with their memory and kernels.

Every number in a file is checked before it reaches a device: transfers must stay within their memory, and kernels must
receive the declared number and kinds of arguments.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from optdb.numpy_types import HostArray
from optdb.runtime.arrays import span, to_host
from optdb.runtime.buffer_assignment import BufferAssignment, CommandGroup, check_device_memory, liveness
from optdb.runtime.commands import Command, CommandList, EnqueueCopy, EnqueueFill, EnqueueKernel, EnqueueUpload, Memory
from optdb.runtime.context import Context
from optdb.runtime.deferred import TABLES, FromArgument, FromArray, FromNumbers, FromTable, Reshaped, SavedSource
from optdb.runtime.errors import FileError
from optdb.runtime.exported.archive import MAX_DIMENSIONS, MAX_ELEMENTS, Archive, Limits
from optdb.runtime.exported.manifest import (
    ArrayResult,
    ConstantMemory,
    ConstantResult,
    HostResult,
    MemorySpec,
    NumbersResult,
    Result,
    SavedTrace,
    SharedMemory,
)
from optdb.runtime.exported.programs import Kernels
from optdb.runtime.exported.rehearsal import Rehearsals
from optdb.runtime.exported.rules import Call, GuardSet, Values
from optdb.runtime.expressions import LONG16, LocalArgument, NumberArgument
from optdb.runtime.library import cl
from optdb.runtime.recording import ArrayLayout

#: Upper bound, in bytes, on the host memory that a bound command takes, including the driver's kernel object.
_COMMAND_BYTES = 8192
#: Upper bound, in bytes, on the host memory that a size takes.
_VALUE_BYTES = 512
#: The size in bytes of the largest number type.
_NUMBER_BYTES = 16
#: The number of arrays in memory while a table is computed: the source, a sorted copy, and the table.
_TABLE_ARRAYS = 3
_BYTES_OF_AN_ITEM = 64
#: The maximum number of bound traces that a function caches together with their memory.
MAX_BOUND_PER_METHOD = 8


class Budget:
    """The memory that a loaded file uses, and an LRU cache of bound traces."""

    def __init__(self, limits: Limits, host_bytes: int) -> None:
        self.limits = limits
        #: The numbers of device bytes and host bytes that are never freed.
        self.device_bytes = 0
        self._host_bytes = host_bytes
        self._bound: OrderedDict[tuple[str, Hashable], Bound] = OrderedDict()

    def get(self, method: str, key: Hashable) -> Bound | None:
        """Return a method's bound trace for a key and mark the trace as most recently used."""
        bound = self._bound.get((method, key))
        if bound is not None:
            self._bound.move_to_end((method, key))
        return bound

    def put(self, method: str, key: Hashable, bound: Bound) -> None:
        """Cache a method's bound trace under a key."""
        self._bound[method, key] = bound

    def of_method(self, method: str) -> list[Bound]:
        """Return a method's cached traces."""
        return [bound for (name, _), bound in self._bound.items() if name == method]

    def begin(self, method: str) -> None:
        """Evict a method's least recently used trace if the method's cache is full."""
        ours = [key for key in self._bound if key[0] == method]
        for key in ours[: max(len(ours) + 1 - MAX_BOUND_PER_METHOD, 0)]:
            del self._bound[key]

    def keep_on_device(self, nbytes: int, what: str) -> None:
        """Reserve device memory permanently; raise LimitError if the total exceeds the limit."""
        self.reserve_device(nbytes, what)
        self.device_bytes += nbytes

    def reserve_device(self, nbytes: int, what: str) -> None:
        """Evict traces until the requested device memory fits within the limit; raise LimitError if it cannot fit."""
        self.limits.check("max_device_bytes", self.device_bytes + nbytes, what)
        self._evict("max_device_bytes", "nbytes", self.device_bytes + nbytes)

    def reserve_host(self, nbytes: int, what: str) -> None:
        """Evict traces until the requested host memory fits within the limit; raise LimitError if it cannot fit."""
        self.limits.check("max_host_bytes", self._host_bytes + nbytes, what)
        self._evict("max_host_bytes", "host_bytes", self._host_bytes + nbytes)

    def _evict(self, limit: str, attribute: str, wanted: int) -> None:
        wanted += sum(getattr(bound, attribute) for bound in self._bound.values())
        while wanted > getattr(self.limits, limit) and self._bound:
            _, bound = self._bound.popitem(last=False)
            wanted -= getattr(bound, attribute)


@dataclass(frozen=True)
class Resources:
    """The resources that all traces of a loaded file share."""

    archive: Archive
    context: Context
    kernels: Kernels
    states: Sequence[cl.Buffer]
    budget: Budget
    #: Runs first calls in a child process; None if first calls run only in this process.
    rehearsals: Rehearsals | None = None
    #: Maps the id of a constant, which the archive keeps alive, to its buffer.
    constants: dict[int, cl.Buffer] = field(default_factory=dict)

    #: The lock held during a call.
    lock: threading.RLock = field(default_factory=threading.RLock)

    def buffer(self, constant: HostArray) -> cl.Buffer:
        """Return a constant's buffer."""
        if id(constant) not in self.constants:
            self.budget.keep_on_device(constant.nbytes, f"constants of {constant.nbytes:,} bytes")
            self.constants[id(constant)] = buffer_with(self.context, constant)
        return self.constants[id(constant)]

    def check_device_memory(self, context: cl.Context, nbytes: int, memories: Iterable[Memory]) -> None:
        """Raise an error if `nbytes` exceeds the file's limit or the device's memory."""
        self.budget.reserve_device(nbytes, "values computed in a call")
        check_device_memory(context, nbytes, memories)


def buffer_with(context: Context, value: HostArray) -> cl.Buffer:
    """Return a new buffer with the values of a C-contiguous array."""
    buffer = cl.Buffer(context.cl_context, cl.mem_flags.READ_WRITE, max(value.nbytes, 1))
    if value.nbytes:
        cl.enqueue_copy(context.queue, buffer, value, is_blocking=True)
    return buffer


#: The layout of a result on the device, or the record from which the host computes the result.
_Output = NumbersResult | ConstantResult | HostResult | ArrayLayout


class Bound:
    """A trace bound to the sizes `values`; arguments at the positions `free` may have new values in each call.

    The constructor raises FileError if a command is not valid, LimitError if a limit is exceeded, and MemoryError if
    the values do not fit in device memory.
    """

    def __init__(
        self, trace: SavedTrace, rules: GuardSet, values: Values, call: Call, resources: Resources, free: frozenset[int]
    ) -> None:
        self._trace = trace
        self._values = values
        # Use a proxy: the budget refers to this object, and a reference cycle would delay the release of device memory.
        self._resources = weakref.proxy(resources)
        #: The number of host bytes that the bound trace and a call take.
        self.host_bytes = self._host_bytes(call)
        resources.budget.reserve_host(self.host_bytes, "a call, with its results,")
        #: Each `Memory` that, according to the file, must start at offset 0 of a buffer; kernels may impose this
        #: requirement on more `Memory` objects.
        self._own_buffer: set[Memory] = set()
        self._memories = [self._memory(spec) for spec in trace.memories]
        commands = CommandList(map(self._command, trace.commands))
        self._results: list[_Output] = [
            self._layout(result) if isinstance(result, ArrayResult) else result for result in trace.results
        ]
        live = liveness([CommandGroup(commands)], self._result_memories())
        live = replace(live, own_buffer=live.own_buffer | self._own_buffer)
        # Check the limits before buffer assignment, which is slow if there are many `Memory` objects.
        limits, peak_nbytes = resources.budget.limits, live.peak_nbytes
        limits.check("max_device_bytes", resources.budget.device_bytes + peak_nbytes, "values computed in a call")
        self._check_work(commands)
        self._buffers = BufferAssignment(live, resources.check_device_memory)
        #: The number of device bytes that the computed values take.
        self.nbytes = self._buffers.nbytes
        self._commands = CommandList()
        #: The uploads in each call, each with its source and its maximum number of bytes.
        self._uploads: list[tuple[EnqueueUpload, SavedSource, int]] = []
        #: The kernel arguments that may change in each call: for each, the kernel, the position, and the
        #: `NumberArgument`.
        self._free: list[tuple[Any, int, NumberArgument]] = []
        self._value_guards = rules.value_guards(free)
        #: Whether a result is copied to the host; the copy waits for all earlier commands.
        self._waits = bool(self._result_memories())
        for saved, command in zip(trace.commands, commands, strict=True):
            self._bind(command, saved)

    def suits(self, call: Call) -> bool:
        """Set the kernel arguments for a call that has the sizes of this bound trace; return False if a guard fails."""
        if not self._value_guards:
            return True
        values = self._value_guards.values(self._values, call)
        if values is None:
            return False
        self._values = values
        for kernel, slot, arg in self._free:
            kernel.set_arg(slot, self._argument(arg))
        return True

    def run(self, call: Call) -> list[HostArray]:
        """Run the commands and return the results."""
        # Run all checks before the first command is enqueued.
        sources = [np.asarray(self._source(source, call), order="C") for _, source, _ in self._uploads]
        for value, (_, _, space) in zip(sources, self._uploads, strict=True):
            if value.nbytes > space:
                raise FileError(f"{value.nbytes} bytes are to be uploaded into {space} bytes")
        # Deleting an event blocks until its upload has finished, so keep a call's events until the next call has its
        # results.
        last_events = [upload.event for upload, _, _ in self._uploads]
        for value, (upload, _, _) in zip(sources, self._uploads, strict=True):
            upload.value = value
        self._commands.enqueue()
        results = [self._result(result, call) for result in self._results]
        if self._waits and not any(isinstance(kind, ArrayLayout) and x.size for kind, x in zip(self._results, results)):
            # If no result was copied, uploads may still be reading arrays that the caller is free to change.
            self._resources.context.queue.finish()
        last_events.clear()
        return results

    def _host_bytes(self, call: Call) -> int:
        trace = self._trace
        nbytes = _COMMAND_BYTES * len(trace.commands) + _VALUE_BYTES * (len(trace.entries) + len(trace.memories))
        uploads = (command for command in trace.commands if isinstance(command, EnqueueUpload))
        nbytes += sum(self._source_bytes(upload.value, call) for upload in uploads)
        return nbytes + sum(self._result_bytes(result, call) for result in trace.results)

    def _source_bytes(self, source: SavedSource, call: Call) -> int:
        """Return an upper bound for the host memory of an upload."""
        match source:
            case FromArgument():
                return int(call.arguments[source.argument].nbytes)
            case FromArray():
                return source.array.nbytes
            case FromNumbers():
                return _NUMBER_BYTES * len(source.numbers)
            case Reshaped():
                return self._source_bytes(source.array, call)
        # While a table is computed, its source and a sorted copy of the source are also in memory.
        return _TABLE_ARRAYS * (self._source_bytes(source.array, call) * _NUMBER_BYTES + _NUMBER_BYTES)

    def _result_bytes(self, result: Result, call: Call) -> int:
        match result:
            case NumbersResult():
                return _NUMBER_BYTES * len(result.numbers)
            case ConstantResult():
                return result.array.nbytes
            case HostResult():
                return 2 * self._source_bytes(result.value, call)
        shape = self._values.numbers(result.shape)
        return math.prod(max(length, 0) for length in shape) * np.dtype(result.dtype).itemsize

    def _check_work(self, commands: CommandList) -> None:
        items = sum(math.prod(command.global_size) for command in commands if isinstance(command, EnqueueKernel))
        nbytes = sum(command.nbytes for command in commands if isinstance(command, EnqueueCopy | EnqueueFill))
        nbytes += sum(_space(command) for command in commands if isinstance(command, EnqueueUpload))
        self._resources.budget.limits.check("max_work_items", items + nbytes // _BYTES_OF_AN_ITEM, "a call")

    def _memory(self, spec: MemorySpec) -> Memory:
        context = self._resources.context.cl_context
        match spec:
            case SharedMemory():
                buffer = self._resources.states[spec.state]
                return Memory(buffer.size, context, buffer)
            case ConstantMemory():
                buffer = self._resources.buffer(spec.array)
                return Memory(buffer.size, context, buffer)
        nbytes = self._values.number(spec.nbytes)
        if nbytes < 0:
            raise FileError(f"a buffer of {nbytes} bytes is invalid")
        memory = Memory(nbytes, context)
        if spec.own_buffer:
            self._own_buffer.add(memory)
        return memory

    def _command(self, saved: Command) -> Command:
        """Convert a saved command to an unbound command with the sizes of this trace."""
        command: Command = replace(saved.with_operands(self._memories.__getitem__), queue=self._resources.context.queue)
        match command:
            case EnqueueKernel():
                return self._launch(command)
            case EnqueueCopy():
                return self._copy(command)
            case EnqueueFill():
                return self._fill(command)
        assert isinstance(command, EnqueueUpload)
        command.offset = self._values.number(command.offset)
        _check_within(command.target, command.offset, 0)
        return command

    def _copy(self, command: EnqueueCopy) -> EnqueueCopy:
        offsets = self._values.numbers((command.target_offset, command.source_offset))
        command.target_offset, command.source_offset = offsets
        command.nbytes = self._values.number(command.nbytes)
        _check_within(command.target, command.target_offset, command.nbytes)
        _check_within(command.source, command.source_offset, command.nbytes)
        distance = abs(command.target_offset - command.source_offset)
        if command.target is command.source and distance < command.nbytes:
            raise FileError("a copy overlaps its source")
        return command

    def _fill(self, command: EnqueueFill) -> EnqueueFill:
        command.offset, command.nbytes = self._values.numbers((command.offset, command.nbytes))
        _check_within(command.target, command.offset, command.nbytes)
        pattern = command.pattern = np.frombuffer(command.pattern, np.uint8)
        if command.nbytes % pattern.nbytes or command.offset % pattern.nbytes:
            raise FileError(
                f"{command.nbytes} bytes at offset {command.offset} cannot be filled with a pattern of "
                f"{pattern.nbytes} bytes"
            )
        return command

    def _launch(self, command: EnqueueKernel) -> EnqueueKernel:
        kernel = self._resources.kernels.get(command.kernel)
        sizes = self._values.numbers(command.global_size)
        groups = None if command.local_size is None else self._values.numbers(command.local_size)
        kernel.check_sizes(sizes, groups)
        args = tuple(map(self._argument, command.args))
        for slot in command.array_slots:
            memory, offset = args[slot], int(args[slot + 1])
            if memory is not None and not 0 <= offset <= memory.nbytes:
                raise FileError(f"an array begins at byte {offset} of a buffer of {memory.nbytes} bytes")
        kernel.check_arguments(args)
        # A `Memory` that is not in `array_slots` starts at offset 0 of a buffer.
        return replace(command, kernel=kernel, global_size=sizes, local_size=groups, args=args)

    def _argument(self, arg: Any) -> Any:
        match arg:
            case LocalArgument():
                return cl.LocalMemory(arg.nbytes)
            case NumberArgument() if arg.dtype == LONG16:
                packed = np.zeros((), cl.cltypes.long16)
                packed[()] = tuple(self._numbers("int64", arg.values).tolist())
                return packed
            case NumberArgument():
                return _number(arg.dtype, self._values.value(arg.values[0]))
        return arg

    def _source(self, source: SavedSource, call: Call) -> Any:
        match source:
            case FromArgument():
                return call.arguments[source.argument]
            case FromArray():
                return source.array
            case FromNumbers():
                return self._numbers(source.dtype, source.numbers)
            case Reshaped():
                return self._reshaped(np.asarray(self._source(source.array, call)), source)
        return self._table(self._source(source.array, call), source)

    def _reshaped(self, value: HostArray, source: Reshaped) -> HostArray:
        shape = self._values.numbers(source.shape)
        if len(shape) > MAX_DIMENSIONS or math.prod(shape) != value.size or any(length < 0 for length in shape):
            raise FileError(f"an array of shape {value.shape} cannot be reshaped to {shape}")
        return value.reshape(shape)

    def _table(self, value: HostArray, source: FromTable) -> HostArray:
        try:
            return TABLES[source.table].compute(value, *map(self._values.value, source.numbers))
        except (AttributeError, TypeError) as error:
            raise FileError(f"the table {source.table} cannot be built from its values: {error}") from None

    def _numbers(self, dtype: str, values: Sequence[Any]) -> HostArray:
        return np.array([_number(dtype, self._values.value(value)) for value in values], dtype)

    def _result(self, result: _Output, call: Call) -> HostArray:
        match result:
            case NumbersResult():
                return self._numbers(result.dtype, result.numbers).reshape(result.shape)
            case ConstantResult():
                return result.array.copy()
            case HostResult():
                return np.array(self._source(result.value, call))
        return to_host(self._buffers.array(result))

    def _layout(self, result: ArrayResult) -> ArrayLayout:
        shape, strides = self._values.numbers(result.shape), self._values.numbers(result.strides)
        offset = self._values.number(result.offset)
        if any(length < 0 for length in shape) or math.prod(max(length, 1) for length in shape) > MAX_ELEMENTS:
            raise FileError(f"a result has the invalid shape {shape}")
        memory = None if result.memory is None else self._memories[result.memory]
        if 0 in shape:
            memory, offset = None, 0
        elif memory is None:
            raise FileError("a result has elements but no buffer")
        layout = ArrayLayout(self._resources.context.queue, memory, offset, shape, strides, np.dtype(result.dtype))
        if memory is not None:
            start, stop = span(layout)
            _check_within(memory, start, stop - start)
        return layout

    def _result_memories(self) -> list[Memory]:
        slots = (result.memory for result in self._trace.results if isinstance(result, ArrayResult))
        return [self._memories[slot] for slot in slots if slot is not None]

    def _bind(self, command: Command, saved: Command) -> None:
        match command, saved:
            case EnqueueCopy() | EnqueueFill(), _:
                if command.nbytes:
                    self._commands.append(command.bind(self._buffers.locate))
            case EnqueueUpload(), _:
                self._bind_upload(command)
            case EnqueueKernel(), EnqueueKernel():
                self._bind_launch(command, saved)

    def _bind_upload(self, command: EnqueueUpload) -> None:
        bound = command.bind(self._buffers.locate)
        # An upload blocks only if its array belongs to the caller and the call does not wait for a result.
        bound.is_blocking = not self._waits and isinstance(command.value, FromArgument | Reshaped)
        self._commands.append(bound)
        self._uploads.append((bound, command.value, _space(command)))

    def _bind_launch(self, command: EnqueueKernel, saved: EnqueueKernel) -> None:
        if 0 in command.global_size:
            return
        bound = command.bind(self._buffers.locate)
        self._commands.append(bound)
        for slot, arg in enumerate(saved.args):
            if isinstance(arg, NumberArgument) and any(map(self._value_guards.has, arg.values)):
                self._free.append((bound.kernel, slot, arg))


def _space(upload: EnqueueUpload) -> int:
    """Return the maximum number of bytes that an upload copies."""
    target: Memory = upload.target
    return target.nbytes - upload.offset


def _check_within(memory: Memory, offset: int, nbytes: int) -> None:
    if offset < 0 or nbytes < 0 or offset + nbytes > memory.nbytes:
        raise FileError(f"{nbytes} bytes at offset {offset} exceed a buffer of {memory.nbytes} bytes")


def _number(dtype: str, value: Any) -> np.generic:
    """Convert a number to a dtype; raise FileError if the dtype cannot represent it."""
    kind = np.dtype(dtype)
    if value is None:
        raise FileError(f"the value of a {dtype} cannot be computed")
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        if not isinstance(value, int) or not limits.min <= value <= limits.max:
            raise FileError(f"expected a {dtype}, got {value!r}")
    with np.errstate(all="ignore"):
        number: np.generic = kind.type(value)
    return number
