"""Where the time of a call goes: its nodes are run one by one, each of their commands timed by the device.

Flow: as a check does, a profile computes the device graph node by node (``stepping``), without a plan and without
changing anything; what is put into the queue goes into one that keeps times (``optdb.runtime.timing``). The first round
is not measured: it compiles, and makes the memory that the others use again. Of the others, each command has a row,
with the median of its times.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from optdb.host.graph import Apply, Variable
from optdb.host.traces import place_in_code
from optdb.opencl.simulator.executable import Executable
from optdb.opencl.simulator.profile_report import HOST, ProfileReport, Row, Span
from optdb.opencl.simulator.stepping import Cells, Steps, Values, touches_device
from optdb.opencl.simulator.work import operations, touched
from optdb.runtime.arrays import from_host, to_host
from optdb.runtime.commands import EnqueueKernel, listened
from optdb.runtime.timing import Timed, Timer


def profile(executable: Executable, name: str, n: int) -> ProfileReport:
    """Measure `n` calls of the function of a name, with what is in the storage of its inputs.

    Raises
    ------
    ValueError
        If `n` is less than 1.
    """
    if n < 1:
        raise ValueError(f"a profile measures at least one call, not {n}")
    profiler = Profiler(executable)
    rounds = [profiler.run() for _ in range(n + 1)][1:]
    return ProfileReport(name, n, _medians(rounds), profiler.spans)


class Profiler:
    """Measures calls with what is in the storage of a function's inputs."""

    def __init__(self, executable: Executable) -> None:
        self._executable = executable
        self._graph = executable.graph.fgraph
        self._given = executable.given()
        self._arguments = {var: to_host(self._given[var]) for var in executable.arguments}
        self._steps = Steps(keep=True, around=self._node)
        self._places = {node: _origin(executable.graph.origins, node) for node in self._graph.apply_nodes}
        #: When what was done in the last call.
        self.spans: list[Span] = []

    def run(self) -> list[Row]:
        """Measure a call; return its rows in the order of what they tell of."""
        self._timer = Timer()
        self._rows: list[Row] = []
        self.spans = []
        self._done: list[tuple[Row, Timed]] = []
        self._begun = time.perf_counter()
        values: Values = dict(self._given)
        for var, value in self._arguments.items():
            self._transfer("argument", var, functools.partial(from_host, var.type.context, value, values[var]))
        outputs = self._steps.compute(self._graph.outputs, values)
        for var, array in self._executable.brought_home(outputs):
            self._transfer("result", var, functools.partial(to_host, array))
        self.spans += self._on_device()
        return self._rows

    def _on_device(self) -> list[Span]:
        """Return when the device did what, by Python's clock: a command is queued before Python has it in the queue."""
        lag = [timed.enqueued - timed.event.profile.queued * 1e-9 for _, timed in self._done]
        return [_span(row, timed, min(lag) - self._begun) for row, timed in self._done]

    def _node(self, node: Apply, thunk: Callable[[], Any], cells: Cells) -> None:
        """Run a node, and write down what it did."""
        inputs = [cells[var][0] for var in node.inputs]  # before one of them is written over
        begun, ended = self._timed(thunk)
        outputs = [cells[var][0] for var in node.outputs]
        device = touches_device(node)
        base = Row(str(node.op), *self._places[node], where="device" if device else HOST)
        count = operations(node, inputs, outputs) if device else None
        self._write(base, begun, ended, [*inputs, *outputs], count)

    def _transfer(self, op: str, var: Variable, move: Callable[[], Any]) -> None:
        begun, ended = self._timed(move)
        self._write(Row(op, str(var), "", "", where="device"), begun, ended, [], None)

    def _timed(self, function: Callable[[], Any]) -> tuple[float, float]:
        """Call a function, and wait for what it has enqueued; return when it began, and when Python was done."""
        self._timer.begin()
        with listened(self._timer):
            begun = time.perf_counter()
            function()
            ended = time.perf_counter()
        self._timer.finish()
        return begun, ended

    def _write(self, base: Row, begun: float, ended: float, arrays: Sequence[Any], count: int | None) -> None:
        """Add a row for each command of a node; one for the host's part where there is none."""
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
    told = {"op": row.op, "line": row.line, "bytes": row.nbytes, "operations": row.operations}
    if isinstance(timed.command, EnqueueKernel):
        told |= {"items": str(timed.command.global_size), "group": str(timed.command.local_size)}
    return Span(row.kernel, "device", timed.event.profile.start * 1e-9 + shift, timed.seconds, told)


def _medians(rounds: Sequence[list[Row]]) -> list[Row]:
    """Return the rows of a round with the medians of all; what a round did otherwise than the last is left out."""
    keys = [[(row.op, row.kernel) for row in rows] for rows in rounds]
    alike = [rows for rows, key in zip(rounds, keys, strict=True) if key == keys[-1]]
    return [
        replace(
            rows[-1],
            device=None if rows[-1].device is None else statistics.median(row.device for row in rows),
            host=statistics.median(row.host for row in rows),
        )
        for rows in zip(*alike, strict=True)
    ]


def _origin(origins: Mapping[Variable, Variable], node: Apply) -> tuple[str, str, str]:
    """Return a node's name for people, and where in the user's code it comes from."""
    for out in node.outputs:
        origin = origins.get(out)
        if origin is not None:
            return out.name or "", *place_in_code(origin)
    return "", *place_in_code(node.outputs[0])
