"""The cost of a lift, in one pass and node by node: ``python -m profiles.lift [MODELS]``.

A model is optimized up to the lift; clones of that graph are lifted to an OpenCL device in both ways. Besides the CPU
seconds, the table has the single pass's share of the whole optimizer, the lifted nodes, the transfers, and the
transfers that undo another one, of which there should be none.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import click
import theano
from rich.table import Table
from theano.compile.mode import optdb as compile_db
from theano.gof import Query
from theano.gof.fg import FunctionGraph

import optdb
from optdb import opencl
from optdb.opencl.device import POSITION
from profiles import cli, measure, models, screen, ways
from profiles.stepwise import lift_stepwise

DEFAULT_MODELS = ("resnet50", "sb_resnet", "gru30")
CONTEXT = "dev0"


@dataclass(frozen=True)
class Lifted:
    """One way to lift one graph.

    Parameters
    ----------
    seconds
        CPU seconds.
    on_device
        Number of nodes on the device.
    transfers
        Number of transfers that remain.
    detours
        Number of transfers that undo another one.
    """

    seconds: float
    on_device: int
    transfers: int
    detours: int


@dataclass(frozen=True)
class Comparison:
    """Both ways for one model, and the time of the whole optimizer."""

    model: str
    nodes: int
    whole: float
    one_pass: Lifted
    stepwise: Lifted


@contextlib.contextmanager
def default_context(device: str = "opencl") -> Iterator[str]:
    """Provide a default context, where shared variables go too, if there is none. Yield its name."""
    name = opencl.contexts.default
    if name is None:
        name = CONTEXT if device == "opencl" else device
        if name not in opencl.contexts:
            opencl.contexts.register(name, device)
    with opencl.contexts.as_default(name):
        yield str(name)


def before_the_lift(specification: measure.Specification) -> FunctionGraph:
    """Optimize a model up to the lift."""
    with optdb.enable():
        graph = specification.graph()
        compile_db.query(Query(include=["fast_run"], position_cutoff=POSITION)).optimize(graph)
    return graph


def lift(graph: FunctionGraph, way: Callable[[FunctionGraph], object]) -> Lifted:
    """Lift a clone of a graph in one way."""
    # As when a function is compiled: variables do not record where they were made.
    traces = {"traceback.limit": theano.config.traceback.compile_limit}
    with default_context(), theano.change_flags(**traces):
        clone = graph.clone()
        start = time.process_time()
        way(clone)
        seconds = time.process_time() - start
    return count(clone, seconds)


def count(graph: FunctionGraph, seconds: float = 0.0) -> Lifted:
    """Count the nodes and transfers after a lift."""
    there = opencl.OPENCL
    ends = {there.from_host: there.to_host, there.to_host: there.from_host}
    transfers = [node for node in graph.apply_nodes if type(node.op) in (*ends, there.between)]
    detours = [
        node
        for node in transfers
        if node.inputs[0].owner is not None and type(node.inputs[0].owner.op) is ends.get(type(node.op))
    ]
    on_device = [
        n for n in graph.apply_nodes if n not in transfers and any(there.has(v) for v in (*n.outputs, *n.inputs))
    ]
    return Lifted(seconds, len(on_device), len(transfers), len(detours))


def compare(build: Callable[[], models.Model], stepwise: bool = True) -> Comparison:
    """Lift one model in both ways."""
    specification = measure.specify(build())
    whole = measure.optimize_warm(specification, ways.topological()).seconds
    graph = before_the_lift(specification)
    one_pass = opencl.lifters_db.query("+fast_run")
    lifters = [lifter for of_op in one_pass.lifters.values() for lifter in of_op]
    lift(graph, one_pass.optimize)  # untimed: one-time work does not belong to the lift
    return Comparison(
        specification.model.name,
        len(graph.apply_nodes),
        whole,
        lift(graph, one_pass.optimize),
        lift(graph, lambda clone: lift_stepwise(clone, list(dict.fromkeys(lifters)), opencl.OPENCL))
        if stepwise
        else Lifted(0.0, 0, 0, 0),
    )


@click.command()
@click.argument("chosen", metavar="[MODELS]...", nargs=-1, type=cli.MODEL)
@click.option("--stepwise/--no-stepwise", default=True, show_default=True, help="Also lift node by node.")
def main(chosen: tuple, stepwise: bool) -> None:
    """Lift MODELS to an OpenCL device in one pass and node by node."""
    table = Table(title="Lifts to an OpenCL device: CPU seconds, one pass / node by node")
    for name in ("model", "nodes", "seconds", "ratio", "share of optimizer", "on device", "transfers", "detours"):
        table.add_column(name, justify="left" if name == "model" else "right")
    for build in chosen or [cli.MODEL.convert(name, None, None) for name in DEFAULT_MODELS]:
        comparison = compare(build, stepwise)
        one, step = comparison.one_pass, comparison.stepwise
        table.add_row(
            comparison.model,
            str(comparison.nodes),
            f"{one.seconds:.3f} / {step.seconds:.3f}",
            f"{step.seconds / one.seconds:.1f}x",
            f"{one.seconds / comparison.whole:.1%}",
            f"{one.on_device} / {step.on_device}",
            f"{one.transfers} / {step.transfers}",
            f"{one.detours} / {step.detours}",
        )
    screen.console().print(table)


if __name__ == "__main__":
    main()
