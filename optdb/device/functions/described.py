"""Operations that lazy tensors describe; their kernels are scheduled when inputs have new layouts.

If lengths differ from those of an earlier call, the kernels are scheduled for symbolic lengths, and run for all later
lengths for which the decisions of the schedule are valid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from optdb.codegen.elements import ElementKernels
from optdb.codegen.kernels import Kernel, compile_kernels
from optdb.codegen.loops.body import Buffer
from optdb.codegen.operation import Kernels, Operation, Outputs, output_array
from optdb.device.functions.layouts import InputLayout, ValueOf, VaryingLayouts
from optdb.device.functions.steps import CompiledStep, FunctionMemory, buffers_read, compiled_steps
from optdb.device.schedule.schedule_nodes import FusedKernel, ScheduledOperation, Step
from optdb.device.schedule.scheduler import Schedule
from optdb.device.tensors import ArgumentTensor, Stored, Tensor
from optdb.runtime.arrays import Array, DeviceArray, span
from optdb.runtime.dispatch import tracing
from optdb.runtime.sizes import is_same

#: The maximum number of layouts for which an operation keeps kernels; before one more is added, all are discarded.
_MOST_LAYOUTS = 64
#: The maximum number of schedules for varying lengths: each is valid only within certain bounds.
_MOST_VARYING = 8


@dataclass(eq=False)
class DescribedOperation(Operation):
    """An operation whose outputs are lazy tensors that depend on its inputs.

    `describe` takes a tensor for each input, and returns a tensor for each output. It must depend on nothing but the
    shapes and dtypes of its inputs.
    """

    describe: Callable[[Sequence[Tensor]], Sequence[Tensor]]
    name: str = "a described operation"
    #: Maps outputs to the inputs that they overwrite; an output is copied if its kernels cannot overwrite the input.
    overwritten: Mapping[int, int] = field(default_factory=dict)
    #: Maps layouts of the inputs to the kernels for them.
    _known: dict[Any, _LayoutKernels] = field(default_factory=dict)
    #: The kernels for inputs some of whose lengths vary.
    _varying: list[tuple[VaryingLayouts, _Scheduled]] = field(default_factory=list)

    def __str__(self) -> str:
        return self.name

    @property
    def scheduled(self) -> list[list[CompiledStep]]:
        """The steps for each combination of layouts that the operation has run with."""
        return [known.scheduled.steps for known in self._known.values()]

    def kernels(self) -> list[Kernel]:
        """Return no kernels, since they depend on the layouts of the inputs."""
        return []

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        if tracing() is not None:
            # Lengths may be symbolic, and each trace must record the comparisons that scheduling makes.
            _Scheduled(self, list(map(InputLayout.of, inputs))).run(inputs, outputs)
            return
        layout = tuple([(x.shape, x.strides) for x in inputs])
        known = self._known.get(layout)
        if known is None:
            if len(self._known) >= _MOST_LAYOUTS:
                self._known.clear()
            known = self._known[layout] = self._kernels_for(inputs)
        known.scheduled.run(inputs, outputs, known.value_of)

    def _kernels_for(self, inputs: Sequence[Array]) -> _LayoutKernels:
        """Return kernels for inputs with a new layout, if possible those for other inputs whose lengths vary."""
        units = self.context.profile.compute_units
        for layouts, scheduled in self._varying:
            if (value_of := layouts.value_of(inputs, units)) is not None:
                return _LayoutKernels(scheduled, value_of)
        varying = self._varying_layouts(inputs)
        if varying is not None:
            scheduled = _Scheduled(self, varying.layouts)
            varying.close()
            self._varying.append((varying, scheduled))
            value_of = varying.value_of(inputs, units)
            assert value_of is not None, "kernels are valid for the inputs that they were scheduled for"
            return _LayoutKernels(scheduled, value_of)
        return _LayoutKernels(_Scheduled(self, list(map(InputLayout.of, inputs))))

    def _varying_layouts(self, inputs: Sequence[Array]) -> VaryingLayouts | None:
        """Return layouts that vary where the inputs' lengths differ from those of the latest other layout."""
        if not self._known or len(self._varying) >= _MOST_VARYING:
            return None
        latest = [shape for shape, _ in next(reversed(self._known))]
        try:
            return VaryingLayouts(inputs, latest)
        except ValueError:
            return None


@dataclass(frozen=True, eq=False)
class _LayoutKernels:
    """Kernels, and the function that returns the values of their symbolic lengths for one layout of the inputs."""

    scheduled: _Scheduled
    value_of: ValueOf | None = None


class _Scheduled:
    """The kernels of an operation for inputs of certain layouts."""

    def __init__(self, operation: DescribedOperation, inputs: Sequence[InputLayout]) -> None:
        self._context = operation.context
        self._arguments: list[Buffer] = []
        #: Maps outputs that overwrite inputs to the inputs' numbers.
        self._overwritten = dict(operation.overwritten)
        #: The outputs that overwrite inputs at the end, since other kernels also read these inputs.
        late: set[int] = set()
        while True:
            schedule, steps = self._schedule(operation, inputs, late)
            missed = {number for number in self._overwritten if not self._may_overwrite(number, steps)}
            if missed <= late:
                break
            late |= missed
        self._memory = FunctionMemory(self._context)
        self.steps = compiled_steps(steps, schedule.constants, self._memory)
        #: The outputs that are copied to the inputs that they overwrite, and the kernels that copy them.
        self._copied: dict[int, tuple[ElementKernels, Kernels]] = {}
        for number in missed:
            result = self._results[number]
            copying = ElementKernels.copying(result.dtype, result.ndim, context=self._context)
            self._copied[number] = copying, compile_kernels(copying.kernels(), self._context, "a copy")

    def _schedule(
        self, operation: DescribedOperation, inputs: Sequence[InputLayout], late: Set[int]
    ) -> tuple[Schedule, list[Step]]:
        schedule = Schedule(self._context)
        tensors: list[Tensor] = []
        sources: list[Stored] = []
        for number, layout in enumerate(inputs):
            buffer = Buffer(layout.extent, layout.dtype.name, f"input {number}")
            sources.append(Stored(buffer, layout.shape, layout.offset, layout.strides))
            tensors.append(ArgumentTensor(layout.shape, layout.dtype.name))
            schedule.stored[tensors[-1]] = sources[-1]
        self._arguments = [source.buffer for source in sources]
        self._results: list[Stored] = []
        described = operation.describe(tensors)
        schedule.expect(described)
        for number, tensor in enumerate(described):
            position = self._overwritten.get(number)
            if position is not None and not all(map(is_same, tensor.shape, sources[position].shape)):
                # An axis whose length should be 1 is empty: the result does not fit into the input.
                del self._overwritten[number]
                position = None
            name = f"output {number}"
            if position is None or not tensor.size:
                result = Stored(Buffer(tensor.size, tensor.dtype, name), tensor.shape)
            else:
                source = sources[position]
                buffer = Buffer(source.buffer.size, tensor.dtype, name)
                result = Stored(buffer, tensor.shape, source.offset, source.strides)
            if number in late:
                schedule.store_late(tensor, result)
            else:
                schedule.store(tensor, result)
            self._results.append(result)
        return schedule, schedule.steps()

    def _may_overwrite(self, number: int, steps: Sequence[Step]) -> bool:
        """Return whether an output may have the memory of an input because no kernel reads the input later."""
        written, read = self._results[number].buffer, self._arguments[self._overwritten[number]]
        writers = [position for position, step in enumerate(steps) if written in step.writes]
        if len(writers) != 1:
            return not writers
        (position,) = writers
        if any(read in buffers_read(step) for step in steps[position + 1 :]):
            return False
        writer = steps[position]
        if read not in buffers_read(writer):
            return True
        match writer:
            case FusedKernel():
                return read in writer.kernel.overwritable(written)
            case ScheduledOperation():
                return read in writer.overwritable(written)
        return False

    def run(self, inputs: Sequence[Array], outputs: Outputs, value_of: ValueOf | None = None) -> None:
        memory = FunctionMemory(self._context, value_of)
        for buffer, array in self._memory.bound.items():
            memory.bind(buffer, array)
        for buffer, array in zip(self._arguments, inputs, strict=True):
            if array.size:
                memory.bind(buffer, _elements(array, memory.number(buffer.size)))
        for number, (result, cell) in enumerate(zip(self._results, outputs, strict=True)):
            if number not in self._overwritten:
                array = output_array(cell, self._context, memory.numbers(result.shape), result.dtype)
                memory.bind(result.buffer, _elements(array, array.size))
                continue
            cell[0] = array = inputs[self._overwritten[number]]
            if array.size and number not in self._copied:
                memory.bind(result.buffer, _elements(array, memory.number(result.buffer.size)))
        for step in self.steps:
            step.run(memory)
        for number, (copying, kernels) in self._copied.items():
            array = memory.array(self._results[number])
            copying.launch(kernels, self._context, array.shape, [array, outputs[number][0]])


def _elements(array: Array, count: int) -> DeviceArray:
    """Return the memory that an array spans as an array of one axis."""
    start, _ = span(array)
    return DeviceArray(array.queue, (count,), array.dtype, data=array.base_data, offset=start)
