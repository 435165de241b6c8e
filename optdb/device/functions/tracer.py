"""Traces function calls, either while computing their results or, for an export, without executing anything."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from optdb.codegen.loops.body import Buffer
from optdb.device.expressions import folded, reshaped
from optdb.device.functions.host_parts import (
    Conditions,
    Download,
    HostComputation,
    HostValue,
    HostWork,
    Mismatch,
    Value,
    fetch,
)
from optdb.device.functions.shared_values import (
    BorrowedArgument,
    Cell,
    IndexBounds,
    LentResult,
    PairedBuffer,
    SharedArgument,
    UpdatedArgument,
    finish_work,
    is_array,
    is_same_memory,
)
from optdb.device.functions.steps import FunctionMemory, compiled_steps, device_node
from optdb.device.functions.traced_call import TracedCall
from optdb.device.plans import LinkedFunction, Node, PlanOptions, ValueId
from optdb.device.schedule.schedule_nodes import work_of
from optdb.device.schedule.scheduler import Schedule
from optdb.device.tensors import ArgumentTensor, Constant, Lengths, Stored, Tensor, whole_source
from optdb.numpy_types import HostArray
from optdb.runtime.arrays import Array, DeviceArray
from optdb.runtime.context import Context
from optdb.runtime.recording import Untraceable
from optdb.runtime.sizes import SymInt

#: The minimum size in bytes of arguments that a device reads in place, and of results that it writes in place; for
#: smaller ones, changing a plan's buffers in each call takes longer than copying.
LEAST_IN_PLACE = 1 << 19
#: The maximum number of elements of an index that the host checks in each call.
_MOST_CHECKED = 1 << 14


class Retrace(Exception):
    """Raised if a trace discovers a fact that it needed earlier; the call must then be traced again."""


class TooMuchWork(Exception):
    """Raised if a call has more work per launch than `most_work` allows."""


class FunctionTracer:
    """Traces a call while computing its results; the parameters are those of `TracedFunction` and its `run`.

    If the launches of the call have more than `most_work` scalar operations on average, the tracer raises TooMuchWork
    before it compiles them.
    """

    #: Whether a part of the function may run on the host.
    has_host = True

    def __init__(
        self,
        context: Context,
        cells: Sequence[Cell],
        resident: Sequence[bool],
        options: PlanOptions,
        updates: Mapping[int, int],
        most_work: float = math.inf,
    ) -> None:
        self.context = context
        self._most_work = most_work
        #: The number of scalar operations and of launches so far.
        self._work = self._launches = 0
        self._cells = cells
        self._updates = updates
        self._args = args = [cell[0] for cell in cells]
        self._memory = FunctionMemory(context)
        self._memory.cells.update({position: [value] for position, value in enumerate(args)})
        self.traced = TracedCall(context, self._memory, options)
        self._schedule = Schedule(context)
        self._conditions: list[Tensor] = []
        self._errors: list[Callable[[], Exception]] = []
        #: The shapes of the arguments before the call updates them.
        self.shapes = shapes_of(cells)
        #: Maps a tensor computed on the host to its paired buffer.
        self._from_host: dict[Tensor, PairedBuffer] = {}
        #: The arguments: tensors for arrays, and host values for other arguments.
        self.arguments: list[Value] = [self._argument(i, value, resident[i]) for i, value in enumerate(args)]
        finish_work(context)
        self.traced.send(cells)

    def _argument(self, position: int, value: Any, resident: bool) -> Value:
        if not is_array(value):
            self.traced.buffers.append(None)
            return HostValue(position)
        tensor = ArgumentTensor(value.shape, value.dtype.name)
        buffer = Buffer(tensor.size, tensor.dtype, f"argument {position}")
        self._schedule.stored[tensor] = Stored(buffer, tensor.shape)
        self.traced.buffers.append(buffer)
        if position in self._updates.values():
            self.traced.shared[position] = UpdatedArgument(self.context)
        elif resident:
            self.traced.shared[position] = SharedArgument(self.context)
        elif not self._updates and tensor.nbytes >= LEAST_IN_PLACE and is_same_memory(self.context):
            # With updates, the array could be a view of a shared variable's memory, which a call overwrites.
            self.traced.borrowed.append((BorrowedArgument(self.context, tensor.shape, tensor.dtype), position))
        else:
            paired = PairedBuffer(self.context, tensor.shape, tensor.dtype)
            self._memory.bind(buffer, paired.array)
            self.traced.copied.append((paired, position))
        return tensor

    def argument_value(self, position: int) -> HostArray:
        """Return the value of an argument; the traced call is then valid only for this value."""
        value = np.asarray(self._args[position])
        self.traced.values[position] = value.tobytes()
        return value

    def concrete(self, tensor: Tensor) -> HostArray:
        """Return the value of a tensor; the traced call is then valid only for this value."""
        if isinstance(tensor, Constant):
            return tensor.value
        for position, argument in enumerate(self.arguments):
            if argument is tensor:
                return self.argument_value(position)
        download = self._download(tensor)
        self._flush()
        fetch(self.context, [download])
        value = download.mailbox.take()
        context = self.context

        def check_value() -> None:
            fetch(context, [download])
            if download.mailbox.host.tobytes() != value.tobytes():
                raise Mismatch

        self._add_check(check_value, download.stored.buffer)
        return value

    def _add_check(self, check: Callable[[], None], buffer: Buffer) -> None:
        token = object()  # identifies the node's output
        self._memory.cells[token] = [None]
        self.traced.nodes.append(Node(check, [buffer], [token], check))

    def host_value(self, value: HostValue) -> Any:
        """Return what a host value is in the traced call; in later calls, it may be something else."""
        return self._memory.cells[value.number][0]

    def check(self, condition: Tensor, error: Callable[[], Exception]) -> None:
        """Add a condition; a call raises the error unless all elements of the condition are true."""
        whole = folded("AND", condition, range(condition.ndim), "bool") if condition.ndim else condition
        self._conditions.append(reshaped(whole, (1,)))
        self._errors.append(error)

    def is_within(self, index: Tensor, length: int) -> bool | None:
        """Return whether all elements of an index are in bounds, and let the host check this before each call.

        Return None if the host cannot check it without waiting for the device, or if the device is faster.
        """
        argument = whole_source(index)
        position = next((i for i, known in enumerate(self.arguments) if known is argument), None)
        if position is None or not self._is_checked_on_host(position, argument.size):
            return None
        shared = self.traced.shared.get(position)
        bounds = IndexBounds(position, length, shared if isinstance(shared, SharedArgument) else None)
        self.traced.bounds.append(bounds)
        return bounds.hold(self._args[position])

    def _is_checked_on_host(self, position: int, size: int) -> bool:
        shared = self.traced.shared.get(position)
        has_own_memory = not is_same_memory(self.context)
        # On a device with the host's memory, a function without updates checks its conditions without another wait.
        if isinstance(shared, UpdatedArgument) or not (has_own_memory or self._updates):
            return False
        return size <= _MOST_CHECKED or (shared is not None and has_own_memory)

    def on_host(self, work: HostWork, inputs: Sequence[Value]) -> list[Value]:
        """Run a computation on the host; its inputs may be host values or device values."""
        sources: list[int | HostArray | Download] = []
        for x in inputs:
            if isinstance(x, HostValue):
                sources.append(x.number)
            elif x in self.arguments:
                sources.append(self.arguments.index(x))
            else:
                sources.append(x.value if isinstance(x, Constant) else self._download(x))
        if any(isinstance(source, Download) for source in sources):
            self._flush()
        computation = HostComputation(work, sources, self._memory)
        results = [self._host_output(computation, value) for value in computation.values()]
        self.traced.nodes.append(computation.node())
        return results

    def _host_output(self, computation: HostComputation, value: Any) -> Value:
        if not isinstance(value, np.ndarray | np.generic) or value.dtype == object:
            number = sum(isinstance(name, int) for name in self._memory.cells)
            self._memory.cells[number] = [value]
            computation.outputs.append(number)
            return HostValue(number)
        value = np.asarray(value)
        mailbox = PairedBuffer(self.context, value.shape, value.dtype.name)
        mailbox.send(value)
        tensor = ArgumentTensor(value.shape, value.dtype.name)
        buffer = Buffer(value.size, value.dtype.name, "a host result")
        self._memory.bind(buffer, mailbox.array)
        self._schedule.stored[tensor] = Stored(buffer, tensor.shape)
        computation.outputs.append((buffer, mailbox))
        self._from_host[tensor] = mailbox
        return tensor

    def finish(self, outputs: Sequence[Value]) -> list[Any]:
        self._schedule.expect([output for output in outputs if isinstance(output, Tensor)])
        conditions = self._stored_conditions() if self._conditions else None
        if conditions is not None and self._updates:
            # Next values that are computed after the checks can overwrite the current values.
            self._flush()
            self._check_conditions(*conditions)
        for number, output in enumerate(outputs):
            position = self._updates.get(number)
            if position is None:
                self.traced.outputs.append(self._returned(output))
                continue
            self.traced.outputs.append(None)
            self._update(position, output)
        self._flush()
        if conditions is not None and not self._updates:
            self.traced.conditions, _ = conditions
        self.traced.link()
        self.traced.commit()
        results = self.traced.end(self._cells)
        self.traced.forget_lent()
        return results

    def _returned(self, output: Value) -> PairedBuffer | LentResult | int | HostArray:
        if isinstance(output, HostValue):
            return output.number
        if isinstance(output, Constant):
            return output.value
        if output in self._from_host:
            return self._from_host[output]
        small = self.context.profile.runs_in_caller
        if output.nbytes >= LEAST_IN_PLACE and is_same_memory(self.context) and not small:
            return self._lent(output)
        return self._download(output).mailbox

    def _lent(self, tensor: Tensor) -> LentResult:
        """Store a tensor in memory that each call may replace."""
        buffer = Buffer(tensor.size, tensor.dtype, "a result")
        self._schedule.store(tensor, Stored(buffer, tensor.shape))
        return LentResult(self.context, buffer, tensor.shape, self._memory.cells.setdefault(buffer, [None]))

    def _update(self, position: int, following: Value) -> None:
        """Store a next value, on the device if it has the shape of the current value."""
        present = self.arguments[position]
        if not isinstance(present, Tensor) or not isinstance(following, Tensor) or present.shape != following.shape:
            self.traced.next_values[position] = self._returned(following)
        elif following.size:
            buffer = Buffer(following.size, following.dtype, f"the next value of argument {position}")
            self.traced.updates[position] = buffer
            self._schedule.store_late(following, Stored(buffer, following.shape))

    def _stored_conditions(self) -> tuple[Conditions, Buffer]:
        mailbox = PairedBuffer(self.context, (len(self._conditions),), "bool")
        buffer = Buffer(len(self._conditions), "bool", "conditions")
        self._memory.bind(buffer, mailbox.array)
        for number, condition in enumerate(self._conditions):
            self._schedule.store(condition, Stored(buffer, (1,), number))
        return Conditions(mailbox, self._errors, self.context), buffer

    def _check_conditions(self, conditions: Conditions, buffer: Buffer) -> None:
        """Check the conditions now, and in each call at this point."""
        conditions.run()
        self._add_check(conditions.run, buffer)

    def _download(self, tensor: Tensor) -> Download:
        """Store a tensor where the host can read it."""
        mailbox = PairedBuffer(self.context, tensor.shape, tensor.dtype)
        buffer = Buffer(tensor.size, tensor.dtype, "a result")
        self._memory.bind(buffer, mailbox.array)
        region = Stored(buffer, tensor.shape)
        self._schedule.store(tensor, region)
        return Download(region, mailbox)

    def _flush(self) -> None:
        steps = self._schedule.steps()
        self._work += sum(map(work_of, steps))
        self._launches += len(steps)
        if self._work > self._most_work * max(1, self._launches):
            raise TooMuchWork
        small = self.context.profile.runs_in_caller
        # The memory of a current value, which a next value may overwrite, is not in an arena.
        apart = self.traced.updates.values()
        for step in compiled_steps(steps, self._schedule.constants, self._memory, small, apart):
            self.traced.nodes.append(device_node(step, self._memory))
            step.run(self._memory)


def shapes_of(cells: Sequence[Cell]) -> tuple[tuple[int, ...] | None, ...]:
    """Return the shapes of arguments; None for arguments that are not arrays."""
    return tuple([getattr(cell[0], "shape", None) for cell in cells])


UncomputedTrace = Callable[["UncomputedTracer"], Sequence[Value]]


class UncomputedTracer:
    """Replaces a `FunctionTracer` for exports; raises `Untraceable` for anything that needs computed values.

    `values` are the arguments; `held` are the positions of arguments that are shared variables. An integer argument is
    a symbolic number, which lengths may depend on; the lengths of the other arguments may be symbolic.
    """

    #: A file cannot contain steps that run on the host.
    has_host = False

    def __init__(self, context: Context, values: Sequence[Array | SymInt], held: Set[int]) -> None:
        self.context = context
        self._held = held
        self._memory = FunctionMemory(context)
        self._schedule = Schedule(context)
        self._given = values
        self.shapes = [() if isinstance(value, SymInt) else value.shape for value in values]

    @functools.cached_property
    def arguments(self) -> list[Value]:
        """The arguments; each symbolic length that was compared before with an equal number is this number."""
        return [self._argument(value) for value in self._given]

    def _argument(self, array: Array | SymInt) -> Tensor:
        if isinstance(array, SymInt):
            return Lengths([array], ())
        tensor = ArgumentTensor(array.shape, array.dtype.name)
        buffer = Buffer(tensor.size, tensor.dtype, "an argument")
        self._schedule.stored[tensor] = Stored(buffer, tensor.shape)
        whole = DeviceArray(array.queue, (array.size,), array.dtype, data=array.base_data, offset=array.offset)
        self._memory.bind(buffer, whole)
        return tensor

    def argument_value(self, position: int) -> NoReturn:
        if position in self._held:
            raise Untraceable("lengths depend on the value of a shared variable, which may change: make it a constant")
        raise Untraceable("lengths depend on the values of arguments, but a file needs lengths that follow from shapes")

    def concrete(self, tensor: Tensor) -> Any:
        if isinstance(tensor, Constant | Lengths):
            return tensor.value
        return self.argument_value(next((i for i, argument in enumerate(self.arguments) if argument is tensor), -1))

    def check(self, condition: Tensor, error: Callable[[], Exception]) -> NoReturn:
        raise Untraceable(
            "it checks values and raises errors (Assert, CheckParameterValue), which a file cannot do: compile the "
            "function without checks"
        )

    def is_within(self, index: Tensor, length: int) -> None:
        """Return None, because a call of a file cannot check indices."""

    def on_host(self, work: Any, inputs: Sequence[Value]) -> NoReturn:
        raise Untraceable(f"a file cannot contain steps that run on the host: {work}")

    def finish(self, outputs: Sequence[Value]) -> list[Array | HostArray]:
        self._schedule.expect([output for output in outputs if isinstance(output, Tensor)])
        results = [self._result(output) for output in outputs]
        for step in compiled_steps(self._schedule.steps(), self._schedule.constants, self._memory):
            step.run(self._memory)
        return [self._memory.array(result) if isinstance(result, Stored) else result for result in results]

    def _result(self, output: Value) -> Stored | HostArray:
        if isinstance(output, HostValue):
            raise Untraceable("a result is not an array, as a file needs")
        if isinstance(output, Constant):
            return np.array(output.value)
        region = Stored(Buffer(output.size, output.dtype, "a result"), output.shape)
        return self._schedule.store(output, region)


@contextmanager
def uncomputed(
    trace: UncomputedTrace,
    inputs: int,
    outputs: int,
    held: Set[int],
    integers: Set[int],
    updates: Mapping[int, int],
    context: Context,
) -> Iterator[LinkedFunction]:
    """Yield a linked function whose only node traces the whole function and enqueues its commands.

    Positions identify inputs and outputs: `held` are the inputs that are shared variables, `integers` are the inputs of
    dtype int64 that have no axes, and `updates` maps an input to the output that is its next value.
    """
    arguments = [("input", position) for position in range(inputs)]
    results = [("output", position) for position in range(outputs)]
    cells: dict[ValueId, list[Any]] = {value: [None] for value in (*arguments, *results)}
    on_host = {arguments[position] for position in integers}

    def compute() -> None:
        values = [cells[value][0] for value in arguments]
        while True:
            tracer = UncomputedTracer(context, values, held)
            try:
                computed = tracer.finish(trace(tracer))
                break
            except Retrace:
                continue
        for value, result in zip(results, computed, strict=True):
            cells[value][0] = result

    yield LinkedFunction(
        nodes=[Node(trace, arguments, results, compute)],
        cells=cells,
        inputs=list(arguments),
        outputs=list(results),
        contexts=dict.fromkeys((value for value in cells if value not in on_host), context),
        updates={arguments[source]: results[output] for source, output in updates.items()},
    )
