"""Prints comparisons: a table of models, a table of phases, and a list of what is worse with optdb."""

from __future__ import annotations

import math

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from profiles.measure import PHASES
from profiles.report import OPTDB, STOCK, Comparison, geometric_mean
from profiles.terminal import console

__all__ = ["console", "render"]

SHORTEST = 0.005
"""Seconds under which a phase is not worth a number."""


def render(comparisons: list[Comparison], baseline: str) -> RenderableType:
    """Return a table of models, a table of phases, and a list of what is worse with optdb."""
    return Group(_models(comparisons, baseline), _phases(comparisons), _faults(comparisons))


def _models(comparisons: list[Comparison], baseline: str) -> Table:
    table = Table(
        title=f"Optimization under stock ({baseline}) and under optdb",
        caption="CPU seconds, medians; in place: ops that overwrite an input; c+s+s: canonicalize, stabilize and "
        "specialize; of two numbers, the first is stock's",
        show_footer=True,
    )
    whole = geometric_mean(comparison.ratio for comparison in comparisons)
    rewriting = geometric_mean(comparison.rewriting_ratio for comparison in comparisons)
    table.add_column("model", footer="geometric mean")
    table.add_column("nodes before", justify="right")
    table.add_column("after", justify="right")
    table.add_column("in place", justify="right")
    table.add_column("seconds", justify="right")
    table.add_column("ratio", justify="right", footer=_times(whole))
    table.add_column("c+s+s seconds", justify="right")
    table.add_column("ratio", justify="right", footer=_times(rewriting))
    table.add_column("values", justify="right")
    for comparison in comparisons:
        stock, ours = comparison.last(STOCK), comparison.last(OPTDB)
        table.add_row(
            comparison.model,
            str(stock.before),
            _pair(stock.after, ours.after, worse=ours.after > stock.after),
            _pair(stock.inplace, ours.inplace, worse=ours.inplace < stock.inplace),
            f"{comparison.seconds(STOCK):.2f} / {comparison.seconds(OPTDB):.2f}",
            _times(comparison.ratio),
            f"{comparison.rewriting(STOCK):.2f} / {comparison.rewriting(OPTDB):.2f}",
            _times(comparison.rewriting_ratio),
            _values(comparison),
        )
    return table


def _phases(comparisons: list[Comparison]) -> Table:
    table = Table(title="CPU seconds of each phase, stock / optdb")
    table.add_column("phase")
    medians = []
    for comparison in comparisons:
        table.add_column(comparison.model, justify="right")
        medians.append((comparison.phases(STOCK), comparison.phases(OPTDB)))
    for phase in PHASES:
        table.add_row(phase, *(f"{_brief(stock[phase])} / {_brief(ours[phase])}" for stock, ours in medians))
    return table


def _faults(comparisons: list[Comparison]) -> Text:
    lines = [f"{comparison.model}: {fault}" for comparison in comparisons for fault in comparison.faults()]
    if lines:
        return Text("\n".join(["optdb is worse:", *lines]), style="bold red")
    return Text("No graph is worse than stock's.", style="green")


def _pair(stock: int, ours: int, worse: bool) -> Text:
    return Text(f"{stock} / {ours}", style="bold red" if worse else "")


def _values(comparison: Comparison) -> Text:
    agreement = comparison.agreement
    if agreement is None:
        return Text("not run", style="dim")
    if not agreement.agree:
        return Text(f"differ: {agreement.error:.1e}", style="bold red")
    return Text(f"agree: {agreement.error:.0e}" if agreement.error else "identical", style="green")


def _times(ratio: float) -> str:
    return "-" if math.isnan(ratio) else f"{ratio:.2f}x"


def _brief(seconds: float) -> str:
    return f"{seconds:.2f}" if seconds >= SHORTEST else "-"
