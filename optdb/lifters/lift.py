"""GraphToGPU: lifts a whole graph to a device in one pass.

A placement first decides where each node will run. The builder then builds the new graph beside the old one, and all
outputs are replaced at once. Each transfer is created once, and moving a value back returns the original variable. The
design follows Theano's GraphToGPU (PR 4570).
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from optdb import trace_log
from optdb.host.api.c_code import progress
from optdb.host.api.config import logger
from optdb.host.api.databases import Query
from optdb.host.api.graph import Apply, FunctionGraph, Variable
from optdb.host.api.rewriters import GraphRewriter, rebuild, replace_all
from optdb.host.api.session import optimizing
from optdb.host.api.testvalues import copy_test_value
from optdb.host.api.traces import copy_trace
from optdb.lifters.device import Device, keep_database, transfer_context
from optdb.lifters.lifter import BadLift, Declined, Lifter
from optdb.lifters.partitioning import rebalance_partitions
from optdb.lifters.placement import Placement, tracked
from optdb.lifters.report import LiftReport, NodeReport, keep_report
from optdb.lifters.transfers import dedup_transfers, transfer_once
from optdb.topo.db import TopoOptDB
from optdb.topo.rewriter import TopoRewriter


class GraphToGPU(GraphRewriter):
    """Moves nodes of a graph to a device, if they have lifters.

    Parameters
    ----------
    lifters : TopoOptDB, sequence of Lifter or mapping
        A database is queried for each graph, so that lifters registered later are included.
        The lifters in a sequence are tried in order. A mapping gives the lifters of each op class or
        instance.
    device : Device
        The device to lift to.
    tags : sequence of str
        For a database: the tags of the lifters to use.

    Attributes
    ----------
    report : LiftReport or None
        The report of the last lift.
    """

    def __init__(
        self,
        lifters: TopoOptDB | Sequence[Lifter] | Mapping[Any, list[Lifter]],
        device: Device,
        tags: Sequence[str] = ("fast_run",),
    ) -> None:
        self.lifters = lifters
        self.device = device
        self.tags = tuple(tags)
        self.name: str = f"GraphToGPU[{device.name}]"
        self.report: LiftReport | None = None

    def apply(self, fgraph: FunctionGraph) -> LiftReport:
        """Lift a graph; if the new graph is not valid, keep the old one.

        Parameters
        ----------
        fgraph : FunctionGraph
            The graph, which is changed.

        Returns
        -------
        LiftReport
            The placement of each node, with the reasons.
        """
        with optimizing(), progress.phase("lifting"):
            report: LiftReport = super().apply(fgraph)
            return report

    def rewrite(self, fgraph: FunctionGraph) -> LiftReport:
        """Lift a graph; called by `apply`.

        Parameters
        ----------
        fgraph : FunctionGraph
            The graph, which is changed.

        Returns
        -------
        LiftReport
            The placement of each node, with the reasons.
        """
        start = time.perf_counter()
        nodes = fgraph.toposort()
        placement = Placement(fgraph, self.device, self._by_op(), nodes).make()
        rebalance_partitions(placement)
        with dedup_transfers() as made:
            builder = LiftBuilder(placement)
            pairs = builder.build()
            for (source, _), transfer in made.items():
                copy_trace(source, transfer)
        replace_all(fgraph, pairs, reason=self.name)
        # ``on_change_input`` reports only the outputs, so this callback reports the other variables to features.
        fgraph.execute_callbacks("on_lifted", builder.lifted())
        self.report = LiftReport(self.device.name, builder.reports, time.perf_counter() - start)
        keep_report(fgraph, self.report)
        if trace_log.wants("lifts"):
            _trace(self.report)
        return self.report

    def _by_op(self) -> dict[Any, list[Lifter]]:
        if isinstance(self.lifters, Mapping):
            return dict(self.lifters)
        if not isinstance(self.lifters, TopoOptDB):
            return tracked(self.lifters)
        # Use the query of the base class: the query of a GraphToGPUDB would return a `GraphToGPU` for the database's
        # device.
        return lifters_of(TopoOptDB.query(self.lifters, *(f"+{tag}" for tag in self.tags)))

    def print_summary(self, stream: Any, level: int = 0, depth: int = -1) -> None:
        """Write one line, for ``theano.printing``.

        Parameters
        ----------
        stream : file
            The output stream.
        level : int
            Number of spaces to indent the line by.
        depth : int
            Ignored, because the output has only one line.
        """
        print(f"{' ' * level}{self.name}", file=stream)


def _trace(report: LiftReport) -> None:
    """Print the nodes that moved to the device, and the nodes that stayed on the host with the reasons."""
    for node in report.nodes:
        # An op such as Elemwise{add,no_inplace} can also be selected by its class.
        names = (node.op, re.split("[{<]", node.op)[0], node.lifter or "")
        if not trace_log.wants("lifts", *names):
            continue
        if node.lifter is None:
            trace_log.write(f"lift: {node.op} stays on the host: {node.reason}")
        else:
            trace_log.write(f"lift: {node.op} moves to {node.context_name or report.device} by {node.lifter}")


def lifters_of(rewriter: TopoRewriter) -> dict[Any, list[Lifter]]:
    """Find the lifters among a query's rewriters, and group them by op class or instance."""
    tracked_by = rewriter.local_optimizers_map
    return {op: [member for member in members if isinstance(member, Lifter)] for op, members in tracked_by.items()}


class GraphToGPUDB(TopoOptDB):
    """A database of lifters whose query returns a `GraphToGPU`.

    If the database is registered in ``theano.compile.optdb``, every mode that includes its tags lifts graphs; modes can
    include or exclude individual lifters by name.

    Parameters
    ----------
    device : Device
        The device to lift to.
    """

    def __init__(self, device: Device) -> None:
        super().__init__(direction="in_to_out")
        self.device = device
        keep_database(device, self)

    def query(self, *tags: Any, **kwtags: Any) -> Any:
        """Return a `GraphToGPU` with the selected lifters; raise an error if the device is not ready."""
        self.device.ready()
        if not tags and not kwtags:
            tags = (Query(include=["fast_run"]),)
        selected = super().query(*tags, **kwtags)
        return GraphToGPU(lifters_of(selected), self.device)


class LiftBuilder:
    """Builds the lifted graph of a placement; `reports` records the placement of each node."""

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self.device = placement.device
        self.reports: list[NodeReport] = []
        #: Maps each replaced variable to its replacement; both are on the host, or both are on the device.
        self._new: dict[Variable, Variable] = {}
        #: Maps old host variables to their values on the device.
        self._there: dict[Variable, Variable] = {}

    def build(self) -> list[tuple[Variable, Variable]]:
        """Return pairs of old outputs and their replacements."""
        for node in self.placement.nodes:
            self._build(node)
        pairs = {}
        for out in self.placement.fgraph.outputs:
            new = self._same_side(out)
            if new is not out:
                pairs[out] = new
        return list(pairs.items())

    def lifted(self) -> list[tuple[Variable, Variable]]:
        """Return pairs of an old host variable and a new variable with its value, on the device or the host."""
        return [*self._there.items(), *self._new.items()]

    def _build(self, node: Apply) -> None:
        if isinstance(node.op, self.device.to_host):
            self._there[node.outputs[0]] = self._same_side(node.inputs[0])
        elif isinstance(node.op, (self.device.from_host, self.device.between)):
            self._build_transfer(node)
        elif node not in self.placement.contexts:
            self._build_on_host(node, self.placement.reason(node))
        else:
            self._lift(node)

    def _build_transfer(self, node: Apply) -> None:
        """Build a transfer from the user's graph; omit the transfer if the value is already in the target context."""
        [var] = node.inputs
        context_name = transfer_context(node.op)
        source = self._there.get(var, self._new.get(var, var))
        self._new[node.outputs[0]] = self.device.as_variable(source, context_name)

    def _lift(self, node: Apply) -> None:
        context_name = self.placement.contexts[node]
        inputs = [self._for_lifter(var, context_name) for var in node.inputs]
        reason = None
        willing = self.placement.willing.get(node)
        for lifter in self.placement.candidates_from(node, willing):
            lifted = self._offer(lifter, node, context_name, inputs, asked=lifter is willing)
            if not isinstance(lifted, Declined):
                self._take(node, lifted)
                self.reports.append(NodeReport(str(node.op), context_name, str(lifter), None))
                return
            reason = f"{lifter}: {lifted.reason}"
        self._build_on_host(node, reason)

    def _offer(self, lifter: Lifter, node: Apply, context_name: Any, inputs: list[Variable], asked: bool) -> Any:
        try:
            return lifter.offer(node.op, context_name, inputs, node.outputs, asked=asked)
        except BadLift as error:
            logger.warning("%s. The node stays on the host.", error)
            return Declined(str(error))

    def _take(self, node: Apply, lifted: list[Variable]) -> None:
        for old, new in zip(node.outputs, lifted, strict=True):
            if self.device.has(new):
                self._there[old] = new
            else:
                self._new[old] = new
                copy_test_value(old, new)

    def _build_on_host(self, node: Apply, reason: str | None) -> None:
        new = rebuild(node, [self._same_side(var) for var in node.inputs])
        if new is not node:
            self._new.update(zip(node.outputs, new.outputs, strict=True))
            for old, out in zip(node.outputs, new.outputs, strict=True):
                copy_trace(old, out)
                copy_test_value(old, out)
        if reason is not None:
            self.reports.append(NodeReport(str(node.op), None, None, reason))

    def _for_lifter(self, var: Variable, context_name: Any) -> Variable:
        """Return a lifter's input for `var`: a device variable if `var` was lifted or moves to the context."""
        if var in self._there:
            return self._there[var]
        if self.placement.moved.get(var, self) == context_name:
            return self.device.as_variable(var, context_name)
        return self._new.get(var, var)

    def _same_side(self, var: Variable) -> Variable:
        there = self._there.get(var)
        if there is None:
            return self._new.get(var, var)
        on_host: Variable = transfer_once((there, self.device.to_host), lambda: self.device.host_variable(there))
        if on_host.owner is not None and isinstance(on_host.owner.op, self.device.to_host):
            copy_trace(var, on_host)
            copy_test_value(var, on_host)
        return on_host
