"""Measures what singleton ops gain: ``python -m profiles.opcache [MODELS]``.

Each model is optimized with stock Theano and with optdb, in both cases with and without ``optdb.cache``. These four
configurations take turns in one process. The model is built again for each configuration, because the cache also has
effects while graphs are built. The table has the CPU seconds, and for the optimized graph the number of op objects and
the number of different ops.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

import click
import theano
from theano.gof.fg import FunctionGraph
from theano.gof.op import PureOp
from theano.scan_module.scan_op import Scan

from profiles import cli, measure, models, report, terminal, ways


@dataclass(frozen=True)
class Ops:
    """The number of op objects in an optimized graph, also inside other ops, and the number of different ops."""

    objects: int
    different: int


def count_ops(graph: FunctionGraph) -> Ops:
    """Count all ops in a graph, also inside other ops."""
    found: dict[int, object] = {}
    todo = [node.op for node in graph.apply_nodes]
    while todo:
        op = todo.pop()
        if id(op) not in found:
            found[id(op)] = op
            todo.extend(_parts(op))
    return Ops(len(found), len(set(found.values())))


def _parts(op: PureOp) -> list[PureOp]:
    """Return the ops inside an op."""
    parts: list[PureOp] = [op.scalar_op] if hasattr(op, "scalar_op") else []
    if isinstance(op, Scan | theano.scalar.Composite):
        parts.extend(node.op for node in theano.gof.graph.ops(op.inputs, op.outputs))
    return parts


def measure_model(
    build: Callable[[], models.Model], repeat: int
) -> tuple[str, dict[str, list[measure.Measurement]], dict[str, Ops]]:
    """Measure a model in all four configurations in turn; return its name, and the runs and ops by configuration."""
    four = _four_ways()
    specifications = {}
    for way in four:
        with way.context():
            specifications[way.name] = measure.specify(build())
    runs: dict[str, list[measure.Measurement]] = {way.name: [] for way in four}
    ops = {}
    for _ in range(repeat):
        for way in four:
            run = measure.optimize_warm(specifications[way.name], way)
            assert run.graph is not None
            ops[way.name] = count_ops(run.graph)
            run.graph = None
            runs[way.name].append(run)
    return specifications[four[0].name].model.name, runs, ops


def _four_ways() -> list[ways.Way]:
    plain = [ways.stock(), ways.topological()]
    return [way for one in plain for way in (one, ways.with_op_cache(one))]


@click.command()
@click.argument("chosen", metavar="[MODELS]...", nargs=-1, type=cli.MODEL)
@terminal.count_option("--repeat", 3, "Number of runs of each way.")
def main(chosen: tuple, repeat: int) -> None:
    """Compare the optimization of MODELS (by default, all models) with and without the op cache."""
    measure_model(lambda: models.build(measure.WARM_UP), 1)
    title = "Singleton ops: CPU seconds without / with, medians; op objects / different ones"
    columns = [column for way in ("stock", "optdb") for column in (way, "ratio", "ops without", "with")]
    table = terminal.table("model", *columns, left=["model"], title=title)
    ratios: dict[str, list[float]] = {"stock": [], "optdb": []}
    for build in chosen or [cli.MODEL.convert(name, None, None) for name in models.known()]:
        name, runs, ops = measure_model(build, repeat)
        row = [name]
        for way in ratios:
            cached = f"{way} + op cache"
            without, with_cache = (statistics.median(run.seconds for run in runs[key]) for key in (way, cached))
            ratios[way].append(without / with_cache)
            row += [f"{without:.2f} / {with_cache:.2f}", f"{without / with_cache:.2f}x"]
            row += [f"{ops[key].objects} / {ops[key].different}" for key in (way, cached)]
        table.add_row(*row)
    means = [f"{report.geometric_mean(values):.2f}x" for values in ratios.values()]
    table.add_section()
    table.add_row("geometric mean", "", means[0], "", "", "", means[1])
    terminal.console().print(table)


if __name__ == "__main__":
    main()
