"""Prints comparisons: a table with a row per suite, and then every difference with its reason or its error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from conformance.compare import Comparison, Difference, Verdict
from conformance.records import PASSED, Result
from conformance.ways import STOCK

ERROR_LINES = 12


def show(console: Console, suites: Mapping[str, Sequence[Comparison]], way: str) -> None:
    """Print the report of a run in one way: a row for each suite, and the differences in its files."""
    differences = [d for files in suites.values() for comparison in files for d in comparison.differences]
    for verdict in (Verdict.IMPROVEMENT, Verdict.EXPECTED, Verdict.SURPRISE, Verdict.UNSTEADY):
        found = [difference for difference in differences if difference.verdict is verdict]
        if found:
            console.print(f"\n[bold]{verdict.value}[/]: {len(found)}")
        for difference in found:
            reason = f" [dim]{escape(difference.reason)}[/]" if difference.reason else ""
            console.print(f"  {escape(difference.result.id)}{reason}", soft_wrap=True)
    _show_regressions(console, [d for d in differences if d.verdict is Verdict.REGRESSION])
    console.print(_table(suites, way))


def _show_regressions(console: Console, regressions: Sequence[Difference]) -> None:
    for _, group in groupby(regressions, key=lambda difference: difference.result.test):
        first, *others = group
        more = f" and {len(others)} more of its cases" if others else ""
        outcome = first.result.outcome
        console.print(f"\n[bold red]regression[/] {escape(first.result.id)}{more}: {outcome}", soft_wrap=True)
        for line in first.result.error.splitlines()[-ERROR_LINES:]:
            console.print(f"    {escape(line)}", soft_wrap=True, highlight=False)


def _table(suites: Mapping[str, Sequence[Comparison]], way: str) -> Table:
    # Headings are narrow, so that the table fits into 80 columns.
    headings = ("suite", "tests", STOCK, way, "worse", "expected", "unsteady", "better", f"s {STOCK}", f"s {way}")
    everything = [comparison for files in suites.values() for comparison in files]
    totals = ("all", *_cells(everything))
    table = Table(
        title="The host's own suites",
        caption=f"{STOCK}, {way}: tests that pass; s: CPU seconds spent in tests",
        show_footer=True,
        box=SIMPLE_HEAD,
        padding=(0, 0),
    )
    for heading, total in zip(headings, totals, strict=True):
        table.add_column(heading, total, justify="left" if heading == "suite" else "right")
    for name, files in suites.items():
        table.add_row(name, *_cells(files), style="red" if _count(files, Verdict.REGRESSION) else None)
    return table


def _cells(files: Sequence[Comparison]) -> list[str]:
    stock = [result for comparison in files for result in comparison.stock.values()]
    engine = [result for comparison in files for result in comparison.engine.values()]
    verdicts = (Verdict.REGRESSION, Verdict.EXPECTED, Verdict.UNSTEADY, Verdict.IMPROVEMENT)
    counts = [len(stock), _passed(stock), _passed(engine), *(_count(files, verdict) for verdict in verdicts)]
    return [*map(str, counts), f"{_seconds(stock):.0f}", f"{_seconds(engine):.0f}"]


def _count(files: Iterable[Comparison], verdict: Verdict) -> int:
    return sum(len(comparison.of(verdict)) for comparison in files)


def _passed(results: Iterable[Result]) -> int:
    return sum(result.outcome == PASSED for result in results)


def _seconds(results: Iterable[Result]) -> float:
    return sum(result.seconds for result in results)
