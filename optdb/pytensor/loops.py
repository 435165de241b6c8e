"""Ops that contain graphs: `OpFromGraph`, and `Scan`, whose step is traced once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Variable
from pytensor.scan.op import Scan

from optdb.device.expressions import broadcast, folded, joined, reshaped, rows_of, view
from optdb.device.functions.host_parts import Value
from optdb.device.iterations import Carried, Iteration, StepRow, iterated, varying
from optdb.device.tensors import Constant, Coordinate, Tensor
from optdb.pytensor.dispatch import OnHost, described, tensors_of
from optdb.pytensor.host_groups import op_name
from optdb.pytensor.tracing import DtypeNotOnDevice, GraphTrace, InnerTrace


@described.register(OpFromGraph)
def _inner_graph(op: OpFromGraph, node: Apply, inputs: Sequence[Value], trace: GraphTrace) -> list[Value]:
    return trace.inner(op.fgraph, node)


#: The maximum number of launches in a loop; recording more would take seconds.
MOST_LAUNCHES = 20_000
#: A step with fewer operations than this takes less time on the host than its launches take on a device.
LEAST_WORK = 100_000
#: A function that maps the array written by a loop's steps to an output of the loop.
_Finish = Callable[[Tensor], Tensor]
#: The conditions that a step checks, each with the error raised if it does not hold.
_Checks = list[tuple[Tensor, Callable[[], Exception]]]


@described.register(Scan)
def _scan(op: Scan, node: Apply, inputs: Sequence[Value], trace: GraphTrace) -> list[Value]:
    if op.info.as_while:
        raise OnHost("the loop has a stop condition, which is evaluated after each step")
    (steps,) = trace.numbers(node.inputs[:1])
    if steps < 0:
        raise IndexError(f"a loop cannot have {steps} steps")
    loop = _ScanLoop(op, node, steps, trace)
    return loop.unrepeated() if not steps else loop.outputs()


class _ScanLoop:
    """A PyTensor loop with a known number of steps."""

    def __init__(self, op: Scan, node: Apply, steps: int, trace: GraphTrace) -> None:
        self._op, self._node, self._steps, self._trace = op, node, steps, trace
        #: The rows that steps read, in the order of the inner graph's inputs.
        self._rows: list[StepRow] = []
        self._carried: list[Carried] = []
        self._finishes: list[_Finish] = []
        #: For each result of a step: the array in which it is stored, and the row that the first step writes. None for
        #: results that no step reads; their arrays are added later.
        self._targets: list[tuple[Carried, int] | None] = []

    def unrepeated(self) -> list[Value]:
        """Return the outputs of a loop without steps; as in PyTensor, all axes of results have length 0."""
        op, node = self._op, self._node
        given = [*op.outer_mitmot(node.inputs), *op.outer_mitsot(node.inputs), *op.outer_sitsot(node.inputs)]
        results = [
            Constant(np.empty((0,) * var.type.ndim, var.type.dtype)) for var in op.outer_nitsot_outs(node.outputs)
        ]
        return [*self._values(given), *results, *self._values(op.outer_untraced_sit_sot(node.inputs))]

    def outputs(self) -> list[Value]:
        op, node, info = self._op, self._node, self._op.info
        self._read_sequences(self._tensors(op.outer_seqs(node.inputs)))
        slices = zip(info.mit_mot_in_slices, info.mit_mot_out_slices, strict=True)
        for x, (taps, written) in zip(self._tensors(op.outer_mitmot(node.inputs)), slices, strict=True):
            self._add_accumulated(x, taps, written)
        states = self._tensors([*op.outer_mitsot(node.inputs), *op.outer_sitsot(node.inputs)])
        for x, taps in zip(states, (*info.mit_sot_in_slices, *info.sit_sot_in_slices), strict=True):
            self._add_state(x, taps)
        last_values = self._tensors(op.outer_untraced_sit_sot(node.inputs))
        self._targets += [None] * info.n_nit_sot
        for x in last_values:
            self._add_last_value(x)
        others = self._values(op.outer_non_seqs(node.inputs))
        results, checks = self._step([*self._rows, *others], op.outer_non_seqs(node.inputs))
        lengths = self._trace.numbers(op.outer_nitsot(node.inputs))
        self._write(results, lengths)
        return self._finished(checks)

    def _values(self, variables: Sequence[Variable]) -> list[Value]:
        return [self._trace.value(var) for var in variables]

    def _tensors(self, variables: Sequence[Variable]) -> list[Tensor]:
        return tensors_of(self._values(variables))

    def _read_sequences(self, sequences: Sequence[Tensor]) -> None:
        for number, x in enumerate(sequences):
            if x.shape[0] < self._steps:
                raise ValueError(
                    f"sequence {number} of a loop has shape {x.shape}, but the loop has {self._steps} steps"
                )
            self._rows.append(StepRow(x))

    def _add(self, carried: Carried, finish: _Finish) -> Carried:
        self._carried.append(carried)
        self._finishes.append(finish)
        return carried

    def _add_accumulated(self, x: Tensor, taps: Sequence[int], written: Sequence[int]) -> None:
        """Add an array that steps read and write at any taps, such as the gradient of a state."""
        if not x.shape[0]:
            raise OnHost("an array that its steps write has no rows")
        first, count = -min(taps), x.shape[0]
        if len(written) > 1 or first + written[0] + self._steps > count:
            carried = self._add(Carried(count, x.shape[1:], x.dtype, [(0, x)]), lambda array: array)
            self._rows += [StepRow(carried, first + tap) for tap in taps]
            self._targets += [(carried, first + tap) for tap in written]
            return
        # Rows that a step reads before any step writes them are read from `x` itself.
        target = first + written[0]
        unwritten = [(0, target), (target + self._steps, count)]
        initial = [(start, rows_of(x, start, stop - start)) for start, stop in unwritten if start < stop]
        carried = self._add(Carried(count, x.shape[1:], x.dtype, initial), lambda array: array)
        self._rows += [StepRow(carried if tap < written[0] else x, first + tap) for tap in taps]
        self._targets.append((carried, target))

    def _add_state(self, x: Tensor, taps: Sequence[int]) -> None:
        """Add an array of initial rows, to which each step appends a row; an array with too few rows wraps around."""
        before, length = -min(taps), x.shape[0]
        if length < before:
            raise OnHost(f"a state has {length} rows, but a step reads {before}")
        count = before + self._steps
        # Keep one row more than a step reads, so that no step writes a row that it reads.
        rows = length if length >= count else max(length, before + 1)
        carried = Carried(
            rows, x.shape[1:], x.dtype, [(0, rows_of(x, 0, before)), *_zeros(count, length, x.shape[1:], x.dtype)]
        )
        self._add(carried, lambda array: _last_rows(array, count, length))
        self._rows += [StepRow(carried, before + tap) for tap in taps]
        self._targets.append((carried, before))

    def _add_last_value(self, x: Tensor) -> None:
        """Add a state of which only the last value is needed: each step reads one of two rows and writes the other."""
        carried = Carried(2, x.shape, x.dtype, [(0, reshaped(x, (1, *x.shape)))])
        along = [Coordinate(0, ((axis, 1),)) for axis in range(x.ndim)]
        self._add(carried, lambda array: view(array, x.shape, [Coordinate(self._steps % 2), *along]))
        self._rows.append(StepRow(carried, 0))
        self._targets.append((carried, 1))

    def _step(self, values: Sequence[Value], others: Sequence[Variable]) -> tuple[list[Tensor], _Checks]:
        """Return a step's results for the given input values, and the step's checks."""
        fgraph, tracer = self._op.fgraph, _StepTracer(self._trace.tracer, self._rows)
        # The last inputs are the same in each step.
        given = dict(zip(fgraph.inputs[len(values) - len(others) :], others, strict=True))
        try:
            results = _StepTrace(self._trace, fgraph, values, given, tracer, self._trace.host.apart()).results()
        except DtypeNotOnDevice as error:
            raise OnHost(str(error)) from error
        return tensors_of(results), tracer.checks

    def _write(self, results: Sequence[Tensor], lengths: Sequence[int]) -> None:
        """Write the results of a step to their arrays."""
        alone = iter(lengths)
        last = len(self._carried) - self._op.info.n_untraced_sit_sot
        for value, target in zip(results, self._targets, strict=True):
            if target is None:
                carried, start = self._results(value, next(alone), last)
                last += 1
            else:
                carried, start = target
            if value.shape != carried.row_shape or value.dtype != carried.dtype:
                raise OnHost(f"a step returns {value} for a state of shape {carried.row_shape} and {carried.dtype}")
            carried.written.append((start, value))

    def _results(self, value: Tensor, length: int, position: int) -> tuple[Carried, int]:
        """Insert an array for results into the outputs; return the array, and the row that the first step writes.

        If the array has fewer rows than the loop has steps, it keeps the results of the last steps.
        """
        if not length:
            raise OnHost("an array that its steps write has no rows")
        carried = Carried(length, value.shape, value.dtype, _zeros(self._steps, length, value.shape, value.dtype))
        self._carried.insert(position, carried)
        self._finishes.insert(position, lambda array: _last_rows(array, self._steps, length))
        return carried, 0

    def _finished(self, checks: _Checks) -> list[Value]:
        """Return the outputs, and register the steps' checks."""
        conditions = [Carried(self._steps, (), "bool", written=[(0, condition)]) for condition, _ in checks]
        repeats_in_kernels = self._trace.context.profile.runs_items_serially
        carried = [*self._carried, *conditions]
        iteration, arrays = iterated(self._steps, self._rows, carried, repeats_in_kernels)
        self._check_size(iteration)
        for array, (_, error) in zip(arrays[len(self._carried) :], checks, strict=True):
            self._trace.tracer.check(array, error)
        return [finish(array) for finish, array in zip(self._finishes, arrays)]

    def _check_size(self, iteration: Iteration) -> None:
        """Raise OnHost if the loop is faster on the host, or has too many launches for the device."""
        repeats_in_kernels = self._trace.context.profile.runs_items_serially
        if not self._trace.tracer.has_host or (repeats_in_kernels and iteration.is_for_one_item):
            return
        launches = iteration.steps * iteration.launches
        if launches > MOST_LAUNCHES:
            raise OnHost(f"recording a plan of its {launches:,} launches would take seconds")
        if iteration.work < LEAST_WORK and not repeats_in_kernels:
            raise OnHost(
                f"the host computes a step of {iteration.work:,} operations in less time than its launches take"
            )


def _zeros(start: int, stop: int, shape: Sequence[int], dtype: str) -> list[tuple[int, Tensor]]:
    """Return zeros for the rows that no step writes."""
    return [(start, broadcast(Constant(np.zeros((), dtype)), (stop - start, *shape)))] if start < stop else []


def _last_rows(array: Tensor, count: int, length: int) -> Tensor:
    """Return the last `length` of `count` rows, which were written in order to an array that may wrap around."""
    rows = array.shape[0]
    if rows >= count:
        return array if length >= count else rows_of(array, count - length, length)
    first = (count - length) % rows
    head = rows_of(array, first, min(length, rows - first))
    return joined([head, rows_of(array, 0, length - head.shape[0])], 0)


class _StepTracer:
    """The tracer of a loop's step; it knows only values that are the same in each step."""

    def __init__(self, tracer: Any, rows: Sequence[StepRow]) -> None:
        self.context, self.has_host = tracer.context, tracer.has_host
        self.checks: _Checks = []
        self._tracer = tracer
        self._rows = rows

    def _varies(self, tensor: Tensor) -> bool:
        return tensor in varying([tensor], self._rows)

    def concrete(self, tensor: Tensor) -> Any:
        if self._varies(tensor):
            raise OnHost("lengths or indices depend on values computed in a step")
        return self._tracer.concrete(tensor)

    def is_within(self, index: Tensor, length: int) -> bool | None:
        within: bool | None = self._tracer.is_within(index, length)
        return within

    def check(self, condition: Tensor, error: Callable[[], Exception]) -> None:
        if not self._varies(condition):
            self._tracer.check(condition, error)
            return
        whole = folded("AND", condition, range(condition.ndim), "bool") if condition.ndim else condition
        self.checks.append((whole, error))


class _StepTrace(InnerTrace):
    """Traces a loop's inner graph once, for a step whose inputs may be rows of arrays (`StepRow`)."""

    def results(self) -> list[Value]:
        """Return the results of a step; raise OnHost if a node needs the host."""
        for node in self.nodes:
            if not self._describe(node):
                raise OnHost(f"a step contains {op_name(node)}: {self.host.reasons[node]}")
        return [self.value(var) for var in self._fgraph.outputs]
