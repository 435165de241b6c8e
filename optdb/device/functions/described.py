"""Operations that lazy tensors describe; their kernels are scheduled once for each combination of input layouts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from optdb.codegen.elements import ElementKernels
from optdb.codegen.kernels import Kernel, compile_kernels
from optdb.codegen.loops.body import Buffer
from optdb.codegen.operation import Kernels, Operation, Outputs, output_array
from optdb.device.functions.steps import CompiledStep, FunctionMemory, buffers_read, compiled_steps
from optdb.device.schedule.schedule_nodes import FusedKernel, ScheduledOperation, Step
from optdb.device.schedule.scheduler import Schedule
from optdb.device.tensors import ArgumentTensor, Stored, Tensor
from optdb.runtime.arrays import Array, DeviceArray, span
from optdb.runtime.dispatch import tracing

#: The maximum number of layouts for which an operation keeps kernels; before one more is added, all are discarded.
_MOST_LAYOUTS = 64


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
    _known: dict[Any, _Scheduled] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name

    @property
    def scheduled(self) -> list[list[CompiledStep]]:
        """The steps for each combination of layouts that the operation has run with."""
        return [known.steps for known in self._known.values()]

    def kernels(self) -> list[Kernel]:
        """Return no kernels, since they depend on the layouts of the inputs."""
        return []

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        if tracing() is not None:
            # Lengths may be symbolic, and each trace must record the comparisons that scheduling makes.
            _Scheduled(self, inputs).run(inputs, outputs)
            return
        layout = tuple([(x.shape, x.strides) for x in inputs])
        scheduled = self._known.get(layout)
        if scheduled is None:
            if len(self._known) >= _MOST_LAYOUTS:
                self._known.clear()
            scheduled = self._known[layout] = _Scheduled(self, inputs)
        scheduled.run(inputs, outputs)


class _Scheduled:
    """The kernels of an operation for inputs of certain layouts."""

    def __init__(self, operation: DescribedOperation, inputs: Sequence[Array]) -> None:
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
        self, operation: DescribedOperation, inputs: Sequence[Array], late: Set[int]
    ) -> tuple[Schedule, list[Step]]:
        schedule = Schedule(self._context)
        tensors: list[Tensor] = []
        sources: list[Stored] = []
        for number, array in enumerate(inputs):
            start, stop = span(array)
            itemsize = array.dtype.itemsize
            buffer = Buffer((stop - start) // itemsize, array.dtype.name, f"input {number}")
            strides = [step // itemsize for step in array.strides]
            sources.append(Stored(buffer, array.shape, (array.offset - start) // itemsize, strides))
            tensors.append(ArgumentTensor(array.shape, array.dtype.name))
            schedule.stored[tensors[-1]] = sources[-1]
        self._arguments = [source.buffer for source in sources]
        self._results: list[Stored] = []
        described = operation.describe(tensors)
        schedule.expect(described)
        for number, tensor in enumerate(described):
            position = self._overwritten.get(number)
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

    def run(self, inputs: Sequence[Array], outputs: Outputs) -> None:
        memory = self._memory.within(self._memory.bound)
        for buffer, array in zip(self._arguments, inputs, strict=True):
            if array.size:
                memory.bind(buffer, _elements(array, buffer.size))
        for number, (result, cell) in enumerate(zip(self._results, outputs, strict=True)):
            if number not in self._overwritten:
                array = output_array(cell, self._context, result.shape, result.dtype)
                memory.bind(result.buffer, _elements(array, array.size))
                continue
            cell[0] = array = inputs[self._overwritten[number]]
            if array.size and number not in self._copied:
                memory.bind(result.buffer, _elements(array, result.buffer.size))
        for step in self.steps:
            step.run(memory)
        for number, (copying, kernels) in self._copied.items():
            result = self._results[number]
            copying.launch(kernels, self._context, result.shape, [memory.array(result), outputs[number][0]])


def _elements(array: Array, count: int) -> DeviceArray:
    """Return the memory that an array spans as an array of one axis."""
    start, _ = span(array)
    return DeviceArray(array.queue, (count,), array.dtype, data=array.base_data, offset=start)
