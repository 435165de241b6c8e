"""Counters of the op cache, returned by :func:`optdb.cache.stats`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table
from rich.text import Text

from optdb.html_tables import ReportTables


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


class Counts:
    """The counters of a store.

    If threads share ops concurrently, the counters may miss some of them; the ops are shared nevertheless.
    """

    def __init__(self) -> None:
        self.found = 0
        self.shared = 0
        self._refused: Counter[tuple[str, str]] = Counter()
        self._different: Counter[tuple[str, tuple[str, ...]]] = Counter()

    def refuse(self, cls: type, reason: str) -> None:
        """Count an op that was not shared."""
        self._refused[_name(cls), reason] += 1

    def add_difference(self, cls: type, attributes: tuple[str, ...]) -> None:
        """Count an op that has the same props as another op but differs in other attributes."""
        self._different[_name(cls), attributes] += 1

    def report(self, installed: bool, alive: int) -> Stats:
        """Return the current counts."""
        return Stats(installed, self.found, self.shared, alive, dict(self._refused), dict(self._different))


@dataclass(frozen=True, repr=False)
class Stats(ReportTables):
    """A snapshot of the op cache's counters.

    Parameters
    ----------
    installed : bool
        Whether sharing is enabled for Theano's own op classes.
    found : int
        Number of constructions that returned an existing op.
    shared : int
        Number of ops that have become shared since the start.
    alive : int
        Number of shared ops in use.
    uncached : dict
        The number of ops that were not shared, by ``(class, reason)``.
    kept_apart : dict
        Maps ``(class, attributes)`` to the number of ops that have the same props as another op but differ in these
        attributes.
    """

    installed: bool
    found: int
    shared: int
    alive: int
    uncached: dict[tuple[str, str], int] = field(default_factory=dict)
    kept_apart: dict[tuple[str, tuple[str, ...]], int] = field(default_factory=dict)

    def render(self) -> Table:
        """Return the counters as a table.

        Returns
        -------
        rich.table.Table
            A row for each op class and outcome, with the number of ops.
        """
        table = Table(title="Ops", title_justify="left")
        table.add_column("class", overflow="fold")
        table.add_column("outcome", overflow="fold")
        table.add_column("ops", justify="right")
        table.add_row("all", "reused", str(self.found))
        table.add_row("all", "newly shared", str(self.shared))
        table.add_row("all", "shared and in use", str(self.alive))
        for (name, reason), count in sorted(self.uncached.items()):
            table.add_row(Text(name), Text(f"not shared: {reason}"), str(count))
        for (name, attributes), count in sorted(self.kept_apart.items()):
            difference = f"not shared: ops differ in {', '.join(attributes)}, which __props__ omits"
            table.add_row(Text(name), Text(difference), str(count))
        return table

    def __str__(self) -> str:
        console = Console(width=100, color_system=None, force_terminal=False)
        with console.capture() as captured:
            console.print(self.render())
        return captured.get()
