"""Checks a call step by step by comparing each device node's result with the host's result for the same inputs.

The device graph's nodes are computed one by one. Theano's own ops compute the counterpart of a result from values
downloaded earlier, so a wrong step is reported once. A step is a device node together with its predecessors that have
no counterpart on the host, such as the parts of a fused op. A check changes no value that outlives the call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from optdb.host.api.graph import Apply, Constant, Variable, clients, owner_of, reachable
from optdb.host.api.ops import AllocEmpty
from optdb.host.api.traces import source_location
from optdb.opencl.linking.nodes import on_device, touches_device
from optdb.opencl.simulator.diagnostics.check_report import TRIALS, CheckReport, Difference, StepCheck, compare, nudged
from optdb.opencl.simulator.diagnostics.stepping import NodeEvaluator, NotKnown, Values
from optdb.opencl.simulator.execution.executable import Executable
from optdb.opencl.transfers import TransferOp
from optdb.runtime.arrays import as_host_value


class Checker:
    """Checks calls of the function called `name`, step by step."""

    def __init__(self, executable: Executable, name: str) -> None:
        self._executable = executable
        self._name = name
        self._graph = executable.graph.fgraph
        self._origins = executable.graph.origins
        self._counterparts = set(self._origins.values())
        self._on_device = NodeEvaluator()
        # Some ops have no ``perform`` or a wrong one, so a result that differs is also compared with C code.
        self._on_host = [NodeEvaluator()] if executable.c_thunks else [NodeEvaluator("py"), NodeEvaluator()]
        self._cuts = {var: self._cut(origin) for var, origin in self._origins.items() if _is_compared(var, origin)}

    def run(self) -> CheckReport:
        self._values: Values = self._executable.given()
        self._known: Values = {}
        self._checks: list[StepCheck] = []
        self._covered: set[Apply] = set()
        self._trouble: dict[Apply, str] = {}
        # Count uses as outputs too, so that an output's count never drops to zero.
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
        """Compare a node's outputs where possible, and drop the values that no later node needs."""
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
        """Return the host's result for the device's values, slightly perturbed if `random` is given."""
        values = {var: value for var, value in self._known.items() if var is not origin}
        if random is not None:
            values = {var: nudged(value, random) for var, value in values.items()}
        return steps.compute([origin], values)[0]

    def _cut(self, origin: Variable) -> list[Variable]:
        """Return the variables from which the host computes a variable; the device has the values of all of them."""
        inputs = (var for node in self._host_nodes(origin) for var in node.inputs)
        return list(dict.fromkeys(filter(self._is_known, inputs)))

    def _host_nodes(self, origin: Variable) -> list[Apply]:
        """Return the host nodes, last node first, that compute a variable from values that the device also has."""
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
    """Return whether the device computes a variable and its value is defined; `empty` leaves its result undefined."""
    if var.owner is None or origin.owner is None or isinstance(origin.owner.op, AllocEmpty):
        return False
    return _placement(var.owner) == "device"


def _name(var: Variable) -> str:
    return var.name or (str(var.owner.op) if var.owner is not None else str(var))
