"""Observes Theano's compilations: graphs before optimization, functions, and times.

`observe` adds Theano's ``ProfileStats`` to each function compiled in its block; these profiles are not printed at exit.
"""

from __future__ import annotations

import functools
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import theano
from theano.compile.function_module import Function, FunctionMaker
from theano.compile.profiling import ProfileStats, ScanProfileStats
from theano.gof.graph import Apply, Constant, Variable, io_toposort
from theano.gof.opt import SeqOptimizer

from optdb.host.api.patching import Wrapper, applied, around
from optdb.host.theano.functions.call_memory import CallMemory, InputValue, call_memory
from optdb.host.theano.functions.compiled import computed_by
from optdb.trace_log import CompilerRun, compiler_runs

#: The maximum length of an op's name; the name of a fused op contains its whole code.
MAX_OP_CHARS = 400


@dataclass(frozen=True)
class NodeSnapshot:
    """An apply node, or an input of a graph, as text.

    Parameters
    ----------
    op : str
        The op; for a graph input, the variable's name.
    types : tuple of str
        The types of the outputs.
    inputs : tuple of int
        The indices of the nodes that compute the node's inputs; constants are left out.
    is_input : bool
        Whether the object represents an input of the graph.
    line : str
        The line of the user's code that made the node; empty if unknown.
    node : Apply or None
        The node itself if the graph is kept.
    """

    op: str
    types: tuple[str, ...]
    inputs: tuple[int, ...]
    is_input: bool = False
    line: str = ""
    node: Apply | None = None


@dataclass(frozen=True)
class GraphSnapshot:
    """A graph as text: its nodes in topological order, and the indices of the nodes that compute its outputs."""

    nodes: tuple[NodeSnapshot, ...]
    outputs: tuple[int, ...]

    @property
    def node_count(self) -> int:
        """The number of apply nodes."""
        return sum(not node.is_input for node in self.nodes)


@dataclass
class ObservedFunction:
    """A function that was compiled under observation.

    Attributes
    ----------
    before : GraphSnapshot
        The graph before optimization, including updates.
    profile : ProfileStats
        Theano's measurements: ``optimizer_time``, ``linker_time``, ``import_time``, ``fct_call_time``, ``apply_time``.
    around : object
        What the context manager around the optimization returned on entry.
    function : Function or None
        The function; None if compiling it failed.
    link_span : tuple of float
        Start and end of linking, by `time.perf_counter`.
    compilers : sequence of CompilerRun
        All compiler runs under observation, including those for other functions.
    first_call_seconds : float or None
        The duration of the first successful call; None if there was none.
    inputs : dict
        The inputs of the function's graph in that call.
    """

    before: GraphSnapshot
    profile: ProfileStats
    around: Any = None
    function: Function | None = None
    link_span: tuple[float, float] = (0.0, 0.0)
    compilers: Sequence[CompilerRun] = ()
    first_call_seconds: float | None = None
    inputs: dict[Variable, InputValue] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The function's name, which by default is the line of code that compiled it."""
        return getattr(self.function, "name", None) or "function"

    def phases(self) -> list[tuple[str, float]]:
        """Return the optimizer's phases in order, with their durations in seconds."""
        optimizer, profile = getattr(self.profile, "optimizer_profile", None) or (None, None)
        if not isinstance(optimizer, SeqOptimizer) or profile is None:
            return []
        return [(getattr(member, "name", None) or str(member), t) for member, t in zip(profile[0], profile[1])]

    def link_times(self) -> list[tuple[str, float]]:
        """Return the seconds spent in each compiler, on loading C code, and on the rest of linking.

        Because compilers run in parallel, their total is the time during which at least one compiler was running.
        """
        begin, end = self.link_span
        runs: dict[str, list[tuple[float, float]]] = {}
        for run in self.compilers:
            if run.end > begin and run.begin < end:
                runs.setdefault(run.compiler, []).append((max(run.begin, begin), min(run.end, end)))
        times = [(name, covered(spans)) for name, spans in runs.items()]
        compiling = covered([span for spans in runs.values() for span in spans])
        loading = self.profile.import_time
        return [*times, ("loading C code", loading), ("linking", max(0.0, end - begin - compiling - loading))]

    def call_memory(self) -> CallMemory | None:
        """Return the memory used by the first call or, on a device, by the last recorded call; None if unknown."""
        if self.function is None:
            return None
        of_device = getattr(self.function.fn, "call_memory", None)
        if of_device is not None:
            return of_device()
        return call_memory(self.function, self.inputs) if self.inputs_are_known else None

    @property
    def inputs_are_known(self) -> bool:
        """Whether a call was observed."""
        return self.first_call_seconds is not None

    def node_times(self) -> dict[Apply, tuple[float, int]]:
        """Return the total time in seconds and the number of runs of each timed node in the compiled graph."""
        times = self.profile.apply_time
        counts = self.profile.apply_callcount
        # Theano lists all nodes, but does not count the runs of nodes that a device replays as a plan.
        return {_node_of(key): (seconds, counts[key]) for key, seconds in times.items() if counts.get(key)}


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """Return the length of the union of some intervals."""
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def _node_of(key: Any) -> Apply:
    return key[-1] if isinstance(key, tuple) else key


def snapshot(outputs: Iterable[Variable]) -> GraphSnapshot:
    """Return the graph that computes `outputs`, as text."""
    outputs = list(outputs)
    indices: dict[Any, int] = {}
    nodes: list[NodeSnapshot] = []

    def index_of(var: Variable) -> int | None:
        if var.owner is not None:
            return indices[var.owner]
        if isinstance(var, Constant):
            return None
        if var not in indices:
            indices[var] = len(nodes)
            nodes.append(NodeSnapshot(str(var), (str(var.type),), (), is_input=True))
        return indices[var]

    for node in io_toposort([], outputs):
        inputs = tuple(dict.fromkeys(index for index in map(index_of, node.inputs) if index is not None))
        types = tuple(str(out.type) for out in node.outputs)
        indices[node] = len(nodes)
        nodes.append(NodeSnapshot(str(node.op)[:MAX_OP_CHARS], types, inputs, line=_line_of(node), node=node))
    ends = tuple(index for index in map(index_of, outputs) if index is not None)
    return GraphSnapshot(tuple(nodes), ends)


def _line_of(node: Apply) -> str:
    """Return the line of the user's code that made a node, from the innermost frame recorded by Theano."""
    for out in node.outputs:
        for trace in getattr(out.tag, "trace", None) or ():
            if trace:
                file, number, _, text = trace[-1] if not isinstance(trace, traceback.FrameSummary) else tuple(trace)
                return f"{file}:{number}: {text or ''}"
    return ""


@contextmanager
def observe(
    see: Callable[[ObservedFunction], None], around: Callable[[], AbstractContextManager[Any]] = nullcontext
) -> Iterator[None]:
    """Call `see` with each function whose compilation begins in the block, including inner functions.

    Graphs are optimized inside the context manager that `around` returns; the context manager's value becomes the
    attribute ``around``.
    """

    def observing(initialize: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(initialize)
        def initialize_observed(self: FunctionMaker, inputs: Any, outputs: Any, *args: Any, **kwargs: Any) -> None:
            profile = kwargs.get("profile")
            if profile is not None and profile is not False:
                initialize(self, inputs, outputs, *args, **kwargs)  # the user has passed a profile of their own
                return
            # Inner functions of Scan require this profile class, which also works for all other functions.
            kwargs["profile"] = stats = ScanProfileStats(atexit_print=False, gpu_checks=False)
            seen = ObservedFunction(snapshot(_wanted(inputs, outputs)), stats, compilers=runs)
            see(seen)
            with around() as seen.around, theano.change_flags(profile_optimizer=True):
                initialize(self, inputs, outputs, *args, **kwargs)
            self.observed = seen

        return initialize_observed

    patches = (
        Wrapper(FunctionMaker, "__init__", observing, "the optimization of each function is observed"),
        Wrapper(FunctionMaker, "create", _keeping_function, "each function is observed"),
        Wrapper(Function, "__call__", _noting_first_call, "the first call of each function is observed"),
    )
    with compiler_runs() as runs, applied(*patches):
        yield


@around
def _keeping_function(create: Callable[..., Function], self: FunctionMaker, *args: Any, **kwargs: Any) -> Function:
    begin = time.perf_counter()
    function = create(self, *args, **kwargs)
    seen = getattr(self, "observed", None)
    if seen is not None:
        seen.function = function
        seen.link_span = begin, time.perf_counter()
    return function


class _FirstCall:
    """Calls a function, and records the inputs of the first call."""

    def __init__(self, function: Function) -> None:
        self.compute = function.fn
        self.inputs: dict[Variable, InputValue] = {}
        self._storage = list(zip(function.maker.fgraph.inputs, function.input_storage, strict=True))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # Theano empties the storage of arguments after the call.
        self.inputs = {var: InputValue.of(container.storage[0]) for var, container in self._storage}
        return self.compute(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.compute, name)


@around
def _noting_first_call(call: Callable[..., Any], self: Function, *args: Any, **kwargs: Any) -> Any:
    seen = getattr(self.maker, "observed", None)
    if seen is None or seen.function is not self or seen.inputs_are_known:
        return call(self, *args, **kwargs)
    first_call = _FirstCall(self)
    result = call(computed_by(self, first_call), *args, **kwargs)
    seen.first_call_seconds, seen.inputs = seen.profile.fct_call_time, first_call.inputs
    return result


def _wanted(inputs: Any, outputs: Any) -> list[Variable]:
    """Return a function's outputs and the updates of its inputs."""
    outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    wanted = [getattr(out, "variable", out) for out in outputs]
    updates = [getattr(spec, "update", None) for spec in inputs]
    return [var for var in (*wanted, *updates) if isinstance(var, Variable)]
