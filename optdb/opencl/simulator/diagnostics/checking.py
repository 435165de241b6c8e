"""Checks a call step by step by comparing each device node's result with the host's result for the same inputs.

Theano's own ops compute the expected result from the step's inputs on the device, so an error is reported only for the
step that caused it. A step is a device node together with its predecessors that have no counterpart on the host, such
as parts of a fused op. A check changes no value that outlives the call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich.console import Group
from rich.table import Table

from optdb.host.api.graph import Apply, Constant, Variable, clients, owner_of, reachable
from optdb.host.api.ops import AllocEmpty
from optdb.host.api.traces import source_location
from optdb.html_tables import ReportTables
from optdb.lifters.text_tables import new_table, text_of
from optdb.opencl.linking.nodes import on_device, touches_device
from optdb.opencl.simulator.diagnostics.stepping import NodeEvaluator, NotKnown, Values
from optdb.opencl.simulator.execution.executable import Executable
from optdb.opencl.transfers import TransferOp
from optdb.runtime.arrays import as_host_value

#: Maps the real part's dtype to two tolerances: relative to each number, and relative to the largest number.
TOLERANCES = {"float16": (1e-2, 1e-3), "float32": (1e-4, 1e-6), "float64": (1e-8, 1e-10)}
TRIALS = 4
#: The maximum perturbation of inputs, in units in the last place.
UNITS = 2
#: A difference may be at most this multiple of the change caused by a perturbation.
FREEDOM = 16


@dataclass(frozen=True, eq=False)
class Difference:
    """How two values differ."""

    what: str
    #: Index of the largest difference; None if the values cannot be compared elementwise.
    index: tuple[int, ...] | None
    #: The two numbers at `index`; if `index` is None, the two shapes or values.
    on_device: Any
    on_host: Any
    #: The number of differing elements and the total number of elements.
    count: int
    size: int
    #: Allowed difference at `index`.
    tolerance: float | None
    device: Any
    host: Any


def compare(
    device: Any, host: Any, equal: Callable[[Any, Any], bool], again: Callable[[], Sequence[Any]] | None = None
) -> Difference | None:
    """Compare the device's result, copied to the host, with the host's result; return None if they agree.

    `equal` compares values that are not arrays. `again` returns the host's results for perturbed inputs.
    """
    arrays = isinstance(device, np.ndarray) and isinstance(host, np.ndarray)
    if arrays and device.shape != host.shape:
        return Difference("the shapes differ", None, device.shape, host.shape, 1, 1, None, device, host)
    if arrays and device.dtype != host.dtype:
        return Difference("the dtypes differ", None, device.dtype, host.dtype, 1, 1, None, device, host)
    if arrays and not device.size:
        return None
    if not arrays or device.dtype == object:
        if equal(device, host):
            return None
        return Difference("the values differ", None, device, host, 1, 1, None, device, host)
    allowed = _allowed(host)
    far = _distances(device, host)
    if (far <= allowed).all():
        return None
    if again is not None:
        moved = np.max([_distances(np.asarray(other), host) for other in again()], axis=0)
        allowed = allowed + FREEDOM * moved
        if (far <= allowed).all():
            return None
    return _largest(device, host, far, allowed)


def nudged(value: Any, random: np.random.RandomState) -> Any:
    """Return a value with its floats perturbed by up to `UNITS` units in the last place."""
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "fc" or not value.size:
        return value
    factor = 1 + UNITS * np.finfo(value.dtype).eps * (2 * random.rand(*value.shape) - 1)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(value * factor, value.dtype)


def _wide(value: np.ndarray) -> np.ndarray:
    return value.astype(np.result_type(value.dtype, "float64"))


def _allowed(host: np.ndarray) -> np.ndarray | float:
    """Return the allowed difference for each element; integers must be equal."""
    if host.dtype.kind not in "fc":
        return 0.0
    relative, absolute = TOLERANCES[np.finfo(host.dtype).dtype.name]
    size = np.abs(_wide(host))
    finite = np.where(np.isfinite(size), size, 0)
    return relative * finite + absolute * finite.max()


def _distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return elementwise distances, which are infinite where elements differ and at least one of them is not finite."""
    if a.dtype.kind not in "fc":  # different 64-bit integers may convert to the same float
        return np.where(a == b, 0.0, np.maximum(np.abs(_wide(a) - _wide(b)), 1.0))
    with np.errstate(over="ignore", invalid="ignore"):
        far = np.abs(_wide(a) - _wide(b))
        same = (a == b) | (np.isnan(a) & np.isnan(b))
    return np.where(same, 0.0, np.where(np.isfinite(far), far, np.inf))


def _largest(device: np.ndarray, host: np.ndarray, far: np.ndarray, allowed: Any) -> Difference:
    allowed = np.broadcast_to(allowed, far.shape)
    beyond = np.where(far > allowed, far, -1.0)
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(beyond)), far.shape))
    finite = bool(np.isfinite(far[index]))
    what = f"by {far[index]:.3g} at most" if finite else "the elements that are not finite differ"
    return Difference(
        *(what, index, device[index], host[index], int((beyond >= 0).sum()), far.size),
        *(float(allowed[index]), device, host),
    )


#: The maximum number of differences shown in the table; the first one is also shown in full.
SHOWN = 20


class StepsDiffer(AssertionError):
    """Raised if a step on the device and the host's own ops return different results.

    Attributes
    ----------
    report : CheckReport
        The complete result of the check.
    """

    def __init__(self, report: CheckReport) -> None:
        super().__init__(str(report))
        self.report = report


@dataclass(frozen=True, eq=False)
class StepCheck:
    """The comparison of one step."""

    number: int
    op: str
    #: The step's earlier device ops, which have no counterpart on the host. One of these earlier ops may have caused a
    #: difference.
    within: list[str]
    #: The host ops that computed the value, last op first.
    host_ops: list[str]
    output: int
    #: The line in the user's code that created the op; empty if unknown.
    line: str
    trace: str
    difference: Difference | None = None
    #: If the values differ, the names and values of the inputs that both the device and the host read.
    inputs: list[tuple[str, Any]] = field(default_factory=list)


@dataclass(eq=False, repr=False)
class CheckReport(ReportTables):
    """The result of a check; it prints as tables."""

    name: str
    steps: list[StepCheck]
    #: The op of each device node that was not compared, with the reason.
    not_compared: list[tuple[str, str]]
    #: The device's results, copied to the host.
    outputs: list[Any]
    #: The number of nodes of each kind: ``device``, ``host`` and ``transfer``.
    places: Counter[str] = field(default_factory=Counter)

    @property
    def ok(self) -> bool:
        """Whether no step differs."""
        return self.first is None

    @property
    def first(self) -> StepCheck | None:
        """The first step that differs; None if there is none."""
        return next(iter(self.differing), None)

    @property
    def differing(self) -> list[StepCheck]:
        """The steps that differ."""
        return [step for step in self.steps if step.difference is not None]

    def raise_if_different(self) -> None:
        """Raise an error if a step differs.

        Raises
        ------
        StepsDiffer
            If a step differs; the message is the report.
        """
        if not self.ok:
            raise StepsDiffer(self)

    def __str__(self) -> str:
        return text_of(self.render())

    def render(self) -> Group:
        """Return the tables for printing with `rich`.

        Returns
        -------
        rich.console.Group
            Tables of counts, of the steps that differ, and of the nodes that were not compared.
        """
        counts = [
            ("values compared", len(self.steps)),
            ("that differ", len(self.differing)),
            ("ops of the device", self.places["device"]),
            ("of these, not compared", len(self.not_compared)),
            ("ops of the host", self.places["host"]),
            ("transfers", self.places["transfer"]),
        ]
        tables = [new_table(f"{self.name}: device compared with host", ("",), ("",), counts)]
        if self.first is not None:
            columns = ("step", "op", "line", "how", "where")
            rows = map(_row, self.differing)
            tables += [new_table("steps that differ", columns, ("elements",), rows, SHOWN), _in_full(self.first)]
        if self.not_compared:
            reasons = ((op, why, count) for (op, why), count in Counter(self.not_compared).most_common())
            tables.append(new_table("not compared", ("op", "because"), ("nodes",), reasons))
        return Group(*tables)


def _row(step: StepCheck) -> tuple[Any, ...]:
    difference = step.difference
    assert difference is not None, step
    where = "" if difference.index is None else difference.index
    return step.number, step.op, step.line, difference.what, where, f"{difference.count:,} of {difference.size:,}"


def _in_full(step: StepCheck) -> Table:
    difference = step.difference
    assert difference is not None, step
    rows: list[tuple[str, Any]] = [("op", step.op), ("output", step.output)]
    if step.within:
        rows.append(("fused with", ", ".join(step.within)))
    rows.append(("on the host", ", ".join(step.host_ops)))
    rows.append(("how", f"{difference.what}; {difference.count:,} of {difference.size:,} elements"))
    if difference.index is not None:
        rows.append(("largest difference at", difference.index))
    rows.append(("the device has", _short(difference.on_device)))
    rows.append(("the host has", _short(difference.on_host)))
    if difference.tolerance is not None:
        rows.append(("allowed there", f"{difference.tolerance:.3g}"))
    rows += [(f"input: {name}", summary(value)) for name, value in step.inputs]
    rows.append(("made by", step.trace or "no trace was recorded: see Theano's flag traceback.limit"))
    return new_table(f"first difference: step {step.number}", ("", ""), (), rows)


def summary(value: Any) -> str:
    """Describe an array in one line by its dtype, its shape and the range of its values."""
    if not isinstance(value, np.ndarray):
        return _short(value)
    what = f"{value.dtype} {value.shape}"
    if not value.size or value.dtype.kind not in "biuf":
        return what
    finite = value[np.isfinite(value)]
    odd = value.size - finite.size
    bounds = f", {finite.min():.6g} to {finite.max():.6g}" if finite.size else ""
    return what + bounds + (f", {odd:,} not finite" if odd else "")


def _short(value: Any) -> str:
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and not value.ndim):
        return repr(value.item())
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + " ..."


class Checker:
    """Checks calls to the function called `name`, step by step."""

    def __init__(self, executable: Executable, name: str) -> None:
        self._executable = executable
        self._name = name
        self._graph = executable.graph.fgraph
        self._origins = executable.graph.origins
        self._counterparts = set(self._origins.values())
        self._on_device = NodeEvaluator()
        # Some ops have no correct ``perform``, so a result that differs is also compared with the result of C code.
        self._on_host = [NodeEvaluator()] if executable.c_thunks else [NodeEvaluator("py"), NodeEvaluator()]
        self._cuts = {var: self._cut(origin) for var, origin in self._origins.items() if _is_compared(var, origin)}

    def run(self) -> CheckReport:
        self._values: Values = self._executable.given()
        self._known: Values = {}
        self._checks: list[StepCheck] = []
        self._covered: set[Apply] = set()
        self._trouble: dict[Apply, str] = {}
        # Being an output of the graph counts as a use, so that an output's count never drops to zero.
        self._uses = {var: len(clients(self._graph, var)) for var in self._graph.variables}
        self._needs = Counter(origin for cut in self._cuts.values() for origin in cut)
        for var in self._graph.inputs:
            self._keep_for_host(var)
        outputs = self._on_device.compute(self._graph.outputs, self._values, self._look)
        report = CheckReport(self._name, self._checks, self._not_compared(), list(map(as_host_value, outputs)))
        report.places.update(map(_placement, self._graph.apply_nodes))
        del self._values, self._known
        return report

    def _look(self, node: Apply) -> None:
        """Compare a node's outputs if possible, and drop the values that no later node needs."""
        for out in node.outputs:
            if out in self._cuts:
                self._compare(out)
            self._keep_for_host(out)
        for var in node.inputs:
            self._uses[var] -= 1
            if not self._uses[var]:
                self._values.pop(var, None)

    def _keep_for_host(self, var: Variable) -> None:
        origin = self._origins.get(var)
        if origin is not None and origin not in self._known and self._needs[origin]:
            value = self._values[var]
            self._known[origin] = value if on_device(origin) else as_host_value(value)

    def _compare(self, var: Variable) -> None:
        node, difference, done = owner_of(var), None, False
        for steps in self._on_host:
            try:
                difference = self._difference(steps, var)
                done = True
            except NotKnown:
                self._trouble[node] = "the device no longer holds the inputs that the host needs"
            except Exception as error:
                text = str(error).splitlines() or [""]
                self._trouble[node] = f"the host's own ops raise {type(error).__name__}: {text[0]}"
            if done and difference is None:
                break
        if done:
            self._keep(var, difference)
        for origin in self._cuts[var]:
            self._needs[origin] -= 1
            if not self._needs[origin]:
                self._known.pop(origin, None)

    def _difference(self, steps: NodeEvaluator, var: Variable) -> Difference | None:
        """Compare a variable with the value that the host computes with `steps`."""
        origin = self._origins[var]

        def again() -> list[Any]:
            randoms = map(np.random.RandomState, range(TRIALS))
            return [as_host_value(self._host_value(steps, origin, random)) for random in randoms]

        host = as_host_value(self._host_value(steps, origin))
        return compare(as_host_value(self._values[var]), host, origin.type.values_eq, again)

    def _keep(self, var: Variable, difference: Difference | None) -> None:
        origin, node = self._origins[var], owner_of(var)
        group = self._group(node)
        self._covered.update(group)
        inputs = [] if difference is None else [source for source in self._cuts[var] if source in self._known]
        line, trace = source_location(origin)
        self._checks.append(
            StepCheck(
                number=len(self._checks),
                op=str(node.op),
                within=[str(other.op) for other in group if other is not node],
                host_ops=[str(host_node.op) for host_node in self._host_nodes(origin)],
                output=node.outputs.index(var),
                line=line,
                trace=trace,
                difference=difference,
                inputs=[(_name(source), as_host_value(self._known[source])) for source in inputs],
            )
        )

    def _host_value(self, steps: NodeEvaluator, origin: Variable, random: np.random.RandomState | None = None) -> Any:
        """Return the host's result for the device's values; if `random` is given, perturb these values slightly."""
        values = {var: value for var, value in self._known.items() if var is not origin}
        if random is not None:
            values = {var: nudged(value, random) for var, value in values.items()}
        return steps.compute([origin], values)[0]

    def _cut(self, origin: Variable) -> list[Variable]:
        """Return the variables, all with values on the device, from which the host computes a variable."""
        inputs = (var for node in self._host_nodes(origin) for var in node.inputs)
        return list(dict.fromkeys(filter(self._is_known, inputs)))

    def _host_nodes(self, origin: Variable) -> list[Apply]:
        """Return the host nodes that compute a variable from values on the device, the last node first."""
        return _unknown_ancestors(owner_of(origin), self._is_known)

    def _is_known(self, var: Variable) -> bool:
        return not isinstance(var, Constant) and (var in self._counterparts or var.owner is None)

    def _group(self, node: Apply) -> list[Apply]:
        """Return a node and its predecessors that have no counterpart on the host."""
        return _unknown_ancestors(
            node, lambda var: var in self._origins or var.owner is None or isinstance(var.owner.op, TransferOp)
        )

    def _not_compared(self) -> list[tuple[str, str]]:
        left = (node for node in self._graph.toposort() if _placement(node) == "device" and node not in self._covered)
        return [(str(node.op), self._why_not(node)) for node in left]

    def _why_not(self, node: Apply) -> str:
        if node in self._trouble:
            return self._trouble[node]
        nodes = [self._origins[out].owner for out in node.outputs if out in self._origins]
        if any(node is not None and isinstance(node.op, AllocEmpty) for node in nodes):
            return "its content is undefined"
        if any(out in self._cuts for out in node.outputs):
            return "it was not needed by this call"
        return "no variable of the host's graph corresponds to it or to a value computed from it"


def _placement(node: Apply) -> str:
    if isinstance(node.op, TransferOp):
        return "transfer"
    return "device" if touches_device(node) else "host"


def _unknown_ancestors(node: Apply, known: Callable[[Variable], bool]) -> list[Apply]:
    return list(
        reachable([node], lambda node: [var.owner for var in node.inputs if not known(var) and var.owner is not None])
    )


def _is_compared(var: Variable, origin: Variable) -> bool:
    """Return whether the device computes a variable, and its value is defined, unlike the result of `empty`."""
    if var.owner is None or origin.owner is None or isinstance(origin.owner.op, AllocEmpty):
        return False
    return _placement(var.owner) == "device"


def _name(var: Variable) -> str:
    return var.name or (str(var.owner.op) if var.owner is not None else str(var))
