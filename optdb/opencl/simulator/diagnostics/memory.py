"""Predicts how much device memory a call needs.

If a call with arguments of the same shapes was recorded, the predicted amount is exact. If no such call was recorded,
the function is traced as for an export, and values are assigned to buffers as in a plan.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from optdb.device.export import Held, InputSpec, trace
from optdb.device.plans.linked import LinkedFunction
from optdb.device.plans.plan import provided_liveness
from optdb.device.plans.recording import allowed
from optdb.host.api.graph import Variable
from optdb.html_tables import ReportTables
from optdb.lifters.text_tables import text_of
from optdb.opencl.exporting import traceable
from optdb.opencl.linking.nodes import on_device
from optdb.opencl.linking.planned_vm import PlannedVM, as_variables
from optdb.opencl.simulator.execution.executable import Executable
from optdb.opencl.simulator.execution.state import State
from optdb.runtime.arrays import Array
from optdb.runtime.buffer_assignment import CommandGroup, IOBinding, Liveness, liveness, may_be_external
from optdb.runtime.calling import Argument
from optdb.runtime.commands import Memory
from optdb.runtime.recording import ArrayLayout, Untraceable

_LARGEST = 5


@dataclass(frozen=True, repr=False)
class MemoryReport(ReportTables):
    """The device memory that a call needs, in bytes."""

    #: Memory for the results of nodes, which is shared by values that are not live at the same time.
    values: int
    #: Memory that the results of nodes would need if each had its own buffer.
    separately: int
    inputs: int
    shared: int
    constants: int
    #: The maximum memory that a function may use.
    allowed: int
    largest: list[tuple[int, str]]
    #: Whether the numbers come from a recorded call instead of a trace.
    recorded: bool

    @property
    def total(self) -> int:
        """The call's peak device memory."""
        return self.values + self.inputs + self.shared + self.constants

    def render(self) -> Table:
        """Return the report as a table.

        Returns
        -------
        rich.table.Table
            Sizes are in bytes.
        """
        table = Table(title=f"memory of a call, {'as recorded' if self.recorded else 'as traced'}")
        table.add_column("what")
        table.add_column("bytes", justify="right")
        rows = [
            ("values, in shared buffers", self.values),
            ("inputs", self.inputs),
            ("shared variables", self.shared),
            ("constants", self.constants),
            ("total", self.total),
            ("a function may use", self.allowed),
            ("values, with a buffer for each", self.separately),
        ]
        for what, nbytes in rows:
            table.add_row(what, f"{nbytes:,}", end_section=what in ("constants", "a function may use"))
        table.add_section()
        for nbytes, what in self.largest:
            table.add_row(Text(what), f"{nbytes:,}")
        return table

    def __str__(self) -> str:
        return text_of(self.render())


def memory_of(executable: Executable, state: State) -> MemoryReport:
    """Return the memory that a call needs for the values stored in a function's inputs."""
    values = executable.given()
    machine = executable.run
    if not isinstance(machine, PlannedVM):
        raise Untraceable("the function runs without plans: its memory is not known beforehand")
    recording = machine.recorded
    if recording is not None:
        live, io = provided_liveness(recording), recording.io
        lying = reversed(recording.layouts.items())
        describe = machine.linked.describe
        names = {layout.memory: describe(var, layout) for var, layout in lying if layout.memory is not None}
    elif machine.linked.branches.conditions:
        raise Untraceable("the branches that a call takes are unknown: call the function with these arguments first")
    else:
        live, io, names = _traced(machine.linked, values, state)
    shared = {id(array): array for array in (shared.cell[0] for shared in state)}
    linked = machine.linked
    constants = (var for var in linked.cells if var not in linked.producers and var not in linked.inputs)
    sizes = [(memory.nbytes, names.get(memory, "a temporary value")) for memory in live.ranges]
    return MemoryReport(
        values=live.nbytes(io),
        separately=live.nbytes_without_reuse,
        inputs=_nbytes(value for value in values.values() if id(value) not in shared),
        shared=_nbytes(shared.values()),
        constants=_nbytes(map(linked.value, constants)),
        allowed=allowed(state.context.cl_context, linked.options().device_memory_fraction),
        largest=sorted(sizes, reverse=True)[:_LARGEST],
        recorded=recording is not None,
    )


def _nbytes(values: Iterable[object]) -> int:
    return sum(value.base_data.size for value in values if isinstance(value, Array) and value.base_data is not None)


def _traced(
    linked: LinkedFunction, values: dict[Variable, Any], state: State
) -> tuple[Liveness, IOBinding, dict[Memory, str]]:
    device_inputs = [var for var in values if on_device(var)]
    host_inputs = [var for var in values if not on_device(var)]
    entries = {
        var: _entry(number, var, values[var])
        for some in (device_inputs, host_inputs)
        for number, var in enumerate(some)
    }
    returned = len(linked.outputs) - len(linked.updates)
    specs = [entries[var] for var in as_variables(linked.inputs)]
    function = traceable(linked, state.context_name, returned)
    made = trace(function, specs, state.context.profile.device_kind, True)
    output_values = {var: output.value for var, output in zip(linked.outputs, made.outputs)}
    lying = {var: layout for var, layout in output_values.items() if isinstance(layout, ArrayLayout)}
    external = [var for var in linked.external_outputs if var in lying and may_be_external(lying[var])]
    outputs = {var: memory for var in external if (memory := lying[var].memory) is not None}
    results = [layout.memory for layout in lying.values() if layout.memory is not None]
    live = liveness([CommandGroup(made.commands)], results, {*made.states, *made.constants})
    names: dict[Memory, str] = {}
    for command in made.commands:
        for _, memory in command.operands():
            names.setdefault(memory, f"first in {command.name}")
    return live, IOBinding(outputs=outputs), names


def _entry(number: int, var: Variable, value: Any) -> InputSpec:
    """Return an input's spec for the trace; the spec of a device array refers to its existing buffer."""
    kind = var.type
    if on_device(var):
        return InputSpec(Held(var, var.name, kind.dtype, kind.broadcastable, lambda: value), number, value)
    return InputSpec(Argument(var.name, kind.dtype, kind.broadcastable), number, np.asarray(value))
