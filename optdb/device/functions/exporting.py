"""Traces of calls, for a file that runs them without their host (``optdb.runtime.exported``).

A traced call is for arguments of certain shapes, and so is its trace. Its kernels are those of the call's device, so it
is for devices of the same kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from optdb.codegen.functions.stored import Buffer
from optdb.device.functions.function import TracedCall
from optdb.device.functions.steps import FunctionMemory
from optdb.numpy_types import HostArray
from optdb.runtime.arrays import Array, DeviceArray, from_host, to_host
from optdb.runtime.deferred import DeferredArray, FromArgument
from optdb.runtime.tracing import OutputSpec, Trace, Tracer, Untraceable

__all__ = ["traced"]

#: The dtypes that not every device has, by their names in a file.
_OPTIONAL_DTYPES = frozenset({"float64", "complex128", "int64", "uint64"})


def traced(
    call: TracedCall, shapes: Sequence[tuple[int, ...]], states: Mapping[int, int], arguments: Mapping[int, int]
) -> Trace:
    """Return the trace of a call.

    Parameters
    ----------
    call : TracedCall
        Of a call of a `Function`.
    shapes : sequence of tuple of int
        Of the call's arguments.
    states, arguments : mapping
        For each argument of the function, by position, the number of the shared value or of the argument that it is in
        the file.

    Raises
    ------
    Untraceable
        If the call computes on the host, or checks values.
    """
    _check(call, states)
    context = call.context
    results = _result_buffers(call)
    constants = _constants(call, results)
    trace = Trace(context.profile.device_kind, context.profile.compute_units)
    trace.arguments = [shapes[position] for position in sorted(arguments, key=arguments.__getitem__)]
    tracer = Tracer(trace, context)
    with tracer.following():
        memory = _memory(call, tracer, shapes, states, arguments)
        memory.bind_constants(constants)
        for step in call.device_steps:
            step.run(memory)
        for output in call.outputs:
            trace.outputs.append(_output(output, results, memory, tracer))
    trace.flags = {buffer.dtype for step in call.device_steps for buffer in step.buffers} & _OPTIONAL_DTYPES
    return trace


def _check(call: TracedCall, states: Mapping[int, int]) -> None:
    """Raise `Untraceable` if a file cannot hold a call."""
    if call.host_steps:
        names = ", ".join(dict.fromkeys(str(step.work) for step in call.host_steps))
        raise Untraceable(f"steps stay on the host, and cannot be in a file: {names}")
    if call.conditions is not None:
        raise Untraceable(
            "it checks values and raises errors (Assert, CheckParameterValue), which a file cannot do: compile it "
            "without checks"
        )
    if call.is_guarded or call.values.keys() - states.keys():
        raise Untraceable("lengths depend on values of the call, and a file is for certain shapes")
    if call.values:
        raise Untraceable("lengths depend on the value of a shared variable, which may change: make it a constant")


def _memory(
    call: TracedCall,
    tracer: Tracer,
    shapes: Sequence[tuple[int, ...]],
    states: Mapping[int, int],
    arguments: Mapping[int, int],
) -> FunctionMemory:
    """Return stand-ins for the arrays that come from outside."""
    memory = FunctionMemory(call.context)
    for position, buffer in enumerate(call.buffers):
        if buffer is None:
            raise Untraceable("an argument is no array, and cannot be in a file")
        if position in states:
            array = tracer.state(call.context.queue, states[position], (buffer.size,), np.dtype(buffer.dtype))
        else:
            source = FromArgument(arguments[position])
            array = _flat(from_host(call.context, DeferredArray(shapes[position], np.dtype(buffer.dtype), source)))
        memory.bind(buffer, array)
    return memory


def _flat(array: Array) -> DeviceArray:
    return DeviceArray(array.queue, (array.size,), array.dtype, data=array.base_data, offset=array.offset)


def _result_buffers(call: TracedCall) -> dict[int, Buffer]:
    """Return the buffer of each result, by the identity of its mailbox."""
    buffers = {id(array): buffer for buffer, array in call.memory.bound.items()}
    mailboxes = [output[0] for output in call.outputs if isinstance(output, tuple)]
    return {id(mailbox): buffers[id(mailbox.array)] for mailbox in mailboxes}


def _constants(call: TracedCall, results: Mapping[int, Buffer]) -> dict[Buffer, HostArray]:
    """Return the values that never change."""
    others = {*call.buffers, *results.values()}
    return {buffer: to_host(array) for buffer, array in call.memory.bound.items() if buffer not in others}


def _output(output: Any, results: Mapping[int, Buffer], memory: FunctionMemory, tracer: Tracer) -> OutputSpec:
    if isinstance(output, np.ndarray):
        return OutputSpec(output, output.dtype)
    if isinstance(output, int):
        raise Untraceable("a result is computed by the host, and cannot be in a file")
    mailbox, shape = output
    array = memory.whole(results[id(mailbox)])
    shaped = DeviceArray(array.queue, shape, array.dtype, data=array.base_data, offset=array.offset)
    return OutputSpec(tracer.layout(shaped), array.dtype)
