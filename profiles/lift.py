"""Measures the cost of lifting a graph to a device, in one pass and node by node: ``python -m profiles.lift [MODELS]``.

A model is optimized up to the lifting pass. Then one clone of the graph is lifted to an OpenCL device in a single pass,
and another clone is lifted node by node. The table shows the CPU seconds, which share of the whole optimizer's time the
single pass takes, and the numbers of lifted nodes and of transfers. Transfers that undo another transfer are also
counted; there should be none.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import click
import theano
from theano.compile.mode import optdb as compile_db
from theano.gof import Query
from theano.gof.fg import FunctionGraph
from theano.gof.graph import Apply, Variable
from theano.gof.opt import EquilibriumOptimizer, LocalOptimizer
from theano.gof.toolbox import ReplaceValidate

import optdb
from optdb import opencl
from optdb.lifters import Device, Lifter
from optdb.opencl.device import POSITION
from profiles import cli, measure, models, terminal, ways

DEFAULT_MODELS = ("resnet50", "sb_resnet", "gru30")
CONTEXT = "dev0"


@dataclass(frozen=True)
class Lifted:
    """The CPU seconds of lifting a graph, and numbers of nodes; a detour is a transfer that undoes another one."""

    seconds: float
    on_device: int
    transfers: int
    detours: int


@dataclass(frozen=True)
class Comparison:
    """The results of lifting a model in one pass and node by node, and the time of the whole optimizer."""

    model: str
    nodes: int
    whole: float
    one_pass: Lifted
    stepwise: Lifted


@contextlib.contextmanager
def default_context(device: str = "opencl") -> Iterator[str]:
    """If there is no default context, provide one, which also holds shared variables. Yield its name."""
    name = opencl.contexts.default
    if name is None:
        name = CONTEXT if device == "opencl" else device
        if name not in opencl.contexts:
            opencl.contexts.register(name, device)
    with opencl.contexts.as_default(name):
        yield str(name)


def before_the_lift(specification: measure.Specification) -> FunctionGraph:
    """Return a model's graph, optimized up to the lifting pass."""
    with optdb.enable():
        graph = specification.graph()
        compile_db.query(Query(include=["fast_run"], position_cutoff=POSITION)).optimize(graph)
    return graph


def lift(graph: FunctionGraph, way: Callable[[FunctionGraph], object]) -> Lifted:
    """Lift a clone of a graph with the function `way`; return the result."""
    # Record no stack traces for new variables, as when a function is compiled.
    traces = {"traceback.limit": theano.config.traceback.compile_limit}
    with default_context(), theano.change_flags(**traces):
        clone = graph.clone()
        start = time.process_time()
        way(clone)
        seconds = time.process_time() - start
    return count(clone, seconds)


def count(graph: FunctionGraph, seconds: float = 0.0) -> Lifted:
    """Count the nodes and transfers of a lifted graph."""
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


def compare(build: Callable[[], models.Model]) -> Comparison:
    """Lift a model in one pass and node by node; return the results."""
    specification = measure.specify(build())
    whole = measure.optimize_warm(specification, ways.topological()).seconds
    graph = before_the_lift(specification)
    one_pass = opencl.lifters_db.query("+fast_run")
    lifters = [lifter for of_op in one_pass.lifters.values() for lifter in of_op]
    lift(graph, one_pass.optimize)  # not measured, because this also does one-time work
    return Comparison(
        specification.model.name,
        len(graph.apply_nodes),
        whole,
        lift(graph, one_pass.optimize),
        lift(graph, lambda clone: lift_stepwise(clone, list(dict.fromkeys(lifters)), opencl.OPENCL)),
    )


@click.command()
@click.argument("chosen", metavar="[MODELS]...", nargs=-1, type=cli.MODEL)
def main(chosen: tuple) -> None:
    """Lift MODELS to an OpenCL device in one pass and node by node."""
    table = terminal.table(
        *("model", "nodes", "seconds", "ratio", "share of optimizer", "on device", "transfers", "detours"),
        left=["model"],
        title="Lifts to an OpenCL device: CPU seconds, one pass / node by node",
    )
    for build in chosen or [cli.MODEL.convert(name, None, None) for name in DEFAULT_MODELS]:
        comparison = compare(build)
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
    terminal.console().print(table)


USE_RATIO = 10.0
"""How often each rewriter may be applied, per node of the graph."""


class _CutTransfers(LocalOptimizer):
    """Replaces two transfers that undo each other by the original variable."""

    def __init__(self, device: Device):
        self.device = device

    def tracks(self) -> list[type]:
        """Return the ops that transfer to the device and from the device."""
        return [self.device.from_host, self.device.to_host]

    def transform(self, node: Apply) -> list[Variable] | Literal[False]:
        """Return the original variable if the node undoes another transfer."""
        [var] = node.inputs
        opposite = self.device.to_host if isinstance(node.op, self.device.from_host) else self.device.from_host
        if var.owner is None or not isinstance(var.owner.op, opposite):
            return False
        [source] = var.owner.inputs
        return [source] if source.type == node.outputs[0].type else False


def lift_stepwise(fgraph: FunctionGraph, lifters: list[Lifter], device: Device) -> None:
    """Lift a graph in place, node by node, until nothing changes, as Theano did before its GraphToGPU (PR 4570).

    First, each input of the graph is transferred to the device and immediately back. Lifters run as node rewriters, and
    lift nodes that are between two transfers. Another rewriter removes pairs of transfers that undo each other.
    """
    fgraph.attach_feature(ReplaceValidate())
    to_device: Any = device.from_host  # the transfer op of any device takes the name of a context
    for var in fgraph.inputs:
        if device.moves(var) and any(client != "output" for client, _ in var.clients):
            there = to_device(device.default_context())(var)
            fgraph.replace_validate(var, device.to_host()(there), reason="input to device")
    rewriters = [*lifters, _CutTransfers(device)]
    EquilibriumOptimizer(rewriters, max_use_ratio=USE_RATIO).optimize(fgraph)


if __name__ == "__main__":
    main()
