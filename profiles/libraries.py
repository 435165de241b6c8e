"""Compares the optimizer on models of other libraries: ``python -m profiles.libraries [MODELS]``.

The models of the package `models` (Keras, Lasagne, PyMC3) need a separate environment, which ``make models`` creates in
build/. Each model is measured in a separate process, with the flags that its library sets; stock Theano and optdb take
turns in this process. The results are the median CPU seconds of each optimizer.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from rich.table import Table

import models
from profiles import isolated, measure, terminal, ways
from profiles import models as zoo
from profiles.report import geometric_mean


@dataclass(frozen=True)
class Row:
    """The results for a model: median CPU seconds of stock Theano's and optdb's optimizer, and numbers of nodes."""

    name: str
    library: str
    stock: float
    ours: float
    before: int
    stock_after: int
    ours_after: int
    stock_inplace: int
    ours_inplace: int

    @property
    def ratio(self) -> float:
        """The factor by which optdb reduces the CPU seconds."""
        return self.stock / self.ours

    @property
    def is_worse(self) -> bool:
        """Whether optdb's graph has more nodes than stock Theano's, or as many nodes but fewer in-place nodes."""
        if self.ours_after == self.stock_after:
            return self.ours_inplace < self.stock_inplace
        return self.ours_after > self.stock_after


def measured(name: str, repeat: int) -> dict[str, object]:
    """Measure one model in this process; return the fields of a `Row`."""
    both = [ways.stock(), ways.topological()]
    measure.alternate(measure.specify(zoo.build(measure.WARM_UP)), both, 1)
    specification = measure.specify(models.build(name))
    runs = measure.alternate(specification, both, repeat)
    stock, ours = (runs[way.name] for way in both)
    row = Row(
        name=name,
        library=models.entry(name).library,
        stock=statistics.median(run.seconds for run in stock),
        ours=statistics.median(run.seconds for run in ours),
        before=ours[-1].before,
        stock_after=stock[-1].after,
        ours_after=ours[-1].after,
        stock_inplace=stock[-1].inplace,
        ours_inplace=ours[-1].inplace,
    )
    return asdict(row)


def table(rows: Iterable[Row]) -> Table:
    """Return the rows as a table, with the geometric mean of each library's ratios."""
    result = Table("model", "stock", "optdb", "ratio", "nodes before", "nodes after, stock / optdb", "in place")
    by_library: dict[str, list[float]] = {}
    for row in rows:
        by_library.setdefault(row.library, []).append(row.ratio)
        style = "red" if row.is_worse else ""
        result.add_row(
            row.name,
            f"{row.stock:.2f}",
            f"{row.ours:.2f}",
            f"{row.ratio:.1f}x",
            str(row.before),
            f"{row.stock_after} / {row.ours_after}",
            f"{row.stock_inplace} / {row.ours_inplace}",
            style=style,
        )
    for library, ratios in by_library.items():
        result.add_section()
        result.add_row(f"{library}: geometric mean of {len(ratios)}", "", "", f"{geometric_mean(ratios):.1f}x")
    return result


@click.command()
@click.argument("chosen", metavar="[MODELS]...", nargs=-1)
@terminal.count_option("--repeat", 3, "Number of runs of each way.")
@terminal.json_option
def main(chosen: tuple[str, ...], repeat: int, json_file: Path | None) -> None:
    """Compare the optimizer on MODELS of other libraries; by default, on all models that can be built here.

    The exit status is 1 if a graph of optdb is worse than that of stock Theano, or if a model could not be measured.
    """
    unknown = set(chosen) - set(models.known())
    if unknown:
        raise click.BadParameter(f"no model is named {', '.join(sorted(unknown))}; known: {', '.join(models.known())}")
    names = list(chosen) or models.available()
    if not names:
        raise click.ClickException("no library is installed: run build/models-venv/bin/python after `make models`")
    rows = []
    failed = False
    for name in names:
        flags = f"floatX={models.entry(name).floatX}"
        try:
            rows.append(Row(**isolated.call("profiles.libraries:measured", name, repeat, flags=flags)))
        except isolated.Failed as error:
            failed = True
            click.echo(f"{name}: {error}", err=True)
    console = terminal.console()
    console.print(table(rows))
    terminal.write_json(rows, json_file)
    terminal.print_paths(numbers=json_file)
    sys.exit(1 if failed or any(row.is_worse for row in rows) else 0)


if __name__ == "__main__":
    main()
