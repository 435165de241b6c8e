"""Profiles a call by running its nodes one by one while the device times each command, and reports the times.

Like a check, a profile changes no values. The call runs several times; the first run is a warm-up. Each command has a
row with its median time in the later runs, the bytes that it touches, and its node's number of floating-point
operations.
"""

from __future__ import annotations

import functools
import json
import math
import operator
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Group
from rich.table import Table

from optdb.codegen.scalars.program import ScalarProgram
from optdb.host.api.fusion import Composite
from optdb.host.api.graph import Apply, Variable
from optdb.host.api.traces import source_location
from optdb.html_tables import ReportTables
from optdb.lifters.text_tables import new_table, text_of
from optdb.opencl.linking.nodes import touches_device
from optdb.opencl.ops import blas
from optdb.opencl.ops.conv import OpenCLConv, OpenCLConvGradInputs, OpenCLConvGradWeights
from optdb.opencl.ops.elemwise import OpenCLElemwise
from optdb.opencl.ops.fused import OpenCLFused
from optdb.opencl.ops.reduce import OpenCLCAReduce
from optdb.opencl.simulator.diagnostics.stepping import Cells, NodeEvaluator, Values
from optdb.opencl.simulator.execution.executable import Executable
from optdb.runtime.arrays import Array, from_host, to_host
from optdb.runtime.commands import EnqueueKernel
from optdb.runtime.dispatch import listened
from optdb.runtime.timing import Timed, Timer

HOST = "host"
SHOWN = 25
TRANSFERS = ("upload", "download")


@dataclass(frozen=True)
class Row:
    """A command or a host node in a call."""

    #: The node's op; ``argument`` or ``result`` for a transfer of the call's arguments or results.
    op: str
    #: The name of the node's result; empty if it has none.
    name: str
    #: The line in the user's code that created the node; empty if unknown.
    line: str
    trace: str
    where: str = HOST
    #: The name of the kernel, or ``copy``, ``fill``, ``upload`` or ``download``; empty for host work.
    kernel: str = ""
    #: The kind of command: ``launch`` for kernel launches; otherwise the same as `kernel`.
    kind: str = ""
    #: The time on the device in seconds; None if nothing was enqueued.
    device: float | None = None
    #: Host time in seconds, including waits; nodes are run one by one without a plan.
    host: float = 0.0
    #: The number of bytes read and written; each array counts once.
    nbytes: int = 0
    #: The node's number of floating-point operations, if it is known and the row is the node's longest command; else
    #: None.
    operations: int | None = None

    @property
    def gigabytes_per_second(self) -> float | None:
        """Memory throughput in GB/s; None if the row has no device time."""
        return self.nbytes / self.device * 1e-9 if self.device else None

    @property
    def gigaflops(self) -> float | None:
        """Billions of operations per second; None if unknown."""
        return self.operations / self.device * 1e-9 if self.device and self.operations is not None else None


@dataclass(frozen=True)
class Span:
    """An interval on the timeline."""

    name: str
    where: str
    #: Seconds since the start of the call.
    begin: float
    seconds: float
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, repr=False)
class ProfileReport(ReportTables):
    """The result of a profile; it prints as tables."""

    name: str
    calls: int
    #: The rows of commands and host nodes, in order; times are medians.
    rows: list[Row]
    spans: list[Span]

    @property
    def device_seconds(self) -> float:
        """Seconds of device time in a call."""
        return sum(row.device or 0.0 for row in self.rows)

    @property
    def transfers(self) -> list[Row]:
        """The rows of transfers between the host and the device."""
        return [row for row in self.rows if row.kind in TRANSFERS]

    def by(self, key: Callable[[Row], str]) -> dict[str, list[Row]]:
        """Return groups of rows, in descending order of device time, then of host time.

        Parameters
        ----------
        key : callable
            Returns the name of a row's group, for example ``lambda row: row.op``.

        Returns
        -------
        dict of str to list of Row
            The rows in each group, in their original order.
        """
        return _grouped(self.rows, key)

    def __str__(self) -> str:
        return text_of(self.render(), width=140)

    def render(self) -> Group:
        """Return the tables, for `rich`.

        Returns
        -------
        rich.console.Group
            Tables of times in milliseconds, by op, line and kernel.
        """
        commands = [row for row in self.rows if row.device is not None]
        on_host = _grouped((row for row in self.rows if row.where == HOST), lambda row: row.op)
        host_rows = ((op, len(rows), f"{_seconds(rows)[1] * 1e3:.3f}") for op, rows in on_host.items())
        tables = [
            new_table(
                f"{self.name}: medians of {self.calls} calls", ("",), ("", "ms", "bytes"), self._summary(commands)
            ),
            self._by("op", commands),
            self._by("line", commands),
            self._by("kernel", [row for row in commands if row.kind == "launch"]),
            new_table("on the host", ("op",), ("nodes", "ms"), host_rows, SHOWN),
        ]
        return Group(*[table for table in tables if table.row_count])

    def chrome_trace(self, path: str | Path) -> Path:
        """Write the last call's timeline for ``chrome://tracing`` and Perfetto.

        Parameters
        ----------
        path : str or Path
            Path of the JSON file.

        Returns
        -------
        Path
            `path`.
        """
        threads = {"host": 1, "device": 2}
        labels = [("process_name", 0, self.name), *(("thread_name", tid, where) for where, tid in threads.items())]
        events: list[dict[str, Any]] = [
            {"name": kind, "ph": "M", "pid": 1, "tid": tid, "args": {"name": name}} for kind, tid, name in labels
        ]
        for span in self.spans:
            events.append(
                {
                    **{"name": span.name or "node", "cat": span.where, "ph": "X", "pid": 1, "tid": threads[span.where]},
                    **{"ts": span.begin * 1e6, "dur": span.seconds * 1e6},
                    "args": {key: value for key, value in span.details.items() if value not in (None, "")},
                }
            )
        path = Path(path)
        path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}))
        return path

    def _summary(self, commands: Sequence[Row]) -> Iterator[tuple[Any, ...]]:
        yield "on the device", *_sums(commands, _device)
        for kind in dict.fromkeys(row.kind for row in commands):
            yield f"    {kind}", *_sums([row for row in commands if row.kind == kind], _device)
        yield "nodes on the host", *_sums([row for row in self.rows if row.where == HOST], lambda row: row.host)

    def _by(self, what: str, commands: Iterable[Row]) -> Table:
        rows, whole = [], self.device_seconds
        for name, group in _grouped(commands, operator.attrgetter(what)).items():
            device, host = _seconds(group)
            share = f"{100 * device / whole:.1f}" if whole else ""
            rates = _rate(sum(row.nbytes for row in group), device), _flops(group)
            rows.append((name or "not known", len(group), f"{device * 1e3:.3f}", share, *rates, f"{host * 1e3:.3f}"))
        return new_table(f"by {what}", (what,), ("commands", "ms", "%", "GB/s", "GFLOP/s", "host ms"), rows, SHOWN)


def _grouped(rows: Iterable[Row], key: Callable[[Row], str]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return dict(sorted(groups.items(), key=lambda item: _seconds(item[1]), reverse=True))


def _device(row: Row) -> float:
    return row.device or 0.0


def _seconds(rows: Sequence[Row]) -> tuple[float, float]:
    return sum(map(_device, rows)), sum(row.host for row in rows)


def _sums(rows: Sequence[Row], seconds: Callable[[Row], float]) -> tuple[int, str, str]:
    return len(rows), f"{sum(map(seconds, rows)) * 1e3:.3f}", f"{sum(row.nbytes for row in rows):,}"


def _flops(rows: Sequence[Row]) -> str:
    """Return the rows' known operations divided by the rows' device time, as text; empty if no count is known."""
    counts = [row.operations for row in rows if row.operations is not None]
    return _rate(sum(counts), sum(map(_device, rows))) if counts else ""


def _rate(amount: float, seconds: float) -> str:
    return f"{amount / seconds * 1e-9:.1f}" if seconds else ""


def profile(executable: Executable, name: str, n: int) -> ProfileReport:
    """Measure `n` calls to the function named `name`, with the values stored in the function's inputs."""
    if n < 1:
        raise ValueError(f"a profile measures at least one call, not {n}")
    profiler = Profiler(executable)
    rounds = [profiler.run() for _ in range(n + 1)][1:]
    return ProfileReport(name, n, _medians(rounds), profiler.spans)


class Profiler:
    """Measures calls that use the values currently stored in a function's inputs."""

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
        """Return the device's timeline on Python's clock; a command is queued before the call that enqueues it ends."""
        lag = [timed.enqueued - timed.event.profile.queued * 1e-9 for _, timed in self._done]
        return [_span(row, timed, min(lag) - self._begun) for row, timed in self._done]

    def _node(self, node: Apply, thunk: Callable[[], Any], cells: Cells) -> None:
        inputs = [cells[var][0] for var in node.inputs]  # read the inputs now, since the node may overwrite them
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
    """Return the rows of the last run, with median times over all runs that enqueued the same commands."""
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
    """Return the number of floating-point operations in a node (2 for a multiply-add); None if unknown."""
    count = next((_COUNTS[kind] for kind in type(node.op).__mro__ if kind in _COUNTS), None)
    return None if count is None else int(count(node.op, inputs, outputs))


def touched(arrays: Iterable[Any], buffers: Sequence[Any]) -> int:
    """Return how many bytes a launch touches in the node's inputs and outputs and in other buffers.

    Elements repeated by a stride of 0 count once. Other buffers are scratch memory, and count in full.
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
    OpenCLFused: lambda op, inputs, outputs: op.scalar_operations(inputs),
    **dict.fromkeys((blas.OpenCLDot22, blas.OpenCLDot22Scalar, blas.OpenCLDot, blas.OpenCLBatchedDot), _product(0)),
    **dict.fromkeys((blas.OpenCLGemm, blas.OpenCLGemv), _product(2)),
    blas.OpenCLGer: lambda op, inputs, outputs: 2 * _size(outputs[0]),
    OpenCLConv: lambda op, inputs, outputs: _convolution(outputs[0], inputs[1]),
    OpenCLConvGradWeights: lambda op, inputs, outputs: _convolution(inputs[1], outputs[0]),
    OpenCLConvGradInputs: lambda op, inputs, outputs: _convolution(inputs[1], inputs[0]),
}
