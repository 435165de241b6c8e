"""Functions on a device: traced for the shapes of a call, and replayed for calls of the same shapes.

A host describes what its function computes by a `trace`, which takes a :class:`FunctionTracer`. It runs when a call has
shapes that no earlier call had, and computes that call. What it computed becomes a :class:`FunctionPlan`. Later calls
replay the plan.

A trace may ask for a value (`FunctionTracer.concrete`), such as a length. Plans that depend on a value are replayed
only in calls that have the same one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from optdb.codegen.functions.execution import DeviceSteps, FunctionMemory, compiled, keep_local
from optdb.codegen.functions.paired_buffers import PairedBuffer, Resident
from optdb.codegen.functions.schedule import Schedule
from optdb.codegen.functions.stored import Buffer, Stored
from optdb.codegen.functions.tensors import ArgumentTensor, Constant, Tensor, folded, reshaped
from optdb.codegen.kernels.programs import one_program
from optdb.numpy_types import HostArray
from optdb.runtime.context import Context

__all__ = ["FunctionPlan", "FunctionTracer", "HostValue", "HostWork", "Retrace", "TracedFunction"]

#: Arguments of more bytes stay on the device from call to call, if they are the same array.
_RESIDENT_BYTES = 1 << 16
#: The most plans of a function: the first ones go.
_MOST_PLANS = 64


class HostValue:
    """A value of the host that is no array, by its slot in a call."""

    def __init__(self, slot: int) -> None:
        self.slot = slot


#: What a function computes with.
Value = Tensor | HostValue


class Retrace(Exception):
    """A trace has learned what it should have known before: it begins anew."""


class HostWork(Protocol):
    """What the host computes within a function of the device; its text is for reports."""

    def __call__(self, values: list[Any]) -> Sequence[Any]:
        """Return the results, and leave the values as they are."""


class _Mismatch(Exception):
    """A value of a call differs from the one that the plan was traced with."""


class PlanStep(Protocol):
    """A part of a plan."""

    def run(self, call: _Call) -> None:
        """Compute the part in a call."""


@dataclass
class _Call:
    """The values of one call that are on the host, by slot."""

    slots: list[Any]


@dataclass(eq=False)
class _Download:
    """A stored tensor that the host reads."""

    stored: Stored
    mailbox: PairedBuffer


@dataclass(eq=False)
class _DeviceStep:
    steps: DeviceSteps

    def run(self, call: _Call) -> None:
        self.steps.run()


@dataclass(eq=False)
class HostStep:
    """A computation by the host, within a function of the device.

    Its results go to the device, or to slots of the call.
    """

    work: HostWork
    #: Where each input is: a slot of the call, an array that never changes, or what the device sends.
    inputs: Sequence[int | HostArray | _Download]
    context: Context
    #: What each output is: a slot of the call, or the mailbox that brings it to the device, and its shape.
    outputs: list[int | tuple[PairedBuffer, tuple[int, ...]]] = field(default_factory=list)
    #: How long the host has computed in all calls, without the time in which it waited for the device.
    total_s: float = 0.0

    def values(self, call: _Call) -> list[Any]:
        """Return the results of a call."""
        downloads = [x for x in self.inputs if isinstance(x, _Download)]
        _fetch(self.context, downloads)
        values: list[Any] = []
        for x in self.inputs:
            if isinstance(x, _Download):
                values.append(x.mailbox.take(x.stored.shape))
            else:
                values.append(x if isinstance(x, np.ndarray) else call.slots[x])
        begin = time.perf_counter()
        results = list(self.work(values))
        self.total_s += time.perf_counter() - begin
        return results

    def run(self, call: _Call) -> None:
        for value, output in zip(self.values(call), self.outputs, strict=True):
            if isinstance(output, int):
                call.slots[output] = value
                continue
            mailbox, shape = output
            value = np.asarray(value)
            if value.shape != shape:
                raise _Mismatch
            mailbox.send(value)

    @property
    def moved_nbytes(self) -> int:
        """How many bytes go to the host and back in each call."""
        down = sum(x.stored.nbytes for x in self.inputs if isinstance(x, _Download))
        return down + sum(x[0].host.nbytes for x in self.outputs if not isinstance(x, int))


@dataclass(eq=False)
class _Guard:
    """A value of the device that has to be the same in each call."""

    download: _Download
    value: HostArray
    context: Context

    def run(self, call: _Call) -> None:
        _fetch(self.context, [self.download])
        if self.download.mailbox.host.tobytes() != self.value.tobytes():
            raise _Mismatch


def _fetch(context: Context, downloads: Sequence[_Download]) -> None:
    if not downloads:
        return
    for download in downloads:
        download.mailbox.request()
    context.queue.finish()


@dataclass(eq=False)
class FunctionPlan:
    """What calls of some shapes compute."""

    context: Context
    memory: FunctionMemory
    #: For each argument, how it reaches the device; None if it is no array.
    arguments: list[PairedBuffer | Resident | None] = field(default_factory=list)
    #: The buffers of these.
    buffers: list[Buffer | None] = field(default_factory=list)
    #: Values that the arguments must have, by position.
    values: dict[int, bytes] = field(default_factory=dict)
    steps: list[PlanStep] = field(default_factory=list)
    #: Where each output is.
    outputs: list[tuple[PairedBuffer, tuple[int, ...]] | int | HostArray] = field(default_factory=list)
    #: Conditions that have to hold, and the errors to raise where one does not.
    conditions: PairedBuffer | None = None
    errors: list[Callable[[], Exception]] = field(default_factory=list)
    slots: int = 0

    def fits(self, args: Sequence[Any]) -> bool:
        """Tell whether the arguments have the values that the plan relies on."""
        return all(np.asarray(args[position]).tobytes() == value for position, value in self.values.items())

    def send(self, args: Sequence[Any]) -> None:
        """Move the arguments of a call to the device."""
        moved = False
        for argument, value, buffer in zip(self.arguments, args, self.buffers):
            if isinstance(argument, PairedBuffer):
                argument.send(value)
            elif argument is not None and buffer is not None:
                array = argument.update(value)
                if array is not None:
                    self.memory.bind(buffer, array)
                    moved = True
        if moved:
            for step in self.steps:
                if isinstance(step, _DeviceStep):
                    step.steps.forget()

    def call(self, args: Sequence[Any]) -> list[Any]:
        """Replay the plan; raise _Mismatch if the call needs another one."""
        call = _Call([*args, *[None] * self.slots])
        self.send(args)
        for step in self.steps:
            step.run(call)
        return self.results(call)

    def results(self, call: _Call) -> list[Any]:
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
                found.append(output.copy() if isinstance(output, np.ndarray) else call.slots[output])
        return found

    @property
    def device_work(self) -> list[str]:
        """What the device computes, in order, in words."""
        return [str(step) for part in self.device_steps for step in part.steps]

    @property
    def device_steps(self) -> list[DeviceSteps]:
        """The parts that the device computes."""
        return [step.steps for step in self.steps if isinstance(step, _DeviceStep)]

    @property
    def host_steps(self) -> list[HostStep]:
        """The parts that the host computes."""
        return [step for step in self.steps if isinstance(step, HostStep)]


class FunctionTracer:
    """Builds the plan of a call, and computes the call on the way.

    Parameters
    ----------
    context : Context
        Where the function runs.
    args : sequence
        The call's arguments: arrays of NumPy, and other values.
    resident : sequence of bool
        Which of them are likely to be the same array in the next call.
    """

    def __init__(self, context: Context, args: Sequence[Any], resident: Sequence[bool]) -> None:
        self.context = context
        self._args = args
        self._call = _Call(list(args))
        self._memory = FunctionMemory(context)
        self.plan = FunctionPlan(context, self._memory)
        self._schedule = Schedule(context)
        self._conditions: list[Tensor] = []
        #: Where results of the host are.
        self._from_host: dict[Tensor, PairedBuffer] = {}
        #: The values of the arguments, as tensors where they are arrays.
        self.arguments: list[Value] = [self._argument(i, value, resident[i]) for i, value in enumerate(args)]
        self.plan.send(args)

    def _argument(self, position: int, value: Any, resident: bool) -> Value:
        if not isinstance(value, np.ndarray):
            self.plan.arguments.append(None)
            self.plan.buffers.append(None)
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
        self.plan.arguments.append(argument)
        self.plan.buffers.append(buffer)
        return tensor

    def argument_value(self, position: int) -> HostArray:
        """Return the value of an argument; the plan is for calls with this value."""
        value = np.asarray(self._args[position])
        self.plan.values[position] = value.tobytes()
        return value

    def concrete(self, tensor: Tensor) -> HostArray:
        """Return the value of a tensor; the plan is for calls with this value."""
        if isinstance(tensor, Constant):
            return tensor.value
        for position, argument in enumerate(self.arguments):
            if argument is tensor:
                return self.argument_value(position)
        download = self._download(tensor)
        self._flush()
        _fetch(self.context, [download])
        value = download.mailbox.take(tensor.shape)
        self.plan.steps.append(_Guard(download, value, self.context))
        return value

    def check(self, condition: Tensor, error: Callable[[], Exception]) -> None:
        """Add a condition: a call raises the error if not all its elements are true."""
        whole = folded("AND", condition, range(condition.ndim), "bool") if condition.ndim else condition
        self._conditions.append(reshaped(whole, (1,)))
        self.plan.errors.append(error)

    def on_host(self, work: HostWork, inputs: Sequence[Value]) -> list[Value]:
        """Compute values on the host, from values of the host or the device."""
        sources: list[int | HostArray | _Download] = []
        for x in inputs:
            if isinstance(x, HostValue):
                sources.append(x.slot)
            elif x in self.arguments:
                sources.append(self.arguments.index(x))
            else:
                sources.append(x.value if isinstance(x, Constant) else self._download(x))
        if any(isinstance(source, _Download) for source in sources):
            self._flush()
        step = HostStep(work, sources, self.context)
        self.plan.steps.append(step)
        return [self._host_output(step, value) for value in step.values(self._call)]

    def _host_output(self, step: HostStep, value: Any) -> Value:
        if not isinstance(value, np.ndarray | np.generic) or value.dtype == object:
            self._call.slots.append(value)
            self.plan.slots += 1
            step.outputs.append(len(self._call.slots) - 1)
            return HostValue(len(self._call.slots) - 1)
        value = np.asarray(value)
        mailbox = PairedBuffer(self.context, value.size, value.dtype.name)
        mailbox.send(value)
        tensor = ArgumentTensor(value.shape, value.dtype.name)
        buffer = Buffer(value.size, value.dtype.name, "a result of the host")
        self._memory.bind(buffer, mailbox.array)
        self._schedule.stored[tensor] = Stored(buffer, tensor.shape)
        step.outputs.append((mailbox, value.shape))
        self._from_host[tensor] = mailbox
        return tensor

    def finish(self, outputs: Sequence[Value]) -> list[Any]:
        """Compute the outputs, and return their values."""
        for output in outputs:
            if isinstance(output, HostValue):
                self.plan.outputs.append(output.slot)
            elif isinstance(output, Constant):
                self.plan.outputs.append(output.value)
            else:
                mailbox = self._from_host.get(output) or self._download(output).mailbox
                self.plan.outputs.append((mailbox, output.shape))
        if self._conditions:
            mailbox = PairedBuffer(self.context, len(self._conditions), "bool")
            buffer = Buffer(len(self._conditions), "bool", "conditions")
            self._memory.bind(buffer, mailbox.array)
            for number, condition in enumerate(self._conditions):
                self._schedule.store(condition, Stored(buffer, (1,), number))
            self.plan.conditions = mailbox
        self._flush()
        # Arrays that are bound from outside stay: arguments, results, constants, and what the host brings.
        keep_local(self.plan.device_steps, self._memory.bound)
        return self.plan.results(self._call)

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
        if ready:
            steps = DeviceSteps(ready, self._memory)
            self.plan.steps.append(_DeviceStep(steps))
            steps.run()


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
    """

    def __init__(self, context: Context, trace: Trace, resident: Sequence[bool]) -> None:
        self.context = context
        self._trace = trace
        self._resident = tuple(resident)
        self._plans: dict[Any, list[FunctionPlan]] = {}
        self._count = 0

    @property
    def plans(self) -> list[tuple[tuple[tuple[int, ...] | None, ...], FunctionPlan]]:
        """The plans so far, each with the shapes of its arguments."""
        return [(shapes, plan) for shapes, plans in self._plans.items() for plan in plans]

    def __call__(self, args: Sequence[Any]) -> list[Any]:
        """Return the outputs for arguments: arrays of NumPy of the declared dtypes, and other values."""
        key = tuple([getattr(value, "shape", None) for value in args])
        with self.context.turn():
            plans = self._plans.get(key) or []
            for plan in plans:
                if plan.values and not plan.fits(args):
                    continue
                try:
                    return plan.call(args)
                except _Mismatch:
                    plans.remove(plan)
                    break
            return self._traced(key, args)

    def _traced(self, key: Any, args: Sequence[Any]) -> list[Any]:
        while True:
            tracer = FunctionTracer(self.context, args, self._resident)
            try:
                results = tracer.finish(self._trace(tracer))
                break
            except Retrace:
                continue
        if self._count >= _MOST_PLANS:
            self._plans.clear()
            self._count = 0
        self._plans.setdefault(key, []).append(tracer.plan)
        self._count += 1
        return results
