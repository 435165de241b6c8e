"""Profiles a call by running its nodes one by one while the device times each command.

As in a check, no value changes. The first round is a warm-up. Each command has a row with its median time in the later
rounds, the bytes that it touches, and its node's number of floating-point operations.
"""

from __future__ import annotations

import functools
import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from optdb.codegen.scalars.program import ScalarProgram
from optdb.host.api.fusion import Composite
from optdb.host.api.graph import Apply, Variable
from optdb.host.api.traces import source_location
from optdb.opencl.linking.nodes import touches_device
from optdb.opencl.ops import blas
from optdb.opencl.ops.conv import OpenCLConv, OpenCLConvGradInputs, OpenCLConvGradWeights
from optdb.opencl.ops.elemwise import OpenCLElemwise
from optdb.opencl.ops.reduce import OpenCLCAReduce
from optdb.opencl.simulator.diagnostics.profile_report import HOST, ProfileReport, Row, Span
from optdb.opencl.simulator.diagnostics.stepping import Cells, NodeEvaluator, Values
from optdb.opencl.simulator.execution.executable import Executable
from optdb.runtime.arrays import Array, from_host, to_host
from optdb.runtime.commands import EnqueueKernel
from optdb.runtime.dispatch import listened
from optdb.runtime.timing import Timed, Timer


def profile(executable: Executable, name: str, n: int) -> ProfileReport:
    """Measure `n` calls of the function called `name` with the values stored in its inputs."""
    if n < 1:
        raise ValueError(f"a profile measures at least one call, not {n}")
    profiler = Profiler(executable)
    rounds = [profiler.run() for _ in range(n + 1)][1:]
    return ProfileReport(name, n, _medians(rounds), profiler.spans)


class Profiler:
    """Measures calls with the values stored in a function's inputs."""

    def __init__(self, executable: Executable) -> None:
        self._executable = executable
        self._graph = executable.graph.fgraph
        self._given = executable.given()
        self._arguments = {var: to_host(self._given[var]) for var in executable.arguments}
        self._steps = NodeEvaluator(keep=True, around=self._node)
        self._origins: dict[Apply, tuple[str, str, str]] = {
            node: _origin(executable.graph.origins, node) for node in self._graph.apply_nodes
        }
        self.spans: list[Span] = []

    def run(self) -> list[Row]:
        """Measure a call and return its rows in the order of execution."""
        self._timer = Timer()
        self._rows: list[Row] = []
        self.spans = []
        self._done: list[tuple[Row, Timed]] = []
        self._begun = time.perf_counter()
        values: Values = dict(self._given)
        for var, value in self._arguments.items():
            self._transfer("argument", var, functools.partial(from_host, var.type.context, value, values[var]))
        outputs = self._steps.compute(self._graph.outputs, values)
        for var, array in self._executable.downloaded(outputs):
            self._transfer("result", var, functools.partial(to_host, array))
        self.spans += self._on_device()
        return self._rows

    def _on_device(self) -> list[Span]:
        """Return the device's timeline in Python's clock; a command is queued before its enqueueing call returns."""
        lag = [timed.enqueued - timed.event.profile.queued * 1e-9 for _, timed in self._done]
        return [_span(row, timed, min(lag) - self._begun) for row, timed in self._done]

    def _node(self, node: Apply, thunk: Callable[[], Any], cells: Cells) -> None:
        inputs = [cells[var][0] for var in node.inputs]  # read before the node overwrites one of them
        begun, ended = self._timed(thunk)
        outputs = [cells[var][0] for var in node.outputs]
        device = touches_device(node)
        base = Row(str(node.op), *self._origins[node], where="device" if device else HOST)
        count = operations(node, inputs, outputs) if device else None
        self._write(base, begun, ended, [*inputs, *outputs], count)

    def _transfer(self, op: str, var: Variable, move: Callable[[], Any]) -> None:
        begun, ended = self._timed(move)
        self._write(Row(op, str(var), "", "", where="device"), begun, ended, [], None)

    def _timed(self, function: Callable[[], Any]) -> tuple[float, float]:
        """Call a function and wait for its commands; return the times at which it started and returned."""
        self._timer.begin()
        with listened(self._timer):
            begun = time.perf_counter()
            function()
            ended = time.perf_counter()
        self._timer.finish()
        return begun, ended

    def _write(self, base: Row, begun: float, ended: float, arrays: Sequence[Any], count: int | None) -> None:
        """Add a row for each command of a node, or one row for the host's work if there are no commands."""
        commands = self._timer.commands
        self.spans.append(Span(base.op, "host", begun - self._begun, ended - begun, {"line": base.line}))
        if not commands:
            self._rows.append(replace(base, kernel="", host=ended - begun))
            return
        longest = max(commands, key=lambda timed: timed.seconds)
        left = ended - begun - sum(timed.enqueued - timed.begun for timed in commands)
        for number, timed in enumerate(commands):
            command = timed.command
            is_launch = isinstance(command, EnqueueKernel)
            host = timed.enqueued - timed.begun + (max(left, 0.0) if number == len(commands) - 1 else 0.0)
            nbytes = touched(arrays, [x for _, x in command.operands()]) if is_launch else command.moved_nbytes
            row = replace(
                *(base,),
                **{"kernel": command.name, "kind": command.kind, "device": timed.seconds, "host": host},
                **{"nbytes": nbytes, "operations": count if timed is longest else None},
            )
            self._rows.append(row)
            self._done.append((row, timed))


def _span(row: Row, timed: Timed, shift: float) -> Span:
    details = {"op": row.op, "line": row.line, "bytes": row.nbytes, "operations": row.operations}
    if isinstance(timed.command, EnqueueKernel):
        details |= {"items": str(timed.command.global_size), "group": str(timed.command.local_size)}
    return Span(row.kernel, "device", timed.event.profile.start * 1e-9 + shift, timed.seconds, details)


def _medians(rounds: Sequence[list[Row]]) -> list[Row]:
    """Return rows with medians over all rounds, ignoring rounds whose commands differ from the last round."""
    keys = [[(row.op, row.kernel) for row in rows] for rows in rounds]
    matching = [rows for rows, key in zip(rounds, keys, strict=True) if key == keys[-1]]
    return [
        replace(
            rows[-1],
            device=None if rows[-1].device is None else statistics.median(row.device for row in rows),
            host=statistics.median(row.host for row in rows),
        )
        for rows in zip(*matching, strict=True)
    ]


def _origin(origins: Mapping[Variable, Variable], node: Apply) -> tuple[str, str, str]:
    """Return a node's name, and its line and trace in the user's code."""
    for out in node.outputs:
        origin = origins.get(out)
        if origin is not None:
            return out.name or "", *source_location(origin)
    return "", *source_location(node.outputs[0])


Given = Sequence[Any]


def operations(node: Apply, inputs: Given, outputs: Given) -> int | None:
    """Return the number of floating-point operations in a node (2 for a multiply-add); None if it has no count."""
    count = next((_COUNTS[kind] for kind in type(node.op).__mro__ if kind in _COUNTS), None)
    return None if count is None else int(count(node.op, inputs, outputs))


def touched(arrays: Iterable[Any], buffers: Sequence[Any]) -> int:
    """Return how many bytes a launch touches in its node's inputs and outputs and in the buffers passed to it.

    Elements repeated by a stride of 0 are counted once. Buffers of no input or output are scratch memory, counted
    whole.
    """
    sizes = {buffer.int_ptr: buffer.size for buffer in buffers}
    device_arrays = [array for array in arrays if isinstance(array, Array) and array.base_data is not None]
    inside = [array for array in device_arrays if array.base_data.int_ptr in sizes]
    outside = set(sizes) - {array.base_data.int_ptr for array in inside}
    return sum(map(_distinct, inside)) + sum(sizes[handle] for handle in outside)


def _distinct(array: Array) -> int:
    lengths = [length for length, stride in zip(array.shape, array.strides) if stride or not length]
    return math.prod(lengths) * array.dtype.itemsize


def _size(value: Any) -> int:
    return math.prod(np.shape(value))


def _length(op: Any) -> int:
    if op is None:
        return 0
    if isinstance(op, ScalarProgram):
        return len(op.steps)
    return sum(_length(node.op) for node in op.fgraph.apply_nodes) if isinstance(op, Composite) else 1


def _reduction(op: Any, inputs: Given, outputs: Given) -> int:
    reduced, _ = op.parted(inputs)
    elements = math.prod(np.broadcast_shapes(*map(np.shape, reduced)))
    return (1 + _length(op.pre_scalar_op)) * elements + _length(op.post_scalar_op) * _size(outputs[0])


def _product(first: int) -> Callable[[Any, Given, Given], int]:
    """Return a function that counts the operations in products whose left factor is input `first`."""
    return lambda op, inputs, outputs: 2 * _size(outputs[0]) * inputs[first].shape[-1]


def _convolution(out: Any, weights: Any) -> int:
    """Return the number of operations in a convolution or one of its gradients, which have the same count."""
    return 2 * _size(out) * (_size(weights) // max(weights.shape[0], 1))


_COUNTS: dict[type, Callable[[Any, Given, Given], int]] = {
    OpenCLElemwise: lambda op, inputs, outputs: _length(op.scalar_op) * _size(outputs[0]),
    OpenCLCAReduce: _reduction,
    **dict.fromkeys((blas.OpenCLDot22, blas.OpenCLDot22Scalar, blas.OpenCLDot, blas.OpenCLBatchedDot), _product(0)),
    **dict.fromkeys((blas.OpenCLGemm, blas.OpenCLGemv), _product(2)),
    blas.OpenCLGer: lambda op, inputs, outputs: 2 * _size(outputs[0]),
    OpenCLConv: lambda op, inputs, outputs: _convolution(outputs[0], inputs[1]),
    OpenCLConvGradWeights: lambda op, inputs, outputs: _convolution(inputs[1], outputs[0]),
    OpenCLConvGradInputs: lambda op, inputs, outputs: _convolution(inputs[1], inputs[0]),
}
