"""The commands that a call enqueues, and lists of commands.

The operands of a *bound* command are OpenCL buffers; the operands of an unbound command are :class:`Memory`
placeholders. In a *traced* list, numbers may be symbolic (``sizes``). In a *saved* list, commands have no queue, and
operands are indices of `Memory` objects. ``dispatch`` enqueues a thread's commands, or passes them to the thread's
listener.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

import numpy as np

from optdb import trace_log
from optdb.numpy_types import HostArray
from optdb.runtime.context import options_of
from optdb.runtime.context_options import BatchThresholds
from optdb.runtime.deferred import source
from optdb.runtime.driver_batches import Batch, DriverCalls, PreparedCall, driver_calls, loop_library
from optdb.runtime.expressions import KernelRef, Slot, check_arguments, kernel_argument, memory_slot, size, sizes
from optdb.runtime.grid_failures import check_launches
from optdb.runtime.library import cl
from optdb.runtime.records import Record, Where, index_in, list_of, maybe, one_of, saved

_PATTERN = re.compile(r"([0-9a-f]{2}|[0-9a-f]{4}|[0-9a-f]{8}|[0-9a-f]{16}|[0-9a-f]{32})\Z", re.ASCII)


@dataclass(eq=False)
class Memory:
    """A placeholder for a buffer of `nbytes` bytes in a command list, before buffers are assigned."""

    nbytes: int
    context: cl.Context
    #: The buffer, if it exists independently of the list; None if buffer assignment provides the buffer.
    buffer: cl.Buffer | None = None


def _traced_launch(queue: Any, kernel: Any, global_size: Any, local_size: Any) -> Any:
    if trace_log.wants("launches", kernel.function_name):
        group = "chosen by the driver" if local_size is None else local_size
        trace_log.write(f"launch: {kernel.function_name}, work items {global_size}, work group {group}")
    return cl.enqueue_nd_range_kernel(queue, kernel, global_size, local_size)


#: The launch function, stored here because looking it up in PyOpenCL for each launch takes a microsecond.
_launch: Callable[[cl.CommandQueue, Any, Any, Any], Any] = cl.enqueue_nd_range_kernel
#: Whether launches are printed; if they are, prepared calls are not used.
_prints_launches = False


def _choose_launch() -> None:
    """Choose the launch function in advance, so that launches need not read the flag optdb.trace."""
    global _launch, _prints_launches
    _prints_launches = trace_log.wants("launches")
    _launch = _traced_launch if _prints_launches else cl.enqueue_nd_range_kernel


trace_log.when_changed(_choose_launch)
#: The types of kernel arguments that are operands.
_OPERANDS = (Memory, cl.MemoryObject, Slot)
_allocation_numbers = itertools.count(1)
#: Maps a buffer handle to the number of its latest allocation, since drivers reuse handles.
_latest_allocations: dict[int, int] = {}
#: Returns a `Memory`'s buffer, and the offset at which the `Memory` starts in the buffer.
Locate = Callable[[Memory], tuple[cl.Buffer, int]]


@dataclass(eq=False, slots=True)
class EnqueueKernel(Record):
    """A kernel launch. A bound launch has its own kernel object with its arguments set."""

    kind: ClassVar[str] = "launch"

    queue: cl.CommandQueue
    kernel: Any = saved(KernelRef.parse)  #: An OpenCL kernel, a `Code`, or a kernel in a file.
    global_size: tuple[int, ...] = saved(sizes)
    local_size: tuple[int, ...] | None = saved(maybe(sizes))  #: None lets the driver choose a size.
    #: The arguments: buffers, NumPy scalars and local memory.
    args: tuple[Any, ...] = saved(list_of(kernel_argument, "arguments"))
    #: Positions in `args` of arrays that may start at any offset in their buffer; the offset is the argument after the
    #: buffer.
    array_slots: tuple[int, ...] = saved(list_of(index_in("args"), "positions in args"), default=())
    is_rebindable: bool = False  #: Whether an operand may be a different buffer in the next call.
    #: The lock that is held while the arguments of a shared kernel object are set; None if the launch is bound.
    lock: Any = None
    #: Buffers whose addresses are among the values in `args`.
    kept_alive: tuple[cl.MemoryObject, ...] = ()
    #: The driver call, if the launch has its own kernel object; None if PyOpenCL enqueues the launch. A copied launch
    #: has no driver call until `prepare` is called.
    call: PreparedCall | None = field(init=False, default=None)

    def check(self, where: Where) -> None:
        """Check the sizes and arguments of a saved launch, because OpenCL does not check them."""
        if not 1 <= len(self.global_size) <= 3:
            raise where.at("global_size").wrong("a list of one to three numbers", self.global_size)
        if self.local_size is not None and len(self.local_size) != len(self.global_size):
            raise where.at("local_size").wrong(f"a list of {len(self.global_size)} numbers", self.local_size)
        params = where.before("programs")[self.kernel.program].kernels[self.kernel.function_name]
        check_arguments(self.args, self.array_slots, params, where)

    @property
    def name(self) -> str:
        name: str = self.kernel.function_name
        return name

    @property
    def repeated_call(self) -> PreparedCall | None:
        """The driver call; rebinding an operand sets an argument of the kernel object, but keeps the call."""
        return self.call

    def enqueue(self) -> None:
        """Launch the kernel, whose arguments must be set."""
        call = self.call
        if call is None or _prints_launches or call():
            _launch(self.queue, self.kernel, self.global_size, self.local_size)

    def prepare(self) -> EnqueueKernel:
        """Prepare the driver call, and return the launch; the launch must have its own kernel object."""
        calls = driver_calls()
        if calls is not None:
            self.call = calls.launch(self.queue, self.kernel, self.global_size, self.local_size)
        return self

    def enqueue_on(self, queue: cl.CommandQueue) -> Any:
        """Launch the kernel on the given queue."""
        return _launch(queue, self.kernel, self.global_size, self.local_size)

    def operands(self) -> Iterator[tuple[int, Any]]:
        """Yield the number and the value of each operand; `rebind` takes the number."""
        return ((slot, arg) for slot, arg in enumerate(self.args) if isinstance(arg, _OPERANDS))

    def with_operands(self, substitute: Callable[[Any], Any]) -> EnqueueKernel:
        """Return a launch of the same kernel object, with `substitute` applied to the operands."""
        args = tuple([substitute(arg) if isinstance(arg, _OPERANDS) else arg for arg in self.args])
        return replace(self, args=args)

    def bind(self, locate: Locate) -> EnqueueKernel:
        """Return a launch with its own kernel object, and with buffers in place of `Memory` objects."""
        args = list(self.args)
        for slot, memory in self.operands():
            args[slot], shift = locate(memory)
            if shift:
                args[slot + 1] = np.uint64(int(args[slot + 1]) + shift)
        kernel = cl.Kernel(self.kernel.program, self.kernel.function_name)
        kernel.set_args(*args)
        return replace(self, kernel=kernel, args=tuple(args), lock=None).prepare()

    def rebind(self, operand: int, buffer: cl.Buffer) -> None:
        """Replace an operand with another buffer for all later calls."""
        self.kernel.set_arg(operand, buffer)
        self.args = (*self.args[:operand], buffer, *self.args[operand + 1 :])


_T = TypeVar("_T", bound="Transfer")


@dataclass(eq=False, slots=True)
class Transfer(Record):
    """Base class of commands that move bytes. Each operand has a field for its buffer and a field for its offset."""

    kind: ClassVar[str]
    #: For each operand, the names of the fields for its buffer and its offset.
    _fields: ClassVar[tuple[tuple[str, str], ...]] = (("target", "offset"),)

    queue: cl.CommandQueue
    is_rebindable: bool = field(default=False, kw_only=True)  #: See `EnqueueKernel.is_rebindable`.
    call: PreparedCall | None = field(init=False, default=None)  #: See `EnqueueKernel.call`.

    @property
    def name(self) -> str:
        """The command's kind."""
        return self.kind

    @property
    def nbytes(self) -> int:
        """Number of bytes transferred; 0 for commands that only enforce the order of other commands."""
        return 0

    @property
    def repeated_call(self) -> PreparedCall | None:
        """The driver call if it is the same in every call, else None."""
        return None if self.is_rebindable else self.call

    @property
    def moved_nbytes(self) -> int:
        """Number of bytes read from and written to the device's memory."""
        return self.nbytes

    def enqueue(self) -> None:
        """Enqueue the command on its own queue."""
        call = self.call
        if call is None or call():
            self.enqueue_on(self.queue)

    def enqueue_on(self, queue: cl.CommandQueue) -> Any:
        """Enqueue the command on the given queue; return its event."""
        raise NotImplementedError

    def prepared_call(self, calls: DriverCalls) -> PreparedCall | None:
        """Return the driver call for the command; None if only PyOpenCL can enqueue it."""
        return None

    def prepare(self: _T) -> _T:
        """Prepare the driver call if the command has one, and return the command."""
        calls = driver_calls()
        if calls is not None:
            self.call = self.prepared_call(calls)
        return self

    def operands(self) -> Iterator[tuple[int, Any]]:
        """Yield the number and the value of each operand; `rebind` takes the number."""
        return ((number, getattr(self, operand)) for number, (operand, _) in enumerate(self._fields))

    def with_operands(self: _T, substitute: Callable[[Any], Any]) -> _T:
        """Return the command with `substitute` applied to the operands."""
        return replace(self, **{operand: substitute(getattr(self, operand)) for operand, _ in self._fields})

    def bind(self: _T, locate: Locate) -> _T:
        """Return the command with buffers in place of `Memory` objects."""
        changes: dict[str, Any] = {}
        for operand, offset in self._fields:
            changes[operand], shift = locate(getattr(self, operand))
            changes[offset] = shift + getattr(self, offset)
        return replace(self, **changes).prepare()

    def rebind(self, operand: int, buffer: cl.Buffer) -> None:
        """Replace an operand for all later calls. PyOpenCL enqueues transfers whose buffers change between calls."""
        setattr(self, self._fields[operand][0], buffer)
        self.call = None


@dataclass(eq=False, slots=True)
class EnqueueCopy(Transfer):
    """A copy of bytes between two buffers on a device, or within one buffer."""

    kind: ClassVar[str] = "copy"
    _fields: ClassVar = (("target", "target_offset"), ("source", "source_offset"))

    target: Any = saved(memory_slot)
    target_offset: int = saved(size)
    source: Any = saved(memory_slot)
    source_offset: int = saved(size)
    nbytes: int = saved(size)

    @property
    def moved_nbytes(self) -> int:
        return 2 * self.nbytes

    def prepared_call(self, calls: DriverCalls) -> PreparedCall:
        ends = self.target, self.target_offset, self.source, self.source_offset
        return calls.copy(self.queue, *ends, self.nbytes)

    def enqueue_on(self, queue: cl.CommandQueue) -> Any:
        return cl.enqueue_copy(
            *(queue, self.target, self.source),
            byte_count=self.nbytes,
            dst_offset=self.target_offset,
            src_offset=self.source_offset,
        )


def _pattern(value: Any, where: Where) -> bytes:
    if not isinstance(value, str) or not _PATTERN.match(value):
        raise where.wrong("1, 2, 4, 8 or 16 bytes in hexadecimal digits", value)
    return bytes.fromhex(value)


@dataclass(eq=False, slots=True)
class EnqueueFill(Transfer):
    """Fills bytes of a buffer with a pattern. The byte count is a multiple of the pattern's size."""

    kind: ClassVar[str] = "fill"

    target: Any = saved(memory_slot)
    offset: int = saved(size)
    nbytes: int = saved(size)
    pattern: Any = saved(_pattern)  #: A NumPy scalar, or its bytes in a saved list.

    def prepared_call(self, calls: DriverCalls) -> PreparedCall:
        return calls.fill(self.queue, self.target, self.offset, self.nbytes, self.pattern)

    def enqueue_on(self, queue: cl.CommandQueue) -> Any:
        return cl.enqueue_fill_buffer(queue, self.target, self.pattern, self.offset, self.nbytes)


@dataclass(eq=False, slots=True)
class EnqueueUpload(Transfer):
    """Copies a C-contiguous array from the host."""

    kind: ClassVar[str] = "upload"

    target: Any = saved(memory_slot)
    offset: int = saved(size)
    value: Any = saved(source)  #: An array or a `DeferredArray`, which must not change before the copy is complete.
    is_constant: bool = False  #: Whether no later command writes to the target.
    is_blocking: bool = True  #: Whether to wait for the copy.
    event: Any = None  #: The latest copy's event, which keeps the array alive; its destructor waits for the copy.

    @property
    def nbytes(self) -> int:
        nbytes: int = self.value.nbytes
        return nbytes

    def enqueue_on(self, queue: cl.CommandQueue) -> Any:
        if self.value.nbytes:
            self.event = cl.enqueue_copy(
                queue, self.target, self.value, dst_offset=self.offset, is_blocking=self.is_blocking
            )
        return self.event

    def preloaded(self) -> EnqueueCopy:
        """Upload the values to a new buffer, and return a command that copies them from this buffer on the device."""
        flags, context = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR, self.target.context
        source = Memory(self.nbytes, context, cl.Buffer(context, flags, hostbuf=self.value))
        return EnqueueCopy(self.queue, self.target, self.offset, source, 0, self.nbytes)


@dataclass(eq=False, slots=True)
class EnqueueDownload(Transfer):
    """Copies bytes to a C-contiguous host array, which must outlive the copy if the copy does not block."""

    kind: ClassVar[str] = "download"
    #: The reason why a recorded list cannot repeat a download.
    reason: ClassVar[str] = "the host reads values"
    _fields: ClassVar = (("source", "offset"),)

    out: HostArray
    source: Any
    offset: int
    is_blocking: bool = True
    event: Any = None

    @property
    def nbytes(self) -> int:
        return self.out.nbytes

    def enqueue_on(self, queue: cl.CommandQueue) -> Any:
        self.event = cl.enqueue_copy(queue, self.out, self.source, src_offset=self.offset, is_blocking=self.is_blocking)
        if self.is_blocking:
            check_launches(queue)
        return self.event


@dataclass(eq=False, slots=True)
class AllocateBuffer:
    """A new buffer that belongs to the caller."""

    buffer: cl.Buffer
    nbytes: int

    def __post_init__(self) -> None:
        _latest_allocations[self.buffer.int_ptr] = next(_allocation_numbers)

    def enqueue(self) -> None:
        """Do nothing: the buffer exists."""


@dataclass(eq=False, slots=True)
class HostCall:
    """Host work between commands; `reason` says why a recorded list cannot repeat the work."""

    reason: str

    def enqueue(self) -> None:
        """Do nothing: the caller does the work right after this call."""


def allocation_number(buffer: cl.MemoryObject) -> int:
    """Return the number that distinguishes a buffer from released buffers with the same handle."""
    return _latest_allocations.get(buffer.int_ptr, 0)


#: The types of commands in a recorded list.
Command = EnqueueKernel | Transfer


class CommandList(list[Command]):
    """Commands in queue order. A list must not change once it has been enqueued."""

    #: How many times the list was enqueued before `_is_decided` was set.
    _times = 0
    _is_decided = False
    #: Enqueues the list as a batch; None if Python enqueues the commands one by one.
    _run_batch: Callable[[], None] | None = None

    def enqueue(self) -> None:
        """Enqueue all commands, which must be bound."""
        if self._run_batch is not None and not _prints_launches:
            self._run_batch()
            return
        for command in self:
            command.enqueue()
        # Do not count empty lists, which some steps create in each call.
        if self and not self._is_decided:
            self._decide()

    @functools.cached_property
    def batch(self) -> Batch:
        """The driver calls of the commands."""
        return Batch(list(map(_repeated_call, self)), [command.enqueue for command in self])

    @property
    def needs_python(self) -> bool:
        """Whether Python must enqueue some commands, because their driver calls vary."""
        return _prints_launches or not self.batch.is_native

    def _decide(self) -> None:
        """Make the list a batch if it has been enqueued often enough, and if C code is faster than Python."""
        self._times += 1
        queue = next((command.queue for command in self if _repeated_call(command) is not None), None)
        thresholds = BatchThresholds() if queue is None else options_of(queue).batch_thresholds
        if self._times < thresholds.times:
            return
        self._is_decided = True
        if queue is None or loop_library() is None:
            return
        if self.batch.calls >= thresholds.calls:
            self._run_batch = self.batch.run
        elif self.batch.only_enqueues:
            self._run_batch = self.batch.run_with_gil

    def needing_own_buffer(self) -> set[Any]:
        """Return the operands that must start at offset 0 of a buffer, because a kernel takes no offset for them."""
        launches = (command for command in self if isinstance(command, EnqueueKernel))
        return {arg for launch in launches for slot, arg in launch.operands() if slot not in launch.array_slots}


def _repeated_call(command: Any) -> PreparedCall | None:
    """Return a command's driver call; return None if the call varies, for example for timed commands."""
    call: PreparedCall | None = getattr(command, "repeated_call", None)
    return call


_commands = list_of(one_of(EnqueueKernel, EnqueueCopy, EnqueueFill, EnqueueUpload), "commands", CommandList)


def command_list(value: Any, where: Where) -> CommandList:
    """Parse a saved command list."""
    where.repeated = {}  # equal references mean different sizes in different traces
    commands: CommandList = _commands(value, where)
    return commands
