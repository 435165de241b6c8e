"""The result of checking a call, as printed tables and as fields."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich.console import Group
from rich.table import Table

from optdb.html_tables import ReportTables
from optdb.lifters.text_tables import new_table, text_of
from optdb.opencl.simulator.diagnostics.comparing import Difference

#: Maximum number of differences in the table; the first difference is also shown in full.
SHOWN = 20


class StepsDiffer(AssertionError):
    """A step on the device and the host's own ops returned different results.

    Attributes
    ----------
    report : CheckReport
        The complete result of the check.
    """

    def __init__(self, report: CheckReport) -> None:
        super().__init__(str(report))
        self.report = report


@dataclass(frozen=True, eq=False)
class StepCheck:
    """The comparison of one step."""

    #: The step's number, in the order of computation.
    number: int
    #: The device op.
    op: str
    #: Preceding device ops without a counterpart on the host. The wrong op may be one of these.
    within: list[str]
    #: The host ops that computed the value, last op first.
    host_ops: list[str]
    #: Index of the op's output.
    output: int
    #: The line in the user's code that created the op; empty if unknown.
    line: str
    #: The stack trace of that line, formatted by Theano.
    trace: str
    #: None if the values agree.
    difference: Difference | None = None
    #: If the values differ, the names and values of the inputs, which are the same for the device and the host.
    inputs: list[tuple[str, Any]] = field(default_factory=list)


@dataclass(eq=False, repr=False)
class CheckReport(ReportTables):
    """The result of a check; it prints as tables."""

    #: Name of the function.
    name: str
    #: All comparisons, in the order of computation.
    steps: list[StepCheck]
    #: For each device node that could not be compared, its op and the reason.
    not_compared: list[tuple[str, str]]
    #: The device's results, copied to the host.
    outputs: list[Any]
    #: The number of nodes of each kind: ``device``, ``host`` and ``transfer``.
    places: Counter[str] = field(default_factory=Counter)

    @property
    def ok(self) -> bool:
        """Whether no step differs."""
        return self.first is None

    @property
    def first(self) -> StepCheck | None:
        """The first step that differs; None if none does."""
        return next(iter(self.differing), None)

    @property
    def differing(self) -> list[StepCheck]:
        """The steps that differ."""
        return [step for step in self.steps if step.difference is not None]

    def raise_if_different(self) -> None:
        """Do nothing if no step differs.

        Raises
        ------
        StepsDiffer
            If a step differs; the message is the report.
        """
        if not self.ok:
            raise StepsDiffer(self)

    def __str__(self) -> str:
        return text_of(self.render())

    def render(self) -> Group:
        """Return the tables for printing with `rich`.

        Returns
        -------
        rich.console.Group
            Tables with counts, with the steps that differ, and with the nodes that were not compared.
        """
        counts = [
            ("values compared", len(self.steps)),
            ("that differ", len(self.differing)),
            ("ops of the device", self.places["device"]),
            ("of these, not compared", len(self.not_compared)),
            ("ops of the host", self.places["host"]),
            ("transfers", self.places["transfer"]),
        ]
        tables = [new_table(f"{self.name}: device compared with host", ("",), ("",), counts)]
        if self.first is not None:
            columns = ("step", "op", "line", "how", "where")
            rows = map(_row, self.differing)
            tables += [new_table("steps that differ", columns, ("elements",), rows, SHOWN), _in_full(self.first)]
        if self.not_compared:
            reasons = ((op, why, count) for (op, why), count in Counter(self.not_compared).most_common())
            tables.append(new_table("not compared", ("op", "because"), ("nodes",), reasons))
        return Group(*tables)


def _row(step: StepCheck) -> tuple[Any, ...]:
    difference = step.difference
    assert difference is not None, step
    where = "" if difference.index is None else difference.index
    return step.number, step.op, step.line, difference.what, where, f"{difference.count:,} of {difference.size:,}"


def _in_full(step: StepCheck) -> Table:
    """Return every field of a difference as a table."""
    difference = step.difference
    assert difference is not None, step
    rows: list[tuple[str, Any]] = [("op", step.op), ("output", step.output)]
    if step.within:
        rows.append(("fused with", ", ".join(step.within)))
    rows.append(("on the host", ", ".join(step.host_ops)))
    rows.append(("how", f"{difference.what}; {difference.count:,} of {difference.size:,} elements"))
    if difference.index is not None:
        rows.append(("largest difference at", difference.index))
    rows.append(("the device has", _short(difference.on_device)))
    rows.append(("the host has", _short(difference.on_host)))
    if difference.tolerance is not None:
        rows.append(("allowed there", f"{difference.tolerance:.3g}"))
    rows += [(f"input: {name}", summary(value)) for name, value in step.inputs]
    rows.append(("made by", step.trace or "no trace was recorded: see Theano's flag traceback.limit"))
    return new_table(f"first difference: step {step.number}", ("", ""), (), rows)


def summary(value: Any) -> str:
    """Describe an array in one line by its dtype, its shape and the range of its values."""
    if not isinstance(value, np.ndarray):
        return _short(value)
    what = f"{value.dtype} {value.shape}"
    if not value.size or value.dtype.kind not in "biuf":
        return what
    finite = value[np.isfinite(value)]
    odd = value.size - finite.size
    bounds = f", {finite.min():.6g} to {finite.max():.6g}" if finite.size else ""
    return what + bounds + (f", {odd:,} not finite" if odd else "")


def _short(value: Any) -> str:
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and not value.ndim):
        return repr(value.item())
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + " ..."
