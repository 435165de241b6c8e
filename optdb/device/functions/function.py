"""Functions on a device: traced for the shapes of a call, and replayed for calls of the same shapes.

A host describes what its function computes by a `trace`, which takes a :class:`FunctionTracer`. It runs when a call has
shapes that no earlier call had, and computes that call. What it computed becomes the nodes of a
:class:`TracedCall`, which `optdb.device.plans` records and repeats in later calls.

A trace may ask for a value (`FunctionTracer.concrete`), such as a length. Traced calls that depend on a value serve
only calls that have the same one.

A call gives the inputs of the function's updates their next values: all of them at its end, or none if it raises. Those
on the device stay there (`optdb.device.functions.shared_values`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from optdb.codegen.functions.schedule import Schedule
from optdb.codegen.functions.stored import Buffer, Stored
from optdb.codegen.functions.tensors import ArgumentTensor, Constant, Tensor, folded, reshaped
from optdb.codegen.kernels.programs import one_program
from optdb.device.functions.paired_buffers import PairedBuffer, begin_work, finish_work, is_at_work
from optdb.device.functions.shared_values import Cell, SharedArgument, UpdatedArgument, ValueOnDevice, is_array
from optdb.device.functions.steps import CompiledStep, FunctionMemory, compiled, device_node
from optdb.device.plans import LinkedFunction, Node, PlannedMachine, PlanOptions, ValueId
from optdb.device.plans.plan import Plan
from optdb.device.plans.updates import commit
from optdb.numpy_types import HostArray
from optdb.runtime.context import Context
from optdb.runtime.recording import ArrayLayout
from optdb.runtime.run_ahead import RunAhead
from optdb.runtime.sigint import commit_point, defer_sigint, without_sigint

__all__ = ["FunctionTracer", "HostStep", "HostValue", "HostWork", "Retrace", "TracedCall", "TracedFunction"]

#: The most traced calls of a function: then it starts anew.
_MOST_TRACED = 64


class HostValue:
    """A value of the host that is no array, by the number of its cell."""

    def __init__(self, number: int) -> None:
        self.number = number


#: What a function computes with.
Value = Tensor | HostValue


class Retrace(Exception):
    """A trace has learned what it should have known before: it begins anew."""


class HostWork(Protocol):
    """What the host computes within a function of the device; its text is for reports."""

    def __call__(self, values: list[Any]) -> Sequence[Any]:
        """Return the results, and leave the values as they are."""


class _Mismatch(Exception):
    """A value of a call differs from the one that was traced."""


@dataclass(eq=False)
class _Download:
    """A stored tensor that the host reads."""

    stored: Stored
    mailbox: PairedBuffer


@dataclass(eq=False)
class HostStep:
    """A computation by the host, within a function of the device.

    Its results go to the device, or to cells of the host.
    """

    work: HostWork
    #: Where each input is: a cell of the host by its number, an array that never changes, or what the device sends.
    inputs: Sequence[int | HostArray | _Download]
    memory: FunctionMemory
    #: What each output is: a cell of the host, or a buffer with the mailbox that brings it there, and its shape.
    outputs: list[int | tuple[Buffer, PairedBuffer, tuple[int, ...]]] = field(default_factory=list)
    #: How long the host has computed in all calls, without the time in which it waited for the device.
    total_s: float = 0.0

    def values(self) -> list[Any]:
        """Return the results of a call."""
        _fetch(self.memory.context, [x for x in self.inputs if isinstance(x, _Download)])
        values: list[Any] = []
        for x in self.inputs:
            if isinstance(x, _Download):
                values.append(x.mailbox.take(x.stored.shape))
            elif isinstance(x, int):
                value = self.memory.cells[x][0]
                values.append(np.asarray(value) if isinstance(value, ValueOnDevice) else value)
            else:
                values.append(x)
        begin = time.perf_counter()
        results = list(self.work(values))
        self.total_s += time.perf_counter() - begin
        return results

    def run(self) -> None:
        """Compute in a call like the traced one."""
        cells = self.memory.cells
        for value, output in zip(self.values(), self.outputs, strict=True):
            if isinstance(output, int):
                cells[output][0] = value
                continue
            buffer, mailbox, shape = output
            value = np.asarray(value)
            if value.shape != shape:
                raise _Mismatch
            mailbox.send(value)
            cells[buffer][0] = mailbox.array

    def node(self) -> Node:
        """Return the step as plans take it: one that computes in each call."""
        sources = [x.stored.buffer if isinstance(x, _Download) else x for x in self.inputs]
        return Node(
            self,
            [x for x in sources if not isinstance(x, np.ndarray)],
            [x if isinstance(x, int) else x[0] for x in self.outputs],
            self.run,
        )

    @property
    def moved_nbytes(self) -> int:
        """How many bytes go to the host and back in each call."""
        down = sum(x.stored.nbytes for x in self.inputs if isinstance(x, _Download))
        return down + sum(x[1].host.nbytes for x in self.outputs if not isinstance(x, int))


@dataclass(eq=False)
class _Guard:
    """A value of the device that has to be the same in each call."""

    download: _Download
    value: HostArray
    context: Context

    def run(self) -> None:
        _fetch(self.context, [self.download])
        if self.download.mailbox.host.tobytes() != self.value.tobytes():
            raise _Mismatch

    def node(self, token: ValueId) -> Node:
        """Return the guard as plans take it; `token` stands for its result."""
        return Node(self, [self.download.stored.buffer], [token], self.run)


@dataclass(eq=False)
class _Conditions:
    """Conditions that have to hold before a call gives any input its next value."""

    values: PairedBuffer
    errors: Sequence[Callable[[], Exception]]
    context: Context

    def run(self) -> None:
        """Raise the error of the first one that does not hold."""
        self.values.request()
        self.context.queue.finish()
        self.check()

    def check(self) -> None:
        """Raise the error of the first one that does not hold; the values are on the host."""
        if not self.values.host.all():
            raise self.errors[int(np.argmin(self.values.host))]()

    def node(self, buffer: Buffer, token: ValueId) -> Node:
        """Return the check as plans take it; `token` stands for its result."""
        return Node(self, [buffer], [token], self.run)


def _fetch(context: Context, downloads: Sequence[_Download]) -> None:
    if not downloads:
        return
    for download in downloads:
        download.mailbox.request()
    context.queue.finish()


@dataclass(eq=False)
class TracedCall:
    """What calls of some shapes compute."""

    context: Context
    memory: FunctionMemory
    options: PlanOptions
    #: For each argument, how it reaches the device; None if it is no array.
    arguments: list[PairedBuffer | SharedArgument | UpdatedArgument | None] = field(default_factory=list)
    #: The buffers of these.
    buffers: list[Buffer | None] = field(default_factory=list)
    #: Values that the arguments must have, by position.
    values: dict[int, bytes] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    #: Where each output is: a buffer and its mailbox with its shape, a cell of the host, or a value that never changes.
    #: None for next values.
    outputs: list[tuple[PairedBuffer, tuple[int, ...]] | int | HostArray | None] = field(default_factory=list)
    #: The buffers of next values that take the places of the present ones, by position of the argument.
    updates: dict[int, Buffer] = field(default_factory=dict)
    #: The other next values, such as those of other lengths: as outputs.
    next_values: dict[int, tuple[PairedBuffer, tuple[int, ...]] | int | HostArray] = field(default_factory=dict)
    #: Conditions that have to hold, where no update waits for them.
    conditions: _Conditions | None = None
    #: The positions of arguments that the host reads.
    on_host: list[int] = field(default_factory=list)
    _machine: PlannedMachine | None = None
    #: What `send` goes through: arguments that each call copies, and shared variables.
    _copied: list[tuple[PairedBuffer, int]] = field(default_factory=list)
    _shared: list[tuple[SharedArgument | UpdatedArgument, int, Buffer]] = field(default_factory=list)
    #: The buffers that the host reads after a call, and that are not its own memory.
    _requested: list[PairedBuffer] = field(default_factory=list)

    def fits(self, args: Sequence[Any]) -> bool:
        """Tell whether the arguments have the values that were traced."""
        return all(np.asarray(args[position]).tobytes() == value for position, value in self.values.items())

    def take_arguments(self) -> None:
        """Note how the arguments reach the device."""
        for position, (argument, buffer) in enumerate(zip(self.arguments, self.buffers, strict=True)):
            if isinstance(argument, PairedBuffer):
                self._copied.append((argument, position))
            elif argument is not None and buffer is not None:
                self._shared.append((argument, position, buffer))

    def link(self) -> None:
        """Let plans compute further calls."""
        read_back = [x[0] for x in (*self.outputs, *self.next_values.values()) if isinstance(x, tuple)]
        if self.conditions is not None:
            read_back.append(self.conditions.values)
        self._requested = [mailbox for mailbox in read_back if not mailbox.is_shared]
        bound, cells = self.memory.bound, self.memory.cells
        writers = Counter(value for node in self.nodes for value in node.outputs)
        inputs: list[ValueId] = [buffer for buffer in self.buffers if buffer is not None]
        returned = {output for output in (*self.outputs, *self.next_values.values()) if isinstance(output, int)}
        read = {value for node in self.nodes for value in node.inputs if isinstance(value, int)}
        for position in range(len(self.arguments)):
            if position in read | returned:
                self.on_host.append(position)
            else:
                cells[position][0] = None
        # What the host computes is computed in each call, and so is what several steps write.
        shared = {value for value, times in writers.items() if times > 1 or not isinstance(value, Buffer)}
        updates: dict[ValueId, ValueId] = {self.buffers[n]: following for n, following in self.updates.items()}
        linked = LinkedFunction(
            nodes=self.nodes,
            cells=cells,
            inputs=inputs,
            outputs=[*(value for value in writers if value in bound or value in returned), *updates.values()],
            contexts={value: self.context for value in cells if isinstance(value, Buffer)},
            constants=bound.keys() - writers.keys() - set(inputs),
            exposed={*inputs, *bound, *shared},
            overwritten=shared,
            updates=updates,
            clear_before=[cells[following] for following in updates.values()],
            repeats_commands=True,
            options=lambda: self.options,
            describe=_described,
        )
        if self.device_steps:
            self._machine = PlannedMachine(linked)

    def send(self, cells: Sequence[Cell]) -> list[Any]:
        """Move the arguments of a call to the device; return the events of copies, if it is at work with others."""
        for position in self.on_host:
            self.memory.cells[position][0] = cells[position][0]
        events: list[Any] = []
        if is_at_work(self.context):
            events += [paired.enqueue_send(cells[position][0]) for paired, position in self._copied]
        else:
            for paired, position in self._copied:
                paired.send(cells[position][0])
        for argument, position, buffer in self._shared:
            cell = cells[position]
            array = argument.update(cell if isinstance(argument, UpdatedArgument) else cell[0])
            if array is not None:
                self.memory.bind(buffer, array)
        return events

    @property
    def machine(self) -> PlannedMachine:
        """What computes further calls, if the device takes part."""
        assert self._machine is not None, "nothing is computed on the device"
        return self._machine

    def call(self, cells: Sequence[Cell]) -> list[Any]:
        """Compute a call like the traced one; raise _Mismatch if it is none."""
        finish_work(self.context)
        self.send(cells)
        if self._machine is None:
            for node in self.nodes:
                node.compute()
        else:
            self._machine()
        return self.end(cells)

    def commit(self) -> None:
        """Give inputs on the device their next values, after the traced call."""
        commit_point()
        if self.updates:
            commit(self.machine.linked)

    def end(self, cells: Sequence[Cell]) -> list[Any]:
        """Return the results of a call that has been enqueued; note the next values in the cells of the inputs."""
        results = self.results()
        if self.next_values:
            for position, value in zip(self.next_values, self._taken(list(self.next_values.values()))):
                cells[position][0] = value
        self.note_updates(cells, is_done=True)
        return results

    def note_updates(self, cells: Sequence[Cell], is_done: bool) -> None:
        """Let cells stand for the values on the device, which may not be done with them."""
        for position in self.updates:
            argument = self.arguments[position]
            assert isinstance(argument, UpdatedArgument) and argument.shared is not None
            cells[position][0] = argument.shared.stand_in(is_done)

    def results(self) -> list[Any]:
        """Return the results of a call that is computed; raise its error, if a condition does not hold."""
        for mailbox in self._requested:
            mailbox.request()
        self.context.queue.finish()
        if self.conditions is not None:
            self.conditions.check()
        return self._taken(self.outputs)

    def _taken(self, outputs: Sequence[Any]) -> list[Any]:
        found: list[Any] = []
        for output in outputs:
            if isinstance(output, tuple):
                found.append(output[0].take(output[1]))
            elif output is None:
                found.append(None)
            else:
                found.append(output.copy() if isinstance(output, np.ndarray) else self.memory.cells[output][0])
        return found

    @property
    def needs_host(self) -> bool:
        """Whether the host takes part in each call, beside arguments and results."""
        return (
            self._machine is None
            or bool(self.next_values)
            or any(not isinstance(node.origin, CompiledStep) for node in self.nodes)
        )

    def repeat(self, cells: Sequence[Cell], times: int) -> list[Any]:
        """Compute several calls that do not need the host; return the results of the last one."""
        finish_work(self.context)
        self.send(cells)
        try:
            self.machine.repeat(times, RunAhead(self.context.queue))
        finally:
            # After an interrupt, the inputs have the values of the last whole step.
            results = without_sigint(self.end, cells)
        return results

    def begin(self, cells: Sequence[Cell]) -> tuple[list[Any], list[Any]]:
        """Enqueue a call that does not need the host; return arrays for its results, and events that they wait for."""
        events = self.send(cells)
        begin_work(self.context)
        self.machine()
        self.note_updates(cells, is_done=False)
        found: list[Any] = []
        for output in self.outputs:
            if isinstance(output, tuple):
                mailbox, shape = output
                found.append(np.empty(shape, mailbox.host.dtype))
                events.append(mailbox.enqueue_take(found[-1]))
            else:
                found += self._taken([output])
        return found, [event for event in events if event is not None]

    @property
    def plans(self) -> list[Plan]:
        """The plans that repeat it; none before its third call."""
        return [] if self._machine is None else self._machine.plans

    @property
    def device_work(self) -> list[str]:
        """What the device computes, in order, in words."""
        return list(map(str, self.device_steps))

    @property
    def device_steps(self) -> list[CompiledStep]:
        """What the device computes, in order."""
        return [node.origin for node in self.nodes if isinstance(node.origin, CompiledStep)]

    @property
    def host_steps(self) -> list[HostStep]:
        """The parts that the host computes."""
        return [node.origin for node in self.nodes if isinstance(node.origin, HostStep)]

    @property
    def is_guarded(self) -> bool:
        """Whether values of the device have to be those of the traced call."""
        return any(isinstance(node.origin, _Guard) for node in self.nodes)


def _described(value: ValueId, layout: ArrayLayout) -> str:
    """Describe a value for an error."""
    name = f"{value.name}, " if isinstance(value, Buffer) else ""
    return f"{name}{layout.dtype} {layout.shape}"


class FunctionTracer:
    """Traces a call, and computes it on the way.

    Parameters
    ----------
    context : Context
        Where the function runs.
    cells : sequence of list
        The call's arguments, each in a list of one element: arrays of NumPy, values on the device, and other values.
    resident : sequence of bool
        Which of them are likely to be the same array in the next call.
    options : PlanOptions, optional
        How later calls run.
    updates : mapping, optional
        The number of an output to the position of the argument whose next value it is.
    """

    def __init__(
        self,
        context: Context,
        cells: Sequence[Cell],
        resident: Sequence[bool],
        options: PlanOptions | None = None,
        updates: Mapping[int, int] | None = None,
    ) -> None:
        self.context = context
        self._cells = cells
        self._updates = updates or {}
        self._args = args = [cell[0] for cell in cells]
        self._memory = FunctionMemory(context)
        self._memory.cells.update({position: [value] for position, value in enumerate(args)})
        self.traced = TracedCall(context, self._memory, options or PlanOptions())
        self._schedule = Schedule(context)
        self._conditions: list[Tensor] = []
        self._errors: list[Callable[[], Exception]] = []
        #: The shapes of the arguments, which have their next values at the end.
        self.shapes = _shapes(cells)
        #: Where results of the host are.
        self._from_host: dict[Tensor, PairedBuffer] = {}
        #: The values of the arguments, as tensors where they are arrays.
        self.arguments: list[Value] = [self._argument(i, value, resident[i]) for i, value in enumerate(args)]
        finish_work(context)
        self.traced.take_arguments()
        self.traced.send(cells)

    def _argument(self, position: int, value: Any, resident: bool) -> Value:
        if not is_array(value):
            self.traced.arguments.append(None)
            self.traced.buffers.append(None)
            return HostValue(position)
        tensor = ArgumentTensor(value.shape, value.dtype.name)
        buffer = Buffer(tensor.size, tensor.dtype, f"argument {position}")
        self._schedule.stored[tensor] = Stored(buffer, tensor.shape)
        argument: PairedBuffer | SharedArgument | UpdatedArgument
        if position in self._updates.values():
            argument = UpdatedArgument(self.context)
        elif resident:
            argument = SharedArgument(self.context)
        else:
            argument = PairedBuffer(self.context, tensor.size, tensor.dtype)
            self._memory.bind(buffer, argument.array)
        self.traced.arguments.append(argument)
        self.traced.buffers.append(buffer)
        return tensor

    def argument_value(self, position: int) -> HostArray:
        """Return the value of an argument; the traced call serves calls with this value."""
        value = np.asarray(self._args[position])
        self.traced.values[position] = value.tobytes()
        return value

    def concrete(self, tensor: Tensor) -> HostArray:
        """Return the value of a tensor; the traced call serves calls with this value."""
        if isinstance(tensor, Constant):
            return tensor.value
        for position, argument in enumerate(self.arguments):
            if argument is tensor:
                return self.argument_value(position)
        download = self._download(tensor)
        self._flush()
        _fetch(self.context, [download])
        value = download.mailbox.take(tensor.shape)
        token = object()
        self._memory.cells[token] = [None]
        self.traced.nodes.append(_Guard(download, value, self.context).node(token))
        return value

    def check(self, condition: Tensor, error: Callable[[], Exception]) -> None:
        """Add a condition: a call raises the error if not all its elements are true."""
        whole = folded("AND", condition, range(condition.ndim), "bool") if condition.ndim else condition
        self._conditions.append(reshaped(whole, (1,)))
        self._errors.append(error)

    def on_host(self, work: HostWork, inputs: Sequence[Value]) -> list[Value]:
        """Compute values on the host, from values of the host or the device."""
        sources: list[int | HostArray | _Download] = []
        for x in inputs:
            if isinstance(x, HostValue):
                sources.append(x.number)
            elif x in self.arguments:
                sources.append(self.arguments.index(x))
            else:
                sources.append(x.value if isinstance(x, Constant) else self._download(x))
        if any(isinstance(source, _Download) for source in sources):
            self._flush()
        step = HostStep(work, sources, self._memory)
        results = [self._host_output(step, value) for value in step.values()]
        self.traced.nodes.append(step.node())
        return results

    def _host_output(self, step: HostStep, value: Any) -> Value:
        if not isinstance(value, np.ndarray | np.generic) or value.dtype == object:
            number = sum(isinstance(name, int) for name in self._memory.cells)
            self._memory.cells[number] = [value]
            step.outputs.append(number)
            return HostValue(number)
        value = np.asarray(value)
        mailbox = PairedBuffer(self.context, value.size, value.dtype.name)
        mailbox.send(value)
        tensor = ArgumentTensor(value.shape, value.dtype.name)
        buffer = Buffer(value.size, value.dtype.name, "a result of the host")
        self._memory.bind(buffer, mailbox.array)
        self._schedule.stored[tensor] = Stored(buffer, tensor.shape)
        step.outputs.append((buffer, mailbox, value.shape))
        self._from_host[tensor] = mailbox
        return tensor

    def finish(self, outputs: Sequence[Value]) -> list[Any]:
        """Compute the outputs, and return their values."""
        for number, output in enumerate(outputs):
            position = self._updates.get(number)
            if position is None:
                self.traced.outputs.append(self._returned(output))
                continue
            self.traced.outputs.append(None)
            self._update(position, output)
        conditions = self._stored_conditions() if self._conditions else None
        self._flush()
        if conditions is not None:
            self._check_conditions(*conditions)
        self.traced.link()
        self.traced.commit()
        return self.traced.end(self._cells)

    def _returned(self, output: Value) -> tuple[PairedBuffer, tuple[int, ...]] | int | HostArray:
        """Store an output where the host finds it."""
        if isinstance(output, HostValue):
            return output.number
        if isinstance(output, Constant):
            return output.value
        mailbox = self._from_host.get(output) or self._download(output).mailbox
        return mailbox, output.shape

    def _update(self, position: int, following: Value) -> None:
        """Store a next value: on the device, if it fits where the present one is."""
        present = self.arguments[position]
        if not isinstance(present, Tensor) or not isinstance(following, Tensor) or present.shape != following.shape:
            self.traced.next_values[position] = self._returned(following)
        elif following.size:
            buffer = Buffer(following.size, following.dtype, f"the next value of argument {position}")
            self.traced.updates[position] = buffer
            self._schedule.store_late(following, Stored(buffer, following.shape))

    def _stored_conditions(self) -> tuple[_Conditions, Buffer]:
        """Store the conditions where the host reads them."""
        mailbox = PairedBuffer(self.context, len(self._conditions), "bool")
        buffer = Buffer(len(self._conditions), "bool", "conditions")
        self._memory.bind(buffer, mailbox.array)
        for number, condition in enumerate(self._conditions):
            self._schedule.store(condition, Stored(buffer, (1,), number))
        return _Conditions(mailbox, self._errors, self.context), buffer

    def _check_conditions(self, conditions: _Conditions, buffer: Buffer) -> None:
        """Have the conditions checked in each call: with its results, or before its updates."""
        if not self._updates:
            self.traced.conditions = conditions
            return
        conditions.run()
        token = object()
        self._memory.cells[token] = [None]
        self.traced.nodes.append(conditions.node(buffer, token))

    def _download(self, tensor: Tensor) -> _Download:
        """Store a tensor where the host reads it."""
        mailbox = PairedBuffer(self.context, tensor.size, tensor.dtype)
        buffer = Buffer(tensor.size, tensor.dtype, "a result")
        self._memory.bind(buffer, mailbox.array)
        region = Stored(buffer, tensor.shape)
        self._schedule.store(tensor, region)
        return _Download(region, mailbox)

    def _flush(self) -> None:
        """Compute all that is to be stored."""
        units = self._schedule.steps()
        self._memory.bind_constants(self._schedule.constants)
        with one_program():
            ready = compiled(units, self.context)
        for step in ready:
            self.traced.nodes.append(device_node(step, self._memory))
            step.run(self._memory)


#: Describes a function's outputs.
Trace = Callable[[FunctionTracer], Sequence[Value]]


class TracedFunction:
    """A function on a device.

    Parameters
    ----------
    context : Context
        Where it runs.
    trace : callable
        Takes a `FunctionTracer`, and returns the outputs for its arguments.
    resident : sequence of bool
        Which arguments are likely to be the same array in each call.
    options : PlanOptions, optional
        How its plans merge launches, and what memory they may take.
    updates : mapping, optional
        The number of an output to the position of the input whose next value it is.
    """

    def __init__(
        self,
        context: Context,
        trace: Trace,
        resident: Sequence[bool],
        options: PlanOptions | None = None,
        updates: Mapping[int, int] | None = None,
    ) -> None:
        self.context = context
        self._options = options or PlanOptions()
        self._trace = trace
        self._resident = tuple(resident)
        self._updates = dict(updates or {})
        self._traced_calls: dict[Any, list[TracedCall]] = {}
        self._count = 0

    @property
    def traced_calls(self) -> list[tuple[tuple[tuple[int, ...] | None, ...], TracedCall]]:
        """The traced calls so far, each with the shapes of its arguments."""
        return [(shapes, call) for shapes, calls in self._traced_calls.items() for call in calls]

    def __call__(self, args: Sequence[Any]) -> list[Any]:
        """Return the outputs of a function without updates for arguments.

        Arguments are arrays of NumPy of the declared dtypes, and other values.
        """
        return self.run([[value] for value in args])

    def run(self, cells: Sequence[Cell]) -> list[Any]:
        """Return the outputs for the arguments in cells, which get their next values; None for each of these.

        Arguments are arrays of NumPy of the declared dtypes, values on the device, and other values.
        """
        with self.context.turn():
            return defer_sigint(self._run, cells) if self._updates else self._run(cells)

    def call_n_times(self, cells: Sequence[Cell], times: int) -> list[Any]:
        """Call the function several times; return the outputs of the last call."""
        with self.context.turn():
            traced = self._fitting(cells)
            if traced is None and times > 1:
                # The first call traces; what it updates may have other lengths then.
                self.run(cells)
                return self.call_n_times(cells, times - 1)
            if traced is not None and not traced.needs_host:
                return traced.repeat(cells, times)
            for _ in range(times - 1):
                self.run(cells)
            return self.run(cells)

    def begin(self, cells: Sequence[Cell]) -> tuple[list[Any], list[Any]]:
        """Begin a call; return its outputs, which may not be computed yet, and the events that they wait for."""
        with self.context.turn():
            traced = self._fitting(cells)
            if traced is None or traced.needs_host or traced.conditions is not None:
                return self.run(cells), []
            return defer_sigint(traced.begin, cells)

    def _fitting(self, cells: Sequence[Cell]) -> TracedCall | None:
        """Return the traced call that serves arguments; None if there is none."""
        calls = self._traced_calls.get(_shapes(cells), ())
        return next((traced for traced in calls if not traced.values or traced.fits([cell[0] for cell in cells])), None)

    def _run(self, cells: Sequence[Cell]) -> list[Any]:
        traced = self._fitting(cells)
        if traced is not None:
            try:
                return traced.call(cells)
            except _Mismatch:
                self._traced_calls[_shapes(cells)].remove(traced)
        while True:
            tracer = FunctionTracer(self.context, cells, self._resident, self._options, self._updates)
            try:
                results = tracer.finish(self._trace(tracer))
                break
            except Retrace:
                continue
        if self._count >= _MOST_TRACED:
            self._traced_calls.clear()
            self._count = 0
        self._traced_calls.setdefault(tracer.shapes, []).append(tracer.traced)
        self._count += 1
        return results


def _shapes(cells: Sequence[Cell]) -> tuple[tuple[int, ...] | None, ...]:
    return tuple([getattr(cell[0], "shape", None) for cell in cells])
