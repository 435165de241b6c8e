"""Optimizes a model as ``theano.function`` would, and times each phase.

Seconds are CPU seconds of this process (`time.process_time`). These seconds exclude compilers that a phase starts, but
include the time to write the compilers' input. A run that had to compile something is therefore repeated
(`optimize_warm`).
"""

from __future__ import annotations

import contextlib
import copy
import gc
import itertools
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import theano
from theano.compile.function_module import FunctionMaker, std_fgraph
from theano.compile.io import In, SymbolicOutput
from theano.compile.pfunc import rebuild_collect_shared
from theano.gof.fg import FunctionGraph
from theano.gof.graph import Apply
from theano.gof.opt import Optimizer, SeqOptimizer
from theano.scalar.basic import Composite
from theano.scan_module.scan_op import Scan
from theano.tensor.elemwise import Elemwise

from profiles.models import Model
from profiles.ways import Way

WARM_UP = "mlp"
"""A small model that is optimized first, untimed, so that no other pays for what happens once."""

OTHERS = "others"
"""The phase of every member that has no line in `PHASE_OF`."""

INPLACE = "inplace"
"""The phase of everything between the attachment of the destroy handler and the last merge."""

PHASE_OF = {
    "query": "query",
    "merge1": "merge",
    "merge1.1": "merge",
    "merge1.2": "merge",
    "merge2": "merge",
    "merge3": "merge",
    "scan_eqopt1": "scan",
    "scan_eqopt2": "scan",
    "scanOp_save_mem": "scan",
    "ShapeOpt": "shape",
    "useless": "useless",
    "canonicalize": "canonicalize",
    "stabilize": "stabilize",
    "BlasOpt": "blas",
    "specialize": "specialize",
    "uncanonicalize": "uncanonicalize",
    "specialize_device": "specialize_device",
    "elemwise_fusion": "fusion",
}
"""Member of the optimizer, by its registered name, to the phase it is counted under."""

PHASES = (*dict.fromkeys(PHASE_OF.values()), INPLACE, OTHERS)

REWRITING = ("canonicalize", "stabilize", "specialize")
"""The phases that are nothing but rewrite rules run to a fixed point."""


@dataclass(frozen=True)
class Specification:
    """The inputs and outputs of a model's function; inputs include all shared variables with their updates."""

    model: Model
    inputs: list[In]
    outputs: list[SymbolicOutput]

    def graph(self) -> FunctionGraph:
        """Return a fresh clone of the graph, with the supervisor that prevents overwriting protected variables."""
        graph, _ = std_fgraph(self.inputs, self.outputs)
        graph.profile = None
        return graph


def specify(model: Model) -> Specification:
    """Collect the shared variables of `model` and their updates, as ``theano.function`` does."""
    _, outputs, (_, updates, _, collected) = rebuild_collect_shared(
        model.outputs, inputs=model.inputs, updates=model.updates, copy_inputs_over=True
    )
    inputs = [In(variable) for variable in model.inputs]
    for variable in collected:
        update = updates.get(variable)
        inputs.append(
            In(variable, value=variable.container, update=update, mutable=update is not None, borrow=True, shared=True)
        )
    return Specification(model, inputs, [FunctionMaker.wrap_out(output) for output in outputs])


@dataclass
class Measurement:
    """The result of optimizing a model once.

    `seconds` are the CPU seconds of the whole optimizer, including the query that builds it. `inplace` counts nodes
    that overwrite an array, and `inplace_scalars` nodes that only overwrite 0-d inputs, which saves nothing. `inner`
    counts the nodes in loops and in fused scalar graphs. `failures` has the errors that Theano logged, and `compiled`
    is the number of C modules that had to be compiled.
    """

    way: str
    seconds: float
    phases: dict[str, float]
    before: int
    after: int
    inplace: int
    inner: int
    failures: list[str]
    graph: FunctionGraph | None = field(repr=False)
    compiled: int = 0
    inplace_scalars: int = 0


class Stopwatch(Optimizer):
    """Wraps a member of an optimizer, and passes the CPU seconds that the member takes to `note`."""

    def __init__(self, member: Optimizer, note: Callable[[float], None]):
        self.member = member
        self.name = getattr(member, "name", None)
        self.note = note

    def __str__(self) -> str:
        return str(self.member)

    def optimize(self, fgraph: FunctionGraph, *args: Any, **kwargs: Any) -> Any:
        """Run the member and add its requirements to the graph."""
        start = time.process_time()
        try:
            return self.member.optimize(fgraph, *args, **kwargs)
        finally:
            self.note(time.process_time() - start)


class _Complaints(logging.Handler):
    """Stores the errors that Theano logs instead of raising."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@contextlib.contextmanager
def _as_when_compiling() -> Iterator[list[str]]:
    """Set the flags that FunctionMaker sets for the optimizer; yield the list of errors logged in the block."""
    complaints = _Complaints()
    logger = logging.getLogger("theano")
    logger.addHandler(complaints)
    try:
        flags = {
            "compute_test_value": theano.config.compute_test_value_opt,
            "traceback.limit": theano.config.traceback.compile_limit,
        }
        with theano.change_flags(**flags):
            yield complaints.messages
    finally:
        logger.removeHandler(complaints)


def _with_stopwatches(optimizer: SeqOptimizer, seconds: dict[str, float]) -> SeqOptimizer:
    """Return a copy of a sequence of optimizers in which each member adds its CPU seconds to its phase in `seconds`."""
    timed = copy.copy(optimizer)
    destroying = False
    for position, member in enumerate(optimizer):
        name = getattr(member, "name", None) or ""
        destroying = destroying or name == "add_destroy_handler"
        phase = PHASE_OF.get(name, INPLACE if destroying else OTHERS)

        def note(spent: float, phase: str = phase) -> None:
            seconds[phase] += spent

        timed[position] = Stopwatch(member, note)
    return timed


def _modules_compiled() -> int:
    """Return the number of C modules that this process has compiled so far."""
    return theano.gof.cc.get_module_cache().stats[2] if theano.config.cxx else 0


def _inner_nodes(node: Apply) -> int:
    op = node.op
    if isinstance(op, Scan):
        return len(theano.gof.graph.ops(op.inputs, op.outputs))
    if isinstance(op, Elemwise) and isinstance(op.scalar_op, Composite):
        return len(op.scalar_op.fgraph.apply_nodes)
    return 0


def destroyed_ranks(node: Apply) -> set[int]:
    """Return the ranks of the inputs that a node overwrites; a random state, which has no rank, counts as 1."""
    destroyed = itertools.chain(*getattr(node.op, "destroy_map", {}).values())
    return {getattr(node.inputs[i].type, "ndim", 1) for i in destroyed}


def optimize(specification: Specification, way: Way) -> Measurement:
    """Optimize a fresh clone of a model's graph once; return the measurement."""
    with way.context(), _as_when_compiling() as failures:
        graph = specification.graph()
        before = len(graph.apply_nodes)
        seconds = dict.fromkeys(PHASES, 0.0)
        compiled = _modules_compiled()
        # Collect the garbage of earlier runs now, so that it is not collected while this run is timed.
        gc.collect()

        start = time.process_time()
        optimizer = way.mode().optimizer
        seconds["query"] = time.process_time() - start
        assert isinstance(optimizer, SeqOptimizer)  # queries of Theano's database return a sequence
        _with_stopwatches(optimizer, seconds).optimize(graph)
        whole = time.process_time() - start
        # Count within the context, because optdb has its own module cache there.
        compiled = _modules_compiled() - compiled

    return Measurement(
        way=way.name,
        seconds=whole,
        phases=seconds,
        before=before,
        after=len(graph.apply_nodes),
        inplace=sum(any(destroyed_ranks(node)) for node in graph.apply_nodes),
        inner=sum(_inner_nodes(node) for node in graph.apply_nodes),
        failures=list(failures),
        graph=graph,
        compiled=compiled,
        inplace_scalars=sum(
            0 in destroyed_ranks(node) and not any(destroyed_ranks(node)) for node in graph.apply_nodes
        ),
    )


def optimize_warm(specification: Specification, way: Way) -> Measurement:
    """Optimize a fresh clone of a model's graph; if C modules had to be compiled, optimize another clone."""
    measurement = optimize(specification, way)
    return optimize(specification, way) if measurement.compiled else measurement


def alternate(
    specification: Specification, ways: list[Way], repeat: int, tell: Callable[[str], None] = lambda way: None
) -> dict[str, list[Measurement]]:
    """Measure each optimizer `repeat` times; they take turns, so that a slow phase of the machine affects all of them.

    Only the last measurement of each optimizer still has the optimized graph. `tell` is called with the name of the
    optimizer after each run.
    """
    runs: dict[str, list[Measurement]] = {way.name: [] for way in ways}
    for _ in range(repeat):
        for way in ways:
            for earlier in runs[way.name]:
                earlier.graph = None
            runs[way.name].append(optimize_warm(specification, way))
            tell(way.name)
    return runs
