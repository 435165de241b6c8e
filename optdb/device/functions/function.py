"""Functions on a device: traced for the shapes of a call, and replayed for calls of the same shapes.

A host describes what its function computes by a `trace`, which takes a :class:`FunctionTracer`. It runs when a call has
shapes that no earlier call had, and computes that call. What it computed becomes the nodes of a
:class:`TracedCall`, which `optdb.device.plans` records and repeats in later calls.

A trace may ask for a value (`FunctionTracer.concrete`), such as a length. Traced calls that depend on a value serve
only calls that have the same one.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from optdb.codegen.functions.schedule import Schedule
from optdb.codegen.functions.stored import Buffer, Stored
from optdb.codegen.functions.tensors import ArgumentTensor, Constant, Tensor, folded, reshaped
from optdb.codegen.kernels.programs import one_program
from optdb.device.functions.paired_buffers import PairedBuffer, Resident
from optdb.device.functions.steps import CompiledStep, FunctionMemory, compiled, device_node
from optdb.device.plans import LinkedFunction, Node, PlannedMachine, PlanOptions, ValueId
from optdb.device.plans.plan import Plan
from optdb.numpy_types import HostArray
from optdb.runtime.context import Context
from optdb.runtime.recording import ArrayLayout

__all__ = ["FunctionTracer", "HostStep", "HostValue", "HostWork", "Retrace", "TracedCall", "TracedFunction"]

#: Arguments of more bytes stay on the device from call to call, if they are the same array.
_RESIDENT_BYTES = 1 << 16
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
            else:
                values.append(x if isinstance(x, np.ndarray) else self.memory.cells[x][0])
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
    arguments: list[PairedBuffer | Resident | None] = field(default_factory=list)
    #: The buffers of these.
    buffers: list[Buffer | None] = field(default_factory=list)
    #: Values that the arguments must have, by position.
    values: dict[int, bytes] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    #: Where each output is: a buffer and its mailbox with its shape, a cell of the host, or a value that never changes.
    outputs: list[tuple[PairedBuffer, tuple[int, ...]] | int | HostArray] = field(default_factory=list)
    #: Conditions that have to hold, and the errors to raise where one does not.
    conditions: PairedBuffer | None = None
    errors: list[Callable[[], Exception]] = field(default_factory=list)
    #: The positions of arguments that the host reads.
    on_host: list[int] = field(default_factory=list)
    _machine: PlannedMachine | None = None

    def fits(self, args: Sequence[Any]) -> bool:
        """Tell whether the arguments have the values that were traced."""
        return all(np.asarray(args[position]).tobytes() == value for position, value in self.values.items())

    def link(self) -> None:
        """Let plans compute further calls."""
        bound, cells = self.memory.bound, self.memory.cells
        writers = Counter(value for node in self.nodes for value in node.outputs)
        inputs: list[ValueId] = [buffer for buffer in self.buffers if buffer is not None]
        returned = {output for output in self.outputs if isinstance(output, int)}
        read = {value for node in self.nodes for value in node.inputs if isinstance(value, int)}
        for position in range(len(self.arguments)):
            if position in read | returned:
                self.on_host.append(position)
            else:
                cells[position][0] = None
        # What the host computes is computed in each call, and so is what several steps write.
        shared = {value for value, times in writers.items() if times > 1 or not isinstance(value, Buffer)}
        linked = LinkedFunction(
            nodes=self.nodes,
            cells=cells,
            inputs=inputs,
            outputs=[value for value in writers if value in bound or value in returned],
            contexts={value: self.context for value in cells if isinstance(value, Buffer)},
            constants=bound.keys() - writers.keys() - set(inputs),
            exposed={*inputs, *bound, *shared},
            overwritten=shared,
            repeats_commands=True,
            options=lambda: self.options,
            describe=_described,
        )
        self._machine = PlannedMachine(linked)

    def send(self, args: Sequence[Any]) -> None:
        """Move the arguments of a call to the device."""
        for position in self.on_host:
            self.memory.cells[position][0] = args[position]
        for argument, value, buffer in zip(self.arguments, args, self.buffers):
            if isinstance(argument, PairedBuffer):
                argument.send(value)
            elif argument is not None and buffer is not None:
                array = argument.update(value)
                if array is not None:
                    self.memory.bind(buffer, array)

    def call(self, args: Sequence[Any]) -> list[Any]:
        """Compute a call like the traced one; raise _Mismatch if it is none."""
        self.send(args)
        assert self._machine is not None, "a traced call is linked when its trace ends"
        self._machine()
        return self.results()

    def results(self) -> list[Any]:
        """Return the results of a call that is computed; raise its error, if a condition does not hold."""
        for output in self.outputs:
            if isinstance(output, tuple):
                output[0].request()
        if self.conditions is not None:
            self.conditions.request()
        self.context.queue.finish()
        if self.conditions is not None and not self.conditions.host.all():
            raise self.errors[int(np.argmin(self.conditions.host))]()
        found: list[Any] = []
        for output in self.outputs:
            if isinstance(output, tuple):
                found.append(output[0].take(output[1]))
            else:
                found.append(output.copy() if isinstance(output, np.ndarray) else self.memory.cells[output][0])
        return found

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
    args : sequence
        The call's arguments: arrays of NumPy, and other values.
    resident : sequence of bool
        Which of them are likely to be the same array in the next call.
    options : PlanOptions, optional
        How later calls run.
    """

    def __init__(
        self, context: Context, args: Sequence[Any], resident: Sequence[bool], options: PlanOptions | None = None
    ) -> None:
        self.context = context
        self._args = args
        self._memory = FunctionMemory(context)
        self._memory.cells.update({position: [value] for position, value in enumerate(args)})
        self.traced = TracedCall(context, self._memory, options or PlanOptions())
        self._schedule = Schedule(context)
        self._conditions: list[Tensor] = []
        #: Where results of the host are.
        self._from_host: dict[Tensor, PairedBuffer] = {}
        #: The values of the arguments, as tensors where they are arrays.
        self.arguments: list[Value] = [self._argument(i, value, resident[i]) for i, value in enumerate(args)]
        self.traced.send(args)

    def _argument(self, position: int, value: Any, resident: bool) -> Value:
        if not isinstance(value, np.ndarray):
            self.traced.arguments.append(None)
            self.traced.buffers.append(None)
            return HostValue(position)
        tensor = ArgumentTensor(value.shape, value.dtype.name)
        buffer = Buffer(tensor.size, tensor.dtype, f"argument {position}")
        self._schedule.stored[tensor] = Stored(buffer, tensor.shape)
        argument: PairedBuffer | Resident
        if resident and value.nbytes >= _RESIDENT_BYTES:
            argument = Resident(self.context)
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
        self.traced.errors.append(error)

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
        for output in outputs:
            if isinstance(output, HostValue):
                self.traced.outputs.append(output.number)
            elif isinstance(output, Constant):
                self.traced.outputs.append(output.value)
            else:
                mailbox = self._from_host.get(output) or self._download(output).mailbox
                self.traced.outputs.append((mailbox, output.shape))
        if self._conditions:
            mailbox = PairedBuffer(self.context, len(self._conditions), "bool")
            buffer = Buffer(len(self._conditions), "bool", "conditions")
            self._memory.bind(buffer, mailbox.array)
            for number, condition in enumerate(self._conditions):
                self._schedule.store(condition, Stored(buffer, (1,), number))
            self.traced.conditions = mailbox
        self._flush()
        self.traced.link()
        return self.traced.results()

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
    """

    def __init__(
        self, context: Context, trace: Trace, resident: Sequence[bool], options: PlanOptions | None = None
    ) -> None:
        self.context = context
        self._options = options or PlanOptions()
        self._trace = trace
        self._resident = tuple(resident)
        self._traced_calls: dict[Any, list[TracedCall]] = {}
        self._count = 0

    @property
    def traced_calls(self) -> list[tuple[tuple[tuple[int, ...] | None, ...], TracedCall]]:
        """The traced calls so far, each with the shapes of its arguments."""
        return [(shapes, call) for shapes, calls in self._traced_calls.items() for call in calls]

    def __call__(self, args: Sequence[Any]) -> list[Any]:
        """Return the outputs for arguments: arrays of NumPy of the declared dtypes, and other values."""
        key = tuple([getattr(value, "shape", None) for value in args])
        with self.context.turn():
            calls = self._traced_calls.get(key) or []
            for traced in calls:
                if traced.values and not traced.fits(args):
                    continue
                try:
                    return traced.call(args)
                except _Mismatch:
                    calls.remove(traced)
                    break
            return self._compute_traced(key, args)

    def _compute_traced(self, key: Any, args: Sequence[Any]) -> list[Any]:
        while True:
            tracer = FunctionTracer(self.context, args, self._resident, self._options)
            try:
                results = tracer.finish(self._trace(tracer))
                break
            except Retrace:
                continue
        if self._count >= _MOST_TRACED:
            self._traced_calls.clear()
            self._count = 0
        self._traced_calls.setdefault(key, []).append(tracer.traced)
        self._count += 1
        return results
