"""Uses plans to run all calls that have the same input shapes as one traced call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from operator import itemgetter
from typing import Any

import numpy as np

from optdb.codegen.loops.body import Buffer
from optdb.device.functions.host_parts import Conditions, HostComputation
from optdb.device.functions.shared_values import (
    BorrowedArgument,
    Cell,
    IndexBounds,
    LentResult,
    PairedBuffer,
    SharedArgument,
    UpdatedArgument,
    begin_work,
    finish,
    finish_work,
    may_be_in_use,
)
from optdb.device.functions.steps import CompiledStep, FunctionMemory
from optdb.device.plans import LinkedFunction, Node, PlannedMachine, PlanOptions, ValueId
from optdb.device.plans.plan import Plan
from optdb.device.plans.updates import commit
from optdb.numpy_types import HostArray
from optdb.runtime.arrays import Array
from optdb.runtime.context import Context
from optdb.runtime.grid_failures import finish_queue
from optdb.runtime.recording import ArrayLayout
from optdb.runtime.sigint import commit_point, without_sigint
from optdb.runtime.timing import RunAhead


@dataclass(eq=False)
class TracedCall:
    """Runs all calls that have the input shapes of one traced call."""

    context: Context
    memory: FunctionMemory
    options: PlanOptions
    #: The buffers of the arguments; None for arguments that are not arrays.
    buffers: list[Buffer | None] = field(default_factory=list)
    #: The buffers of the arguments that each call copies to the device, with the arguments' positions.
    copied: list[tuple[PairedBuffer, int]] = field(default_factory=list)
    #: The arguments that the device may read in the caller's memory, with their positions.
    borrowed: list[tuple[BorrowedArgument, int]] = field(default_factory=list)
    shared: dict[int, SharedArgument | UpdatedArgument] = field(default_factory=dict)
    #: Maps an argument's position to the value that the argument must have, as bytes.
    values: dict[int, bytes] = field(default_factory=dict)
    #: The bounds of arguments that are indices.
    bounds: list[IndexBounds] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    #: For each output, a `PairedBuffer`, a `LentResult`, a host cell's number, or a constant; None for next values.
    outputs: list[PairedBuffer | LentResult | int | HostArray | None] = field(default_factory=list)
    #: Maps an argument's position to the buffer of its next value, if the next value replaces the value on the device.
    updates: dict[int, Buffer] = field(default_factory=dict)
    #: Maps an argument's position to its next value if the value on the device cannot be replaced, for example because
    #: the shapes differ. Next values have the same form as `outputs`.
    next_values: dict[int, PairedBuffer | LentResult | int | HostArray] = field(default_factory=dict)
    #: The conditions of a function without updates, which are checked when the results are read back.
    conditions: Conditions | None = None
    #: The positions of arguments that the host reads.
    on_host: list[int] = field(default_factory=list)
    _machine: PlannedMachine | None = None
    #: Buffers that the host reads after a call, except for buffers that share memory with the host.
    _requested: list[PairedBuffer] = field(default_factory=list)
    #: For each output, a function that returns the output's value after a call.
    _takes: list[Callable[[], Any]] = field(default_factory=list)
    #: For each of `next_values`, a function that returns the next value after a call.
    _takes_next: list[Callable[[], Any]] = field(default_factory=list)

    def fits(self, cells: Sequence[Cell]) -> bool:
        """Return whether the arguments, whose shapes fit, also have values for which the traced call is valid."""
        if not (self.values or self.bounds):
            return True
        values = ((cells[position][0], expected) for position, expected in self.values.items())
        if not all(np.asarray(value).tobytes() == expected for value, expected in values):
            return False
        return all(bounds.hold(cells[bounds.position][0]) for bounds in self.bounds)

    def link(self) -> None:
        """Create the `PlannedMachine` that runs later calls with plans."""
        read_back = [x for x in (*self.outputs, *self.next_values.values()) if isinstance(x, PairedBuffer)]
        if self.conditions is not None:
            read_back.append(self.conditions.values)
        self._requested = [mailbox for mailbox in read_back if not mailbox.is_shared]
        self._takes = list(map(self._take_of, self.outputs))
        self._takes_next = list(map(self._take_of, self.next_values.values()))
        bound, cells = self.memory.bound, self.memory.cells
        lent: dict[ValueId, Callable[[ArrayLayout], Any]] = {x.buffer: x.bind for x in self._lent}
        read_by_host = (bound.keys() - self.memory.internal) | lent.keys()
        writers = Counter(value for node in self.nodes for value in node.outputs)
        inputs: list[ValueId] = [buffer for buffer in self.buffers if buffer is not None]
        returned = {output for output in (*self.outputs, *self.next_values.values()) if isinstance(output, int)}
        read = {value for node in self.nodes for value in node.inputs if isinstance(value, int)}
        for position in range(len(self.buffers)):
            if position in read | returned:
                self.on_host.append(position)
            else:
                cells[position][0] = None
        # Host results, and values that several steps write, are recomputed in every call.
        shared = {value for value, times in writers.items() if times > 1 or not isinstance(value, Buffer)}
        updates: dict[ValueId, ValueId] = {self.buffers[n]: following for n, following in self.updates.items()}
        linked = LinkedFunction(
            nodes=self.nodes,
            cells=cells,
            inputs=inputs,
            outputs=[*(value for value in writers if value in read_by_host or value in returned), *updates.values()],
            contexts={value: self.context for value in cells if isinstance(value, Buffer)},
            constants=bound.keys() - writers.keys() - set(inputs),
            exposed={*inputs, *bound, *shared},
            rebindable_inputs=frozenset(filter(None, (self.buffers[position] for _, position in self.borrowed))),
            external_outputs=lent,
            overwritten=shared,
            updates=updates,
            clear_before=[cells[following] for following in updates.values()],
            repeats_commands=True,
            options=lambda: self.options,
            describe=_described,
        )
        if self.device_steps:
            self._machine = PlannedMachine(linked)

    def send(self, cells: Sequence[Cell], borrows: bool = True) -> None:
        """Transfer a call's arguments to the device, which is not using the arguments of earlier calls.

        If `borrows` is false, the caller may change its arrays before the device has finished.
        """
        for paired, position in self.copied:
            paired.send(cells[position][0])
        for argument, position in self.borrowed:
            value, in_place = cells[position][0], borrows and self._is_rebindable(position)
            self._bind(position, argument.borrow(value) if in_place else argument.copy(value))
        if self.on_host or self.shared:
            self._send_others(cells)

    def _bind(self, position: int, array: Array) -> None:
        buffer = self.buffers[position]
        assert buffer is not None, "only arrays have device arrays"
        self.memory.bind(buffer, array)

    def _is_rebindable(self, position: int) -> bool:
        """Return whether plans, if there are any, can read an argument in another buffer in each call."""
        return self._machine is None or self.buffers[position] in self._machine.linked.rebindable_inputs

    def _enqueue_send(self, cells: Sequence[Cell]) -> list[Any]:
        """Transfer arguments to the device, which may still be using earlier arguments; return the copies' events."""
        events = [paired.enqueue_send(cells[position][0]) for paired, position in self.copied]
        for argument, position in self.borrowed:
            event, array = argument.enqueue_copy(cells[position][0])
            events.append(event)
            self._bind(position, array)
        self._send_others(cells)
        return events

    def _send_others(self, cells: Sequence[Cell]) -> None:
        """Pass on the arguments that the host reads, and the arguments that may already be on the device."""
        for position in self.on_host:
            self.memory.cells[position][0] = cells[position][0]
        for position, argument in self.shared.items():
            cell = cells[position]
            array = argument.update(cell if isinstance(argument, UpdatedArgument) else cell[0])
            if array is not None:
                self._bind(position, array)

    @cached_property
    def _queue(self) -> Any:
        return self.context.queue

    @property
    def machine(self) -> PlannedMachine:
        assert self._machine is not None, "nothing is computed on the device"
        return self._machine

    def call(self, cells: Sequence[Cell]) -> list[Any]:
        """Run a call; raise Mismatch if a value differs from the value in the traced call."""
        finish_work(self.context)
        self.send(cells)
        try:
            if self._machine is None:
                for node in self.nodes:
                    node.compute()
            else:
                self._machine()
            return self.end(cells)
        except BaseException:
            self.return_borrowed()
            raise

    @cached_property
    def _lent(self) -> list[LentResult]:
        return [x for x in (*self.outputs, *self.next_values.values()) if isinstance(x, LentResult)]

    def forget_lent(self) -> None:
        """Drop the device arrays of the traced call's large results."""
        for result in self._lent:
            result.forget()

    def return_borrowed(self) -> None:
        """Wait until the device has finished with memory that may be freed after an error."""
        if self.borrowed or self._lent:
            finish(self.context)

    def commit(self) -> None:
        """Write the next values of device inputs at the end of the traced call."""
        commit_point()
        if self.updates:
            commit(self.machine.linked)

    def end(self, cells: Sequence[Cell]) -> list[Any]:
        """Return the results of an enqueued call, and store next values in the inputs' cells.

        Raise the error of a condition that does not hold.
        """
        for mailbox in self._requested:
            mailbox.request()
        finish_queue(self._queue)
        if self.conditions is not None:
            self.conditions.check()
        results = [take() for take in self._takes]
        if self.next_values:
            following = [take() for take in self._takes_next]
            for position, value in zip(self.next_values, following):
                cells[position][0] = value
        if self.updates:
            self.note_updates(cells, is_done=True)
        return results

    def note_updates(self, cells: Sequence[Cell], is_done: bool) -> None:
        """Store proxies of updated device values in the cells; the device may still be computing the values."""
        for position in self.updates:
            argument = self.shared[position]
            assert isinstance(argument, UpdatedArgument) and argument.shared is not None
            cells[position][0] = argument.shared.updated(is_done)

    def _take_of(self, output: PairedBuffer | LentResult | int | HostArray | None) -> Callable[[], Any]:
        """Return a function that returns an output's value after a call."""
        if isinstance(output, PairedBuffer | LentResult):
            return output.take
        if isinstance(output, np.ndarray):
            return output.copy
        return partial(itemgetter(0), [None] if output is None else self.memory.cells[output])

    @property
    def needs_host(self) -> bool:
        """Whether the host does more in each call than pass arguments and results."""
        return self._machine is None or bool(self.next_values) or len(self.device_steps) < len(self.nodes)

    @property
    def may_begin(self) -> bool:
        """Whether a call may return before the device has finished it."""
        return not (self.needs_host or self.conditions is not None or self.context.profile.runs_in_caller)

    def repeat(self, cells: Sequence[Cell], times: int) -> list[Any]:
        """Run several calls that do not need the host; return the results of the last call."""
        finish_work(self.context)
        self.send(cells)
        try:
            self.machine.repeat(times, RunAhead(self.context.queue))
        finally:
            # Even after an interrupt, store the values that the inputs have after the last complete step.
            results = without_sigint(self.end, cells)
        return results

    def begin(self, cells: Sequence[Cell]) -> tuple[list[Any], list[Any]]:
        """Enqueue a call that does not need the host; return the result arrays and the events of the copies to them."""
        events: list[Any] = []
        if may_be_in_use(self.context):
            events += self._enqueue_send(cells)
        else:
            self.send(cells, borrows=False)
        begin_work(self.context)
        for result in self._lent:
            result.lends = False  # a later call might free the memory while the device is still writing to it
        try:
            self.machine()
        finally:
            for result in self._lent:
                result.lends = True
        self.note_updates(cells, is_done=False)
        found: list[Any] = []
        for output, take in zip(self.outputs, self._takes, strict=True):
            if isinstance(output, PairedBuffer | LentResult):
                found.append(output.empty())
                events.append(output.enqueue_take(found[-1]))
            else:
                found.append(take())
        return found, [event for event in events if event is not None]

    @property
    def plans(self) -> list[Plan]:
        """The plans that repeat the call; none before the third call."""
        return [] if self._machine is None else self._machine.plans

    @property
    def device_work(self) -> list[str]:
        return list(map(str, self.device_steps))

    @property
    def device_steps(self) -> list[CompiledStep]:
        return [node.origin for node in self.nodes if isinstance(node.origin, CompiledStep)]

    @property
    def host_steps(self) -> list[HostComputation]:
        return [node.origin for node in self.nodes if isinstance(node.origin, HostComputation)]


def _described(value: ValueId, layout: ArrayLayout) -> str:
    name = f"{value.name}, " if isinstance(value, Buffer) else ""
    return f"{name}{layout.dtype} {layout.shape}"
