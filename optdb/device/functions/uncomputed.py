"""Traces a function call without executing it, for an export."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from optdb.codegen.loops.body import Buffer
from optdb.device.functions.host_parts import HostValue, Value
from optdb.device.functions.steps import FunctionMemory, compiled_steps
from optdb.device.functions.tracer import Retrace
from optdb.device.plans import LinkedFunction, Node, ValueId
from optdb.device.schedule.scheduler import Schedule
from optdb.device.tensors import ArgumentTensor, Constant, Stored, Tensor
from optdb.numpy_types import HostArray
from optdb.runtime.arrays import Array, DeviceArray
from optdb.runtime.context import Context
from optdb.runtime.recording import Untraceable

UncomputedTrace = Callable[["UncomputedTracer"], Sequence[Value]]


class UncomputedTracer:
    """Replaces a `FunctionTracer` for exports; raises `Untraceable` for anything that needs computed values.

    `arrays` are the arguments; `held` are the positions of arguments that are shared variables.
    """

    #: Files have no host steps.
    has_host = False

    def __init__(self, context: Context, arrays: Sequence[Array], held: Set[int]) -> None:
        self.context = context
        self._held = held
        self._memory = FunctionMemory(context)
        self._schedule = Schedule(context)
        self.arguments: list[Value] = [self._argument(array) for array in arrays]

    def _argument(self, array: Array) -> Tensor:
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

    def concrete(self, tensor: Tensor) -> HostArray:
        if isinstance(tensor, Constant):
            return tensor.value
        return self.argument_value(next((i for i, argument in enumerate(self.arguments) if argument is tensor), -1))

    def check(self, condition: Tensor, error: Callable[[], Exception]) -> NoReturn:
        raise Untraceable(
            "it checks values and raises errors (Assert, CheckParameterValue), which a file cannot do: compile the "
            "function without checks"
        )

    def on_host(self, work: Any, inputs: Sequence[Value]) -> NoReturn:
        raise Untraceable(f"a file cannot contain steps that run on the host: {work}")

    def finish(self, outputs: Sequence[Value]) -> list[Array | HostArray]:
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
    trace: UncomputedTrace, inputs: int, outputs: int, held: Set[int], updates: Mapping[int, int], context: Context
) -> Iterator[LinkedFunction]:
    """Yield a linked function with one node, which traces the whole function and enqueues its commands.

    Positions identify inputs and outputs: `held` are the inputs that are shared variables, and `updates` maps an input
    to the output that is its next value.
    """
    arguments = [("input", position) for position in range(inputs)]
    results = [("output", position) for position in range(outputs)]
    cells: dict[ValueId, list[Any]] = {value: [None] for value in (*arguments, *results)}

    def compute() -> None:
        arrays = [cells[value][0] for value in arguments]
        while True:
            tracer = UncomputedTracer(context, arrays, held)
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
        contexts=dict.fromkeys(cells, context),
        updates={arguments[source]: results[output] for source, output in updates.items()},
    )
