"""Operations that lazy tensors describe; their kernels are scheduled once for each combination of input layouts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from optdb.codegen.elements import ElementKernels
from optdb.codegen.kernels import Kernel, compile_kernels
from optdb.codegen.loops.body import Buffer
from optdb.codegen.operation import Kernels, Operation, Outputs, output_array
from optdb.device.functions.steps import FunctionMemory, compiled_steps
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
        schedule = Schedule(self._context)
        self._arguments: list[Buffer] = []
        tensors: list[Tensor] = []
        for number, array in enumerate(inputs):
            tensors.append(ArgumentTensor(array.shape, array.dtype.name))
            start, stop = span(array)
            itemsize = array.dtype.itemsize
            buffer = Buffer((stop - start) // itemsize, array.dtype.name, f"input {number}")
            strides = [step // itemsize for step in array.strides]
            schedule.stored[tensors[-1]] = Stored(buffer, array.shape, (array.offset - start) // itemsize, strides)
            self._arguments.append(buffer)
        self._results: list[Stored] = []
        #: Maps outputs that overwrite inputs to the inputs' numbers.
        self._overwritten = dict(operation.overwritten)
        described = operation.describe(tensors)
        schedule.expect(described)
        for number, tensor in enumerate(described):
            position = self._overwritten.get(number)
            if position is None or not tensor.size:
                result = Stored(Buffer(tensor.size, tensor.dtype, f"output {number}"), tensor.shape)
                schedule.store(tensor, result)
            else:
                source = schedule.stored[tensors[position]]
                assert isinstance(source, Stored)
                buffer = Buffer(source.buffer.size, tensor.dtype, f"output {number}")
                result = Stored(buffer, tensor.shape, source.offset, source.strides)
                schedule.store_late(tensor, result)
            self._results.append(result)
        self._memory = FunctionMemory(self._context)
        self._steps = compiled_steps(schedule.steps(), schedule.constants, self._memory)
        #: The outputs that are copied to the inputs that they overwrite, and the kernels that copy them.
        self._copied: dict[int, tuple[ElementKernels, Kernels]] = {}
        for number, position in self._overwritten.items():
            result = self._results[number]
            if not self._may_overwrite(result.buffer, self._arguments[position]):
                copying = ElementKernels.copying(result.dtype, result.ndim, context=self._context)
                self._copied[number] = copying, compile_kernels(copying.kernels(), self._context, "a copy")

    def _may_overwrite(self, written: Buffer, read: Buffer) -> bool:
        """Return whether an output may have the memory of an input because no kernel reads it later."""
        writers = [number for number, step in enumerate(self._steps) if written in step.written]
        if len(writers) != 1:
            return not writers
        (number,) = writers
        writer, later = self._steps[number], self._steps[number + 1 :]
        if any(read in step.buffers for step in later):
            return False
        return read not in writer.buffers or read in writer.overwritable(written)

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
        for step in self._steps:
            step.run(memory)
        for number, (copying, kernels) in self._copied.items():
            result = self._results[number]
            copying.launch(kernels, self._context, result.shape, [memory.array(result), outputs[number][0]])


def _elements(array: Array, count: int) -> DeviceArray:
    """Return the memory that an array spans as an array of one axis."""
    start, _ = span(array)
    return DeviceArray(array.queue, (count,), array.dtype, data=array.base_data, offset=start)
