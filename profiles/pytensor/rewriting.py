"""Measures PyTensor's rewriting with optdb's engine and without it, and compares the graphs and their values.

Times are CPU seconds in a warm process. Rewriting with and without the engine take turns, and the medians are reported.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any
from unittest.mock import patch

import click
import numpy as np
import pytensor
from pytensor.compile.maker import FunctionMaker
from rich.table import Table

import optdb.pytensor
from profiles import terminal
from profiles.pytensor import gallery, models, unrolled
from profiles.pytensor.densities import difference

__all__ = ["Comparison", "Rewritten", "compare", "main", "render", "rewrite", "values"]

#: The sizes of the measured graphs; the names are those in `unrolled`.
MEASURED = {
    "gru": 30,
    "garch": 50,
    "ode": 20,
    "kalman": 20,
    "mixture_of_mixtures": 4,
    "additive_gp": 8,
}
#: The sizes at which values are compared; numba would compile the large graphs for minutes.
VALUED = {"gru": 3, "garch": 8, "ode": 3, "kalman": 3, "mixture_of_mixtures": 2, "additive_gp": 2}


class _Done(Exception):
    """Raised as soon as the graph is rewritten, so that it is not compiled."""


@dataclass(frozen=True)
class Rewritten:
    """The CPU seconds of rewriting a graph, the number of nodes, and the number of nodes that overwrite an input."""

    seconds: float
    nodes: int
    inplace: int


@dataclass(frozen=True)
class Comparison:
    """The results for a graph that PyTensor and optdb have rewritten; seconds are medians.

    `error` is the largest relative difference of the values, or None if values were not compared. If the graph is
    large, the values are those of a smaller graph.
    """

    name: str
    size: int
    stock: Rewritten
    ours: Rewritten
    error: float | None = None

    @property
    def ratio(self) -> float:
        """The seconds of PyTensor divided by those of optdb."""
        return self.stock.seconds / self.ours.seconds

    @property
    def is_worse(self) -> bool:
        """Whether optdb's graph has more nodes than PyTensor's, or as many nodes but fewer in-place nodes."""
        return (self.ours.nodes, -self.ours.inplace) > (self.stock.nodes, -self.stock.inplace)


def build(name: str, size: int) -> unrolled.Graph:
    """Build a graph of `unrolled`, or the log density of a PyMC model; models of the gallery have size 0."""
    if not size:
        return unrolled.of_model(gallery.build(name)[0])
    return unrolled.build(name, size) if name in unrolled.GRAPHS else unrolled.of_model(models.build(name, size))


def rewrite(graph: unrolled.Graph, mode: str = "NUMBA") -> Rewritten:
    """Rewrite a graph as `pytensor.function` does in a mode, without compiling it."""
    prepare = FunctionMaker.prepare_fgraph
    found: list[Rewritten] = []
    graphs: list[Any] = []

    def prepare_and_stop(inputs: Any, outputs: Any, additional: Any, fgraph: Any, *args: Any, **kwargs: Any) -> None:
        graphs.append(fgraph)
        if len(graphs) > 1:  # this is a separate function, which computes a constant
            return prepare(inputs, outputs, additional, fgraph, *args, **kwargs)
        start = process_time()
        prepare(inputs, outputs, additional, fgraph, *args, **kwargs)
        seconds = process_time() - start
        inplace = sum(bool(node.op.destroy_map) for node in fgraph.apply_nodes)
        found.append(Rewritten(seconds, len(fgraph.apply_nodes), inplace))
        raise _Done

    with patch.object(FunctionMaker, "prepare_fgraph", staticmethod(prepare_and_stop)):
        try:
            _compiled(graph, mode)
        except _Done:
            return found[0]
    raise AssertionError("PyTensor has not rewritten the graph")


def _compiled(graph: unrolled.Graph, mode: str) -> Any:
    return pytensor.function(
        graph.inputs, graph.outputs, updates=list(graph.updates.items()), mode=mode, on_unused_input="ignore"
    )


def values(graph: unrolled.Graph, mode: str = "NUMBA", seed: int = 0) -> list[np.ndarray]:
    """Compile a graph and call it; return the outputs, and the values of updated shared variables."""
    rng = np.random.default_rng(seed)
    args = []
    for var in graph.inputs:
        shape = [3 if length is None else length for length in var.type.shape]
        if var.type.dtype.startswith("int"):
            args.append(rng.integers(0, 2, size=shape).astype(var.type.dtype))
        else:
            args.append(np.asarray(0.3 * rng.normal(size=[max(n, 60) if var.type.ndim == 3 else n for n in shape])))
    if graph.inputs[0].type.ndim == 3:
        args[0] = args[0][:, :3, :8]
    before = {var: var.get_value() for var in graph.updates}
    results = [np.asarray(value) for value in _compiled(graph, mode)(*args)]
    results += [np.asarray(var.get_value()) for var in graph.updates]
    for var, value in before.items():
        var.set_value(value)
    return results


def compare(name: str, size: int, turns: int = 3, with_values: bool = True, mode: str = "NUMBA") -> Comparison:
    """Rewrite a graph without and with optdb in turn; compare values at a size that numba compiles quickly."""
    sides: dict[bool, list[Rewritten]] = {False: [], True: []}
    for turn in range(turns):
        for ours in (False, True) if turn % 2 == 0 else (True, False):
            graph = build(name, size)
            with optdb.pytensor.enable() if ours else nullcontext():
                sides[ours].append(rewrite(graph, mode))
    error = None
    if with_values:
        graph = build(name, VALUED.get(name, size) if size else 0)
        expected = values(graph, mode)
        with optdb.pytensor.enable():
            computed = values(graph, mode)
        error = max(
            difference(np.ravel(a).tolist(), np.ravel(b).tolist()) for a, b in zip(expected, computed, strict=True)
        )
    return Comparison(name, size, _median(sides[False]), _median(sides[True]), error)


def _median(turns: Sequence[Rewritten]) -> Rewritten:
    return Rewritten(statistics.median(turn.seconds for turn in turns), turns[0].nodes, turns[0].inplace)


def render(rows: Sequence[Comparison]) -> Table:
    """Return a table of graphs: seconds, nodes, in-place nodes, and the difference of the values."""
    columns = ("graph", "size", "PyTensor", "optdb", "ratio", "nodes", "values differ by")
    caption = "CPU seconds; nodes (in place) without and with optdb"
    table = terminal.table(*columns, left=["graph"], title="Rewriting", caption=caption)
    for row in rows:
        stock, ours = row.stock, row.ours
        table.add_row(
            row.name,
            str(row.size),
            f"{stock.seconds:.2f}",
            f"{ours.seconds:.2f}",
            f"{row.ratio:.2f}x",
            f"{stock.nodes} ({stock.inplace}), {ours.nodes} ({ours.inplace}){' worse' * row.is_worse}",
            "-" if row.error is None else f"{row.error:.0e}",
        )
    return table


@click.command()
@click.argument(
    "names", metavar="[GRAPH]...", nargs=-1, type=click.Choice([*MEASURED, *models.MODELS, *gallery.GALLERY])
)
@click.option("--size", type=int, help="Number of nodes instead of the graphs' defaults.")
@terminal.count_option("--turns", 3, "Number of runs; the median is shown.")
@click.option(
    "--values/--no-values", "with_values", default=True, show_default=True, help="Compare values, computed with numba."
)
@click.option("--gallery", "with_gallery", is_flag=True, help="Use models of the gallery instead.")
@click.option("--mode", default="NUMBA", show_default=True, help="PyTensor's mode.")
@terminal.json_option
def main(
    names: tuple[str, ...],
    size: int | None,
    turns: int,
    with_values: bool,
    with_gallery: bool,
    mode: str,
    json_file: Path | None,
) -> None:
    """Rewrite GRAPHs (by default, all graphs and the twelve models) with and without optdb."""
    if with_gallery:
        sizes = dict.fromkeys(names or gallery.GALLERY, 0)
    else:
        sizes = {name: MEASURED.get(name) or models.entry(name).small for name in names or [*MEASURED, *models.MODELS]}
    console = terminal.console()
    warm = build("radon", 8)
    for side in (nullcontext(), optdb.pytensor.enable()):
        with side:
            rewrite(warm, mode)
    rows = []
    for name, own_size in sizes.items():
        rows.append(compare(name, size or own_size, turns, with_values, mode))
        console.print(f"{name}: {rows[-1].ratio:.2f}x", highlight=False)
    console.print(render(rows))
    terminal.write_json(rows, json_file)
    if any(row.is_worse for row in rows):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
