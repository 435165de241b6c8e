"""How much memory of the device a call takes, before it is made.

What a function has recorded for such arguments is known exactly. Else the function is traced, as for a file: its nodes
run with arrays that have shapes and no memory, and nothing is computed. Then values get their places, as a plan would
give them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.table import Table

from optdb.host.graph import Variable
from optdb.opencl.exporting.walking import Entry, trace
from optdb.opencl.planning import PlannedVM
from optdb.opencl.planning.budget import allowed, named
from optdb.opencl.planning.moving import may_land
from optdb.opencl.planning.plan import spans
from optdb.opencl.planning.recording import Recording, Wiring
from optdb.opencl.planning.roles import on_device
from optdb.opencl.simulator.method import Method
from optdb.opencl.simulator.state import State
from optdb.runtime.arrays import Array
from optdb.runtime.bound import Spans, needed
from optdb.runtime.context import Context
from optdb.runtime.recording import Launch, Layout, Memory
from optdb.runtime.tracing import Trace, Untraceable

__all__ = ["MemoryReport", "memory_of"]

#: So many of the largest values are told.
_LARGEST = 5
_AFTERWARDS = 1 << 60


@dataclass(frozen=True)
class MemoryReport:
    """What a call takes on the device, in bytes.

    Parameters
    ----------
    values : int
        What nodes compute, where those share memory that do not live at the same time.
    separately : int
        The same with a buffer for each.
    inputs, shared, constants : int
        What the call is given, the shared variables of all methods, and the graph's constants.
    allowed : int
        How much a function may take.
    largest : list of (int, str)
        The largest of the values, and what they are.
    recorded : bool
        Whether there was such a call already; else it was traced.
    """

    values: int
    separately: int
    inputs: int
    shared: int
    constants: int
    allowed: int
    largest: list[tuple[int, str]]
    recorded: bool

    @property
    def total(self) -> int:
        """All that the call has on the device at the same time, at most."""
        return self.values + self.inputs + self.shared + self.constants

    def render(self) -> Table:
        """Return it as a table."""
        table = Table(title=f"memory of a call, {'as recorded' if self.recorded else 'as traced'}")
        table.add_column("what")
        table.add_column("bytes", justify="right")
        rows = [
            ("values, in memory that they share", self.values),
            ("inputs", self.inputs),
            ("shared variables", self.shared),
            ("constants", self.constants),
            ("total", self.total),
            ("a function may take", self.allowed),
            ("values, with a buffer for each", self.separately),
        ]
        for what, nbytes in rows:
            table.add_row(what, f"{nbytes:,}", end_section=what in ("constants", "a function may take"))
        table.add_section()
        for nbytes, what in self.largest:
            table.add_row(what, f"{nbytes:,}")
        return table

    def __rich__(self) -> Table:
        return self.render()


def memory_of(
    method: Method, state: State, context: Context, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> MemoryReport:
    """Return what a call takes.

    Parameters
    ----------
    method : Method
        Of a simulator.
    state : State
        Its shared variables.
    context : Context
        Its device.
    args, kwargs
        As the function takes them.

    Raises
    ------
    optdb.runtime.tracing.Untraceable
        If there was no such call, and it cannot be known without one.
    """
    reports: list[MemoryReport] = []

    def compute() -> list[Any]:
        reports.append(_report(method, state, context))
        return [None] * len(method.machine.outputs)

    method.instead(compute, args, kwargs)
    return reports[0]


def _report(method: Method, state: State, context: Context) -> MemoryReport:
    cells = method.given()
    machine = method.machine.run
    if not isinstance(machine, PlannedVM):
        raise Untraceable("the function runs without plans: what it takes is not known beforehand")
    recording = machine.recorded
    if recording is not None:
        found = spans(machine.wiring, recording)
        names = {layout.memory: named(var, layout) for var, layout in reversed(recording.layouts.items())}
    elif machine.wiring.branches is not None:
        raise Untraceable("which branches a call takes is not known before it: call it with such arguments first")
    else:
        found, names = _traced(machine.wiring, cells, context)
    buffers = {id(one): one for one in (shared.cell[0] for shared in state)}
    return MemoryReport(
        values=needed(found),
        separately=sum(memory.nbytes for memory in found),
        inputs=_nbytes(value for value in cells.values() if id(value) not in buffers),
        shared=_nbytes(buffers.values()),
        constants=_nbytes(_constants(machine.wiring, recording)),
        allowed=allowed(context.cl_context),
        largest=sorted(((memory.nbytes, names.get(memory, "on the way")) for memory in found), reverse=True)[:_LARGEST],
        recorded=recording is not None,
    )


def _nbytes(values: Iterable[object]) -> int:
    return sum(value.base_data.size for value in values if isinstance(value, Array) and value.base_data is not None)


def _constants(wiring: Wiring, recording: Recording | None) -> Iterable[object]:
    return [wiring.value(var) for var in wiring.cells if var.owner is None and var not in wiring.inputs]


def _traced(wiring: Wiring, values: dict[Variable, object], context: Context) -> tuple[Spans, dict[Memory, str]]:
    here = [var for var in values if on_device(var)]
    there = [var for var in values if not on_device(var)]
    entries = {var: _entry(number, var, values[var]) for some in (here, there) for number, var in enumerate(some)}
    name = next(
        var.type.context_name for node in wiring.nodes for var in (*node.inputs, *node.outputs) if on_device(var)
    )
    made = trace(wiring, name, entries, len(wiring.outputs) - len(wiring.updates), context.profile.device_kind, True)
    for var, outlet in zip(wiring.outputs, made.outlets):
        if var in wiring.landing and isinstance(outlet.value, Layout) and may_land(outlet.value):
            outlet.value.memory.bare = True  # as `let_move` marks it
    return _spans(made), _by(made)


def _entry(number: int, var: Variable, value: object) -> Entry:
    """Return an input as a trace knows it: what is on the device has memory already."""
    if on_device(var):
        return Entry("state", number, value.shape)
    value = np.asarray(value)
    counts = value.ndim == 0 and value.dtype.kind in "iu"
    return Entry("argument", number, value.shape, int(value) if counts else None)


def _spans(made: Trace) -> Spans:
    found: dict[Memory, tuple[int, int]] = {}
    for step, command in enumerate(made.commands):
        for memory in command.memories():
            if memory not in made.states and memory not in made.constants:
                found[memory] = (found.get(memory, (step, step))[0], step)
    for outlet in made.outlets:
        memory = getattr(outlet.value, "memory", None)
        if memory in found:
            found[memory] = (found[memory][0], _AFTERWARDS)
    return found


def _by(made: Trace) -> dict[Memory, str]:
    """Return by which kernel each memory is used first."""
    names: dict[Memory, str] = {}
    for command in made.commands:
        for memory in command.memories():
            what = command.kernel.name if isinstance(command, Launch) else type(command).__name__.lower()
            names.setdefault(memory, f"first in {what}")
    return names
