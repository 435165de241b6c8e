"""Prints results: a row per class of ops, then each fault with its kernel and line, then kernels that were not run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from memcheck.coverage import short_name
from memcheck.log import Finding
from memcheck.records import Result

ERROR_LINES = 12
SLOW = 3.0
"""CPU seconds from which on a case is named: smaller arrays would do."""


def show(
    console: Console, classes: Iterable[str], results: Sequence[Result], missing: Sequence[str], partial: bool = False
) -> None:
    """Print the results by class of ops, and the kernels that were not run (`missing`).

    With `partial`, missing kernels are no fault, because runs that were not selected may run them.
    """
    console.print(_table(classes, results))
    _show_errors(console, [result for result in results if result.error])
    _show_slow(console, results)
    _show_findings(console, results)
    heading = "not run by this selection" if partial else "[bold red]not run[/]"
    for gap in missing:
        console.print(f"{heading} {escape(gap)}", soft_wrap=True, highlight=False)
    if missing and not partial:
        console.print("The cure: add a line to memcheck/cases.py; see docs/howto-add-a-kernel.md")
    console.print(_summary(results, 0 if partial else len(missing)), highlight=False)


def _summary(results: Sequence[Result], missing: int) -> str:
    """Return a one-line verdict; it is printed last, because readers look at the end of a long log first."""
    runs = f"{len(results)} runs"
    bad = sum(not result.clean for result in results)
    if not bad and not missing:
        return f"{runs}, none with a fault"
    return f"[bold red]{runs}, {bad} with faults; kernels not run: {missing}[/]"


def _table(classes: Iterable[str], results: Sequence[Result]) -> Table:
    table = Table(title="Kernels under the memory checker", box=SIMPLE_HEAD, padding=(0, 1))
    table.add_column("op")
    table.add_column("runs", justify="right")
    table.add_column("launched kernels")
    for owner in classes:
        own = [result for result in results if any(its_owner == owner for its_owner, _ in result.launched)]
        names = {name for result in own for its_owner, name in result.launched if its_owner == owner}
        faulty = any(not result.clean for result in own)
        style = "red" if faulty or not own else None
        table.add_row(short_name(owner), str(len(own)), ", ".join(sorted(names)), style=style)
    return table


def _show_slow(console: Console, results: Iterable[Result]) -> None:
    """Print the cases that take at least `SLOW` CPU seconds."""
    seconds: dict[str, float] = {}
    for result in results:
        seconds[result.case] = seconds.get(result.case, 0) + result.seconds
    for case in sorted(seconds, key=seconds.__getitem__, reverse=True):
        if seconds[case] < SLOW:
            break
        console.print(
            f"slow: {seconds[case]:.0f} CPU s for {escape(case)}", soft_wrap=True, highlight=False, style="dim"
        )


def _show_errors(console: Console, failed: Iterable[Result]) -> None:
    by_error: dict[tuple[str, str], list[Result]] = {}
    for result in failed:
        by_error.setdefault((result.case, result.error.splitlines()[-1]), []).append(result)
    for first, *others in by_error.values():
        more = f" and {len(others)} more runs of this case" if others else ""
        heading = f"{escape(first.run)}, {first.device_kind}{more}"
        console.print(f"\n[bold red]failed[/] {heading}", soft_wrap=True, highlight=False)
        for line in first.error.splitlines()[-ERROR_LINES:]:
            console.print(f"    {escape(line)}", soft_wrap=True, highlight=False)


def _show_findings(console: Console, results: Iterable[Result]) -> None:
    where: dict[tuple[Finding, str], list[tuple[Result, int]]] = {}
    for result in results:
        for finding, count in result.findings.items():
            where.setdefault((finding, result.device_kind), []).append((result, count))
    for (finding, device_kind), found in where.items():
        first = found[0][0]
        owners = ", ".join(short_name(owner) for owner in first.owners(finding.kernel)) or "unknown"
        heading = f"{finding.fault}: kernel {finding.kernel} of {owners}, {device_kind}"
        console.print(f"\n[bold red]fault[/] {escape(heading)}", soft_wrap=True, highlight=False)
        for line in finding.lines:
            console.print(f"    {escape(line)}", soft_wrap=True, highlight=False)
        times = f"{sum(count for _, count in found)} times in {len(found)} runs"
        console.print(f"    {times}, first in {escape(first.run)}", soft_wrap=True, highlight=False, style="dim")
