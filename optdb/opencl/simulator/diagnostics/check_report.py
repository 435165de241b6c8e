"""The result of checking a call: a table for people, fields for programs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich.console import Group
from rich.table import Table

from optdb.html_tables import ReportTables
from optdb.lifters.tables import new_table, text_of
from optdb.opencl.simulator.diagnostics.comparing import Difference

#: How many differences the table has as rows; the first difference is shown in full.
SHOWN = 20


class StepsDiffer(AssertionError):
    """A step of the device gave something else than the host's own ops.

    Attributes
    ----------
    report : CheckReport
        The whole result of the check.
    """

    def __init__(self, report: CheckReport) -> None:
        super().__init__(str(report))
        self.report = report


@dataclass(frozen=True, eq=False)
class StepCheck:
    """One comparison."""

    #: Of the step, in the order in which they were computed.
    number: int
    #: Of the device.
    op: str
    #: Preceding ops of the device that have no counterpart of their own: one of these may be wrong.
    within: list[str]
    #: The ops by which the host has computed the value, the last one first.
    host_ops: list[str]
    #: Which output of the op.
    output: int
    #: The line of the user's code that it comes from; empty if unknown.
    line: str
    #: How the user's code came to that line, as Theano tells it.
    trace: str
    #: None if the values agree.
    difference: Difference | None = None
    #: The inputs of both sides, by name, where the values differ.
    inputs: list[tuple[str, Any]] = field(default_factory=list)


@dataclass(eq=False, repr=False)
class CheckReport(ReportTables):
    """The result of a check; it prints as tables."""

    #: Of the function.
    name: str
    #: All comparisons, in the order in which they were computed.
    steps: list[StepCheck]
    #: Nodes of the device that could not be compared: the op, and why.
    not_compared: list[tuple[str, str]]
    #: The device's results, on the host.
    outputs: list[Any]
    #: How many nodes are on the ``device``, on the ``host``, and a ``transfer``.
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
            If one does; the message is the report.
        """
        if not self.ok:
            raise StepsDiffer(self)

    def __str__(self) -> str:
        return text_of(self.render())

    def render(self) -> Group:
        """Return the tables, for `rich`.

        Returns
        -------
        rich.console.Group
            The tables of counts, of the steps that differ, and of nodes that were not compared.
        """
        counts = [
            ("values compared", len(self.steps)),
            ("that differ", len(self.differing)),
            ("ops of the device", self.places["device"]),
            ("of these not compared", len(self.not_compared)),
            ("ops of the host", self.places["host"]),
            ("transfers", self.places["transfer"]),
        ]
        tables = [new_table(f"{self.name}: the device beside the host", ("",), ("",), counts)]
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
        rows.append(("with, in front of it", ", ".join(step.within)))
    rows.append(("on the host", ", ".join(step.host_ops)))
    rows.append(("how", f"{difference.what}; {difference.count:,} of {difference.size:,} elements"))
    if difference.index is not None:
        rows.append(("where by most", difference.index))
    rows.append(("the device has", _short(difference.on_device)))
    rows.append(("the host has", _short(difference.on_host)))
    if difference.tolerance is not None:
        rows.append(("allowed there", f"{difference.tolerance:.3g}"))
    rows += [(f"input: {name}", summary(value)) for name, value in step.inputs]
    rows.append(("made by", step.trace or "no trace was kept: see Theano's flag traceback.limit"))
    return new_table(f"the first that differs: step {step.number}", ("", ""), (), rows)


def summary(value: Any) -> str:
    """Describe an array in one line: dtype, shape, and the range of its numbers."""
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
