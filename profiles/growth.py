"""Measures how optimization time grows with the graph: ``python -m profiles.growth [FAMILIES]``.

A family is a model of different sizes: an unrolled GRU with more and more steps, or a residual net with more and more
blocks. Each size is optimized with optdb and, unless this takes too long, with stock Theano. The result is the CPU time
per node, which is constant if the time is linear in the number of nodes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click
from rich.table import Table

from profiles import cli, files, measure, models, terminal, ways

SIZES = (1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000)


@dataclass(frozen=True)
class Family:
    """A model, and the parameter of its builder that determines its size."""

    model: str
    parameter: str

    def build(self, size: int) -> models.Model:
        """Build the model with a given value of the parameter."""
        return models.build(self.model, **{self.parameter: size})


FAMILIES = {"gru": Family("gru30", "steps"), "resnet": Family("cifar_resnet", "n")}


@dataclass(frozen=True)
class Point:
    """A measurement: the number of apply nodes before optimization, and the CPU seconds of the whole optimizer."""

    family: str
    way: str
    nodes: int
    seconds: float

    @property
    def per_node(self) -> float:
        """CPU microseconds per node."""
        return 1e6 * self.seconds / self.nodes


def parameters(family: Family, sizes: list[int]) -> list[int]:
    """Return, for each number of nodes in `sizes`, the parameter for it, assuming that graphs grow linearly."""
    small, large = 4, 8
    first, second = (len(measure.specify(family.build(value)).graph().apply_nodes) for value in (small, large))
    each = (second - first) / (large - small)
    return [max(1, round((size - first) / each) + small) for size in sizes]


def grow(
    name: str, sizes: list[int], bearable: float, tell: Callable[[Point], object] = lambda point: None
) -> list[Point]:
    """Measure one family with graphs of about `sizes` nodes; call `tell` with each `Point`.

    Stock Theano is no longer measured once the next size is expected to take more than `bearable` CPU seconds.
    """
    family = FAMILIES[name]
    points: list[Point] = []
    stock, ours = ways.stock(), ways.topological()
    measure.optimize(measure.specify(family.build(2)), ours)  # not measured, because this does one-time work
    expected = 0.0
    for value in parameters(family, sizes):
        specification = measure.specify(family.build(value))
        for way in (ours, stock):
            if way is stock and expected > bearable:
                continue
            run = measure.optimize(specification, way)
            point = Point(name, way.name, run.before, run.seconds)
            if way is stock:
                expected = _next(points, point)
            points.append(point)
            tell(point)
            del run  # free this large graph before the next, larger one is built
    return points


def _next(points: list[Point], point: Point) -> float:
    """Return the expected CPU seconds for a graph of twice the size, extrapolated from the last two points."""
    before = [p for p in points if p.way == point.way]
    return point.seconds * (max(2.0, point.seconds / before[-1].seconds) if before else 4.0)


def table(points: list[Point]) -> Table:
    """Return a table with the measurements of optdb and of stock Theano in adjacent columns."""
    headings = ("family", "nodes", "optdb", "µs per node", "stock", "µs per node", "ratio")
    result = terminal.table(
        *headings, left=["family"], title="CPU seconds of the whole optimizer, by size of the graph"
    )
    for ours in (p for p in points if p.way == "optdb"):
        stock = [p for p in points if p.way == "stock" and (p.family, p.nodes) == (ours.family, ours.nodes)]
        theirs = [f"{p.seconds:.2f}" for p in stock] + [f"{p.per_node:.0f}" for p in stock]
        ratio = [f"{p.seconds / ours.seconds:.1f}x" for p in stock]
        cells = [ours.family, f"{ours.nodes}", f"{ours.seconds:.2f}", f"{ours.per_node:.0f}", *theirs, *ratio]
        result.add_row(*cells, *[""] * (7 - len(cells)))
    return result


def plot(points: list[Point], path: Path) -> None:
    """Draw CPU microseconds per node against the number of nodes, with a line for each family and optimizer."""
    colors = {family: f"C{number}" for number, family in enumerate(dict.fromkeys(p.family for p in points))}
    with terminal.drawing(path, (8, 5)) as (_, axes):
        from matplotlib import ticker

        for family, way in dict.fromkeys((p.family, p.way) for p in points):
            line = [p for p in points if (p.family, p.way) == (family, way)]
            style = "o-" if way == "optdb" else "s--"
            nodes, times = [p.nodes for p in line], [p.per_node for p in line]
            axes.plot(nodes, times, style, color=colors[family], label=f"{family}, {way}")
        axes.set(xscale="log", yscale="log", xlabel="apply nodes before optimization", ylabel="CPU µs per node")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
            axis.set_major_formatter(ticker.StrMethodFormatter("{x:,.0f}"))
            axis.set_minor_locator(ticker.NullLocator())
        axes.grid(True, alpha=0.3)
        axes.legend()


@click.command()
@click.argument("chosen", metavar="[FAMILIES]...", nargs=-1, type=click.Choice(sorted(FAMILIES)))
@click.option("--sizes", default=",".join(map(str, SIZES)), show_default=True, help="Numbers of nodes to measure.")
@click.option("--bearable", default=60.0, show_default=True, help="CPU seconds after which stock is aborted.")
@terminal.json_option
@click.option("--plot", "plot_file", type=cli.PICTURE, help="Draw the numbers into this file.")
def main(chosen: tuple, sizes: str, bearable: float, json_file: Path | None, plot_file: Path | None) -> None:
    """Optimize models of growing sizes; FAMILIES are families of models, by default all."""
    # The gradient of a deep graph is computed recursively.
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 500_000))
    try:
        wanted = [int(size) for size in sizes.split(",")]
    except ValueError:
        raise click.BadParameter(
            f"{sizes!r} is not a list of numbers such as 1000,2000", param_hint="--sizes"
        ) from None

    def tell(point: Point) -> None:
        click.echo(f"{point.family}, {point.way}: {point.nodes} nodes, {point.seconds:.2f} s", err=True)

    points = [point for name in chosen or FAMILIES for point in grow(name, wanted, bearable, tell)]
    terminal.console().print(table(points))
    terminal.write_json({"environment": files.environment(), "points": points}, json_file)
    if plot_file:
        plot(points, plot_file)
    terminal.print_paths(numbers=json_file, plot=plot_file)


if __name__ == "__main__":
    main()
