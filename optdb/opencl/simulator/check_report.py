"""What a check of a call has found: a table for people, fields for programs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from optdb.lifters.tables import new_table, text_of
from optdb.opencl.simulator.comparing import Difference

#: So many differences are shown as rows; the first one is shown in full.
SHOWN = 20


class StepsDiffer(AssertionError):
    """A step of the device gave something else than the host's own ops.

    Attributes
    ----------
    report : CheckReport
        All that the check has found.
    """

    def __init__(self, report: CheckReport) -> None:
        super().__init__(str(report))
        self.report = report


@dataclass(frozen=True, eq=False)
class StepCheck:
    """One comparison.

    Parameters
    ----------
    number : int
        Of the step, in the order in which they were computed.
    op : str
        Of the device.
    within : list of str
        Ops of the device in front of it that have no counterpart of their own: the fault may be theirs.
    host_ops : list of str
        What the host has computed with, the last one first.
    output : int
        Which output of the op.
    line : str
        The line of the user's code that it comes from; empty if that is not known.
    trace : str
        How the user's code came to that line, as Theano tells it.
    difference : Difference or None
        None if the values are alike.
    inputs : list of (str, object)
        What both have computed from, by names, where they differ.
    """

    number: int
    op: str
    within: list[str]
    host_ops: list[str]
    output: int
    line: str
    trace: str
    difference: Difference | None = None
    inputs: list[tuple[str, Any]] = field(default_factory=list)


@dataclass(eq=False)
class CheckReport:
    """What a check has found.

    Parameters
    ----------
    name : str
        Of the function.
    steps : list of StepCheck
        All comparisons, in the order in which they were computed.
    not_compared : list of (str, str)
        Nodes of the device that could not be compared: the op, and why.
    outputs : list
        What the device has computed, on the host.
    places : Counter
        How many nodes are on the ``device``, on the ``host``, and a ``transfer``.
    """

    name: str
    steps: list[StepCheck]
    not_compared: list[tuple[str, str]]
    outputs: list[Any]
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
        """Return the tables, for `rich`."""
        parts: list[Any] = [self._summary()]
        if self.first is not None:
            parts += [self._differences(), _in_full(self.first)]
        if self.not_compared:
            parts.append(self._without())
        return Group(*parts)

    def _summary(self) -> Table:
        table = new_table(f"{escape(self.name)}: the device beside the host", ("",), ("",))
        table.add_row("values compared", str(len(self.steps)))
        table.add_row("that differ", str(len(self.differing)))
        table.add_row("ops of the device", str(self.places["device"]))
        table.add_row("of these not compared", str(len(self.not_compared)))
        table.add_row("ops of the host", str(self.places["host"]))
        table.add_row("transfers", str(self.places["transfer"]))
        return table

    def _differences(self) -> Table:
        table = new_table("steps that differ", ("step", "op", "line", "how", "where"), ("elements",))
        for step in self.differing[:SHOWN]:
            found = step.difference
            where = "" if found.index is None else str(found.index)
            table.add_row(
                *(str(step.number), escape(step.op), escape(step.line), escape(found.what), escape(where)),
                f"{found.count:,} of {found.size:,}",
            )
        if len(self.differing) > SHOWN:
            table.add_row("", f"and {len(self.differing) - SHOWN} more", "", "", "", "")
        return table

    def _without(self) -> Table:
        table = new_table("not compared", ("op", "because"), ("nodes",))
        for (op, why), count in Counter(self.not_compared).most_common():
            table.add_row(escape(op), escape(why), str(count))
        return table


def _in_full(step: StepCheck) -> Table:
    """Return all that is known of a difference."""
    found = step.difference
    table = new_table(f"the first that differs: step {step.number}", ("", ""))
    rows = [("op", step.op), ("output", str(step.output))]
    if step.within:
        rows.append(("with, in front of it", ", ".join(step.within)))
    rows.append(("on the host", ", ".join(step.host_ops)))
    rows.append(("how", f"{found.what}; {found.count:,} of {found.size:,} elements"))
    if found.index is not None:
        rows.append(("where by most", str(found.index)))
    rows.append(("the device has", _short(found.on_device)))
    rows.append(("the host has", _short(found.on_host)))
    if found.tolerance is not None:
        rows.append(("allowed there", f"{found.tolerance:.3g}"))
    rows += [(f"input: {name}", summary(value)) for name, value in step.inputs]
    rows.append(("made by", step.trace or "no trace was kept: see Theano's flag traceback.limit"))
    for name, text in rows:
        table.add_row(Text(name), Text(text))
    return table


def summary(value: Any) -> str:
    """Return what an array is, in one line: dtype, shape, and where its numbers lie."""
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
