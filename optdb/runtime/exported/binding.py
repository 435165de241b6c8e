"""A trace for the sizes of one call, with memory and kernels: ready to be run.

Here the numbers of a file meet a device. Each is checked before anything is made of it: what is copied, filled and
uploaded lies within its memory, kernels get as many arguments as they take, and each of its kind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from optdb.runtime.arrays import span, to_host
from optdb.runtime.buffer_assignment import BufferAssignment, CommandGroup, Liveness, check_device_memory, liveness
from optdb.runtime.command_list import CommandList, EnqueueCopy, EnqueueFill, EnqueueKernel, EnqueueUpload, Memory
from optdb.runtime.context import Context
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

__all__ = ["Bound", "Resources"]

#: In a result: so many fit into what can be addressed.
_MOST_ELEMENTS = 1 << 58
#: What a command that is ready to be run takes of the host's memory, a kernel of the driver's included, and a size.
_COMMAND_BYTES = 8192
_VALUE_BYTES = 512
#: The largest number, and how many arrays there are while a table is made.
_NUMBER_BYTES = 16
_TABLE_ARRAYS = 3
_BYTES_OF_AN_ITEM = 64


@dataclass(frozen=True)
class Resources:
    """What all traces of a loaded file share.

    Parameters
    ----------
    context : Context
        Where they run.
    kernels : Kernels
        The file's programs, there.
    states : sequence of pyopencl.Buffer
        The shared values.
    constant : callable
        Returns the array in a member of the file.
    constants : dict
        The buffers of those that kernels read, by name; they are made when they are first needed.
    budget : Budget
        What the file may take, and has taken.
    rehearsals : Rehearsals or None
        What does the first calls in a child process, if anything does.
    """

    context: Context
    kernels: Kernels
    states: Sequence[cl.Buffer]
    constant: Callable[[str], np.ndarray]
    constants: dict[str, cl.Buffer]
    budget: Budget
    rehearsals: Rehearsals | None = None

    def buffer(self, name: str) -> cl.Buffer:
        """Return a buffer with constants."""
        if name not in self.constants:
            value = np.ascontiguousarray(self.constant(name))
            self.budget.keep_on_device(value.nbytes, f"the constants in {name}")
            buffer = cl.Buffer(self.context.cl_context, cl.mem_flags.READ_WRITE, max(value.nbytes, 1))
            if value.nbytes:
                cl.enqueue_copy(self.context.queue, buffer, value, is_blocking=True)
            self.constants[name] = buffer
        return self.constants[name]


class Bound:
    """A trace that is ready to be run for calls like one.

    Parameters
    ----------
    trace : FileTrace
        Which.
    values : Values
        The sizes of the call.
    call : Call
        The call.
    resources : Resources
        What there is.
    free : frozenset of int
        The arguments whose values may be others in each call: kernels are given what depends on them anew.

    Attributes
    ----------
    nbytes : int
        How much memory of the device its values take.
    host_bytes : int
        How much memory of the host it takes, and a call of it.
    commands : int
        How many commands a call enqueues.

    Raises
    ------
    FileError
        If a command is not valid.
    LimitError
        If it takes more than the file may.
    MemoryError
        If the device has no room for its values.
    """

    def __init__(
        self, trace: FileTrace, values: Values, call: Call, resources: Resources, free: frozenset[int] = frozenset()
    ) -> None:
        self._trace = trace
        self._values = values
        self._resources = resources
        self.host_bytes = self._reserve_host(call)
        #: Those that a file wants to begin where a buffer begins, besides what its kernels tell.
        self._own_buffer: set[Memory] = set()
        self._memories = [self._memory(place) for place in trace.memories]
        #: What is uploaded, and how much space there is for it.
        self._sources: list[list[Any]] = []
        self._spaces: list[int] = []
        commands = CommandList(self._command(said) for said in trace.commands)
        self._outputs = [self._output(output) for output in trace.outputs]
        live = self._liveness(commands)
        # Before places are looked for, which takes its time where there are many pieces.
        limits, peak_nbytes = resources.budget.limits, live.peak_nbytes
        limits.check("max_device_bytes", resources.budget.device_bytes + peak_nbytes, "what is computed in a call")
        self._check_work(commands)
        self._buffers = BufferAssignment(live, self._check_device_memory)
        self._commands = CommandList()
        #: Those of the commands that bring something from the host at each call, in the order of the sources.
        self._uploads: list[EnqueueUpload] = []
        #: Kernels, slots and numbers, of what they are given that may be another one in each call.
        self._free: list[tuple[Any, int, list[Any]]] = []
        self._value_guards = trace.rules.value_guards(free)
        for said, command in zip(trace.commands, commands, strict=True):
            self._bind(command, said)
        #: Whether a result is brought home, behind all else that is in the queue.
        self._waits = any(output.get("memory") is not None for output in trace.outputs)
        for upload, source in zip(self._uploads, self._sources, strict=True):
            # Nobody waits for an upload, unless it is of an array that the caller may change, and nobody waits at the
            # end.
            upload.is_blocking = not self._waits and source[0] in ("argument", "shaped")
        self.nbytes = self._buffers.nbytes
        self.commands = len(commands)

    def suits(self, call: Call) -> bool:
        """Make ready for a call like the one that this is for; tell whether that can be done."""
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
        """Do it; return the results."""
        # All that may be wrong with a call is found before anything is done.
        sources = [np.asarray(self._source(source, call), order="C") for source in self._sources]
        for value, space in zip(sources, self._spaces, strict=True):
            if value.nbytes > space:
                raise FileError(f"{value.nbytes} bytes are to be uploaded, and there is room for {space}")
        # An event that is dropped waits until it is over. At the end of the next call, these are, or what that call
        # waits for comes behind them.
        last_events = [upload.event for upload in self._uploads]
        for upload, value in zip(self._uploads, sources, strict=True):
            upload.value = value
        self._commands.enqueue()
        results = [output(call) for output in self._outputs]
        last_events.clear()
        return results

    def _reserve_host(self, call: Call) -> int:
        """Return how much memory of the host this takes, and a call of it, if the file may take that."""
        trace = self._trace
        nbytes = _COMMAND_BYTES * len(trace.commands) + _VALUE_BYTES * (len(trace.rules) + len(trace.memories))
        nbytes += sum(self._source_bytes(command[3], call) for command in trace.commands if command[0] == "upload")
        nbytes += sum(self._output_bytes(output, call) for output in trace.outputs)
        self._resources.budget.reserve_host(nbytes, "a call, with its results,")
        return nbytes

    def _source_bytes(self, source: list[Any], call: Call) -> int:
        """Return how much memory there is for what is uploaded, at most: a table has as many numbers as its array."""
        kind, *rest = source
        if kind == "argument":
            return call.arguments[rest[0]].nbytes
        if kind == "array":
            return self._resources.constant(rest[0]).nbytes
        if kind == "value":
            return _NUMBER_BYTES * len(rest[1])
        if kind == "shaped":
            return self._source_bytes(rest[0], call)
        # While it is made, there is what it is made of, and what is sorted.
        return _TABLE_ARRAYS * (self._source_bytes(rest[1][0], call) * _NUMBER_BYTES + _NUMBER_BYTES)

    def _output_bytes(self, output: dict[str, Any], call: Call) -> int:
        """Return how much memory of the host a result takes."""
        if "values" in output:
            return _NUMBER_BYTES * len(output["values"])
        if "array" in output:
            return self._resources.constant(output["array"]).nbytes
        if "source" in output:
            return 2 * self._source_bytes(output["source"], call)
        shape = self._values.numbers(output["shape"])
        return math.prod(max(length, 0) for length in shape) * np.dtype(output["dtype"]).itemsize

    def _check_work(self, commands: CommandList) -> None:
        """Refuse more work than a call may take."""
        items = sum(math.prod(command.global_size) for command in commands if isinstance(command, EnqueueKernel))
        nbytes = sum(command.nbytes for command in commands if isinstance(command, EnqueueCopy | EnqueueFill))
        nbytes += sum(self._spaces)
        self._resources.budget.limits.check("max_work_items", items + nbytes // _BYTES_OF_AN_ITEM, "a call")

    def _check_device_memory(self, context: cl.Context, nbytes: int, memories: Iterable[Memory]) -> None:
        """Refuse more memory than the file may take, or than the device has."""
        self._resources.budget.reserve_device(nbytes, "what is computed in a call")
        check_device_memory(context, nbytes, memories)

    def _memory(self, place: MemorySpec) -> Memory:
        context = self._resources.context.cl_context
        if place.state is not None:
            buffer = self._resources.states[place.state]
            return Memory(buffer.size, context, buffer)
        if place.array is not None:
            buffer = self._resources.buffer(place.array)
            return Memory(buffer.size, context, buffer)
        nbytes = self._values.number(place.nbytes)
        if nbytes < 0:
            raise FileError(f"a memory is to have {nbytes} bytes")
        memory = Memory(nbytes, context)
        if place.bare:
            self._own_buffer.add(memory)
        return memory

    def _command(self, command: list[Any]) -> Any:
        """Return a command of a file as one that can be bound; an upload has no value yet."""
        word, *parts = command
        if word == "launch":
            return self._launch(*parts)
        target = self._memories[parts[0]]
        queue = self._resources.context.queue
        if word == "copy":
            source = self._memories[parts[2]]
            target_offset, source_offset, nbytes = self._values.numbers((parts[1], parts[3], parts[4]))
            _within(target, target_offset, nbytes)
            _within(source, source_offset, nbytes)
            if target is source and abs(target_offset - source_offset) < nbytes:
                raise FileError("bytes are to be copied onto themselves")
            return EnqueueCopy(queue, target, target_offset, source, source_offset, nbytes)
        if word == "fill":
            offset, nbytes = self._values.numbers(parts[1:3])
            _within(target, offset, nbytes)
            pattern = np.frombuffer(bytes.fromhex(parts[3]), np.uint8)
            if nbytes % pattern.nbytes or offset % pattern.nbytes:
                raise FileError(f"{nbytes} bytes from {offset} on are to be filled with a pattern of {pattern.nbytes}")
            return EnqueueFill(queue, target, offset, nbytes, pattern)
        offset = self._values.number(parts[1])
        _within(target, offset, 0)
        self._sources.append(parts[2])
        self._spaces.append(target.nbytes - offset)
        return EnqueueUpload(queue, target, offset, None)

    def _launch(
        self, program: int, name: str, items: list, group: list | None, args: list, arrays: list
    ) -> EnqueueKernel:
        kernel = self._resources.kernels.get(program, name)
        sizes = self._values.numbers(items)
        groups = None if group is None else self._values.numbers(group)
        kernel.check_sizes(sizes, groups)
        given = [self._argument(arg) for arg in args]
        for place in arrays:
            if isinstance(given[place], Memory) and not 0 <= int(given[place + 1]) <= given[place].nbytes:
                raise FileError(f"an array begins {int(given[place + 1])} bytes into a memory of {given[place].nbytes}")
        kernel.check_arguments(given)
        # A memory that is not in `arrays` begins where a buffer begins, whatever the file says of it.
        return EnqueueKernel(self._resources.context.queue, kernel, sizes, groups, tuple(given), tuple(arrays))

    def _argument(self, arg: list[Any] | None) -> Any:
        if arg is None:
            return None
        if arg[0] == "memory":
            return self._memories[arg[1]]
        if arg[0] == "local":
            return cl.LocalMemory(arg[1])
        if arg[1] == LONG16:
            packed = np.zeros((), cl.cltypes.long16)
            packed[()] = tuple(int(_number("int64", value)) for value in map(self._values.value, arg[2]))
            return packed
        return _number(arg[1], self._values.value(arg[2][0]))

    def _source(self, source: list[Any], call: Call) -> Any:
        """Return what is uploaded in a call."""
        kind, *rest = source
        if kind == "argument":
            return call.arguments[rest[0]]
        if kind == "array":
            return self._resources.constant(rest[0])
        if kind == "value":
            return self._numbers(*rest)
        if kind == "shaped":
            value, shape = np.asarray(self._source(rest[0], call)), self._values.numbers(rest[1])
            if len(shape) > 32 or math.prod(shape) != value.size or any(length < 0 for length in shape):
                raise FileError(f"an array of shape {value.shape} is to get the shape {shape}")
            return value.reshape(shape)
        name, args = rest
        given = [self._source(arg, call) if isinstance(arg, list) else self._values.value(arg) for arg in args]
        try:
            return TABLES[name][0](*given)
        except (AttributeError, TypeError) as error:
            raise FileError(f"the table {name} cannot be made of what it is given: {error}") from None

    def _numbers(self, dtype: str, said: Sequence[Any]) -> np.ndarray:
        return np.array([_number(dtype, self._values.value(value)) for value in said], dtype)

    def _output(self, output: dict[str, Any]) -> Callable[[Call], np.ndarray]:
        """Return what gives a result behind a call."""
        dtype = np.dtype(output["dtype"])
        if "values" in output:
            said = output["values"]
            shape = (len(said),) if output["vector"] else (1,) * output.get("ndim", 0)
            return lambda call: self._numbers(dtype.name, said).reshape(shape)
        if "array" in output:
            constant = self._resources.constant(output["array"])
            return lambda call: constant.copy()
        if "source" in output:
            return lambda call: np.array(self._source(output["source"], call))
        layout = self._layout(output, dtype)
        return lambda call: to_host(self._buffers.array(layout))

    def _layout(self, output: dict[str, Any], dtype: np.dtype) -> ArrayLayout:
        shape, strides = (self._values.numbers(output[name]) for name in ("shape", "strides"))
        offset = self._values.number(output["offset"])
        if any(length < 0 for length in shape) or math.prod(max(length, 1) for length in shape) > _MOST_ELEMENTS:
            raise FileError(f"a result is to have the shape {shape}")
        queue = self._resources.context.queue
        if output.get("memory") is None or 0 in shape:
            if 0 not in shape:
                raise FileError("a result has elements, and no memory")
            return ArrayLayout(queue, None, 0, shape, strides, dtype)
        layout = ArrayLayout(queue, self._memories[output["memory"]], offset, shape, strides, dtype)
        start, stop = span(_Seen(shape, strides, offset, dtype))
        _within(layout.memory, start, stop - start)
        return layout

    def _liveness(self, commands: CommandList) -> Liveness:
        """Return when each memory is needed that has no buffer of its own."""
        outputs = [output.get("memory") for output in self._trace.outputs]
        results = [self._memories[number] for number in outputs if number is not None]
        live = liveness([CommandGroup(commands)], results)
        return replace(live, own_buffer=live.own_buffer | self._own_buffer)

    def _bind(self, command: Any, said: list[Any]) -> None:
        """Bind a command, unless it does nothing."""
        if isinstance(command, EnqueueUpload):
            upload = command.bind(self._buffers.locate)
            self._uploads.append(upload)
            self._commands.append(upload)
            return
        if isinstance(command, EnqueueCopy | EnqueueFill) and not command.nbytes:
            return
        if isinstance(command, EnqueueKernel) and 0 in command.global_size:
            return
        bound = self._buffers.bind(command)
        self._commands.append(bound)
        if isinstance(bound, EnqueueKernel):
            for slot, arg in enumerate(said[5]):
                if arg is not None and arg[0] == "number" and any(map(self._value_guards.has, arg[2])):
                    self._free.append((bound.kernel, slot, arg))


@dataclass(frozen=True)
class _Seen:
    """What `span` looks at of an array."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: np.dtype

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


def _within(memory: Memory, offset: int, nbytes: int) -> None:
    if offset < 0 or nbytes < 0 or offset + nbytes > memory.nbytes:
        raise FileError(f"{nbytes} bytes from {offset} on are not within a memory of {memory.nbytes}")


def _number(dtype: str, value: Any) -> np.generic:
    """Return a number of a dtype.

    Raises
    ------
    FileError
        If the dtype cannot hold it.
    """
    kind = np.dtype(dtype)
    if value is None:
        raise FileError(f"what stands where a {dtype} is wanted cannot be worked out")
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        if not isinstance(value, int) or not limits.min <= value <= limits.max:
            raise FileError(f"{value!r} stands where a {dtype} is wanted")
    with np.errstate(all="ignore"):
        return kind.type(value)
