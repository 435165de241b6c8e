"""`explain`, which reports where each op of a compiled function runs, with reasons."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table

from optdb.host import refuse_pytensor
from optdb.host.api.config import config
from optdb.host.api.graph import Apply, FunctionGraph
from optdb.html_tables import ReportTables
from optdb.lifters.device import Device, devices
from optdb.lifters.report import LiftReport, lift_reports
from optdb.lifters.text_tables import new_table, text_of
from optdb.lifters.transfers import Traffic, count_transfers

if TYPE_CHECKING:
    from optdb.host.api.c_code import Tier

HOST = "host"
#: Colours in the picture of host nodes, of nodes in each context (in order of appearance), and of transfers.
HOST_COLOUR = "#f4f4f4"
CONTEXT_COLOURS = ("#b7e1cd", "#c9daf8", "#fce8b2", "#ead1dc", "#d9d2e9")
TRANSFER_COLOUR = "#f4b6a6"


@dataclass(frozen=True, repr=False)
class Explanation(ReportTables):
    """Where the ops of a function run, and why.

    Parameters
    ----------
    name : str
        The function's name.
    graph : FunctionGraph
        The function's graph after optimization.
    reports : list of LiftReport
        The reports of the lifts.
    places : Counter
        The number of nodes on each device, without transfers.
    transfers : Counter
        The number of transfer nodes by op and context. Arguments, results and shared variables that a call moves
        without a transfer op are only in `traffic`.
    traffic : Traffic or None
        The transfers of one call, if the function was called.
    c_code : Tier or None
        The progress of the C code, if the function is compiled in tiers.
    notes : tuple of (str, str)
        Pairs of a device and a note on a setting that has no effect on the device.
    """

    name: str
    graph: FunctionGraph
    reports: list[LiftReport]
    places: Counter[str]
    transfers: Counter[str]
    traffic: Traffic | None = None
    c_code: Tier | None = None
    notes: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return text_of(self.render())

    def render(self) -> Group:
        """Return the tables, for `rich`.

        Returns
        -------
        rich.console.Group
            Tables of the nodes on each device, the lifted nodes, the nodes that stayed on the host, and the transferred
            bytes.
        """
        tables: list[Table] = [
            self._summary(),
            self._tiers(),
            self._notes(),
            *[table for report in self.reports for table in report.tables()],
        ]
        return Group(*[table for table in tables if table.row_count])

    def picture(self, path: str | Path) -> Path:
        """Draw the graph, coloured by device.

        Parameters
        ----------
        path : str or Path
            The file. Its suffix selects the format: ``.dot`` is Graphviz's text format, which needs no program;
            ``.svg``, ``.png`` and ``.pdf`` need Graphviz's program ``dot``.

        Returns
        -------
        Path
            `path`.

        Raises
        ------
        RuntimeError
            If a package or program is missing; the message names it.
        """
        return _draw(self.graph, Path(path))

    def _summary(self) -> Table:
        numbers = ("ops",) if self.traffic is None else ("ops", "in a call")
        rows: list[tuple[object, ...]] = [*sorted(self.places.items())]
        rows += [(f"transfer: {op}", count, *self._moved(_kind(op))) for op, count in sorted(self.transfers.items())]
        inside = set(self.traffic.transfers if self.traffic else ()) - set(map(_kind, self.transfers))
        # Copies that no transfer op makes are recorded under a description instead of a class name.
        rows += [(kind if " " in kind else f"within {kind}", "", *self._moved(kind)) for kind in sorted(inside)]
        return new_table(f"{self.name}: where its ops run", ("place",), numbers, rows)

    def _tiers(self) -> Table:
        rows = []
        if self.c_code is not None:
            rows = [("nodes in C", self.c_code.in_c), ("nodes in Python", self.c_code.in_python)]
            rows += [("modules to build", self.c_code.modules_left), ("modules not built", self.c_code.modules_failed)]
        return new_table(f"{self.name}: its C code", ("tiers",), ("number",), [(name, str(n)) for name, n in rows])

    def _notes(self) -> Table:
        return new_table(f"{self.name}: settings", ("place", "note"), (), self.notes)

    def _moved(self, kind: str) -> list[str]:
        if self.traffic is None:
            return []
        return [f"{self.traffic.transfers[kind]} times, {self.traffic.nbytes[kind]:,} bytes"]


def _kind(op: str) -> str:
    """Return the name of an op's class, given the op's text, such as ``OpenCLFromHost<dev0>``."""
    return re.split("[{<]", op)[0]


def explain(function: Any, *inputs: Any) -> Explanation:
    """Explain where the ops of a compiled function run, and why.

    Parameters
    ----------
    function : theano.compile.Function
        A function from ``theano.function``. The explained graph is the one that the linker executes. In mode
        ``OPENCL``, it differs from ``maker.fgraph``, which is a graph for the host.
    *inputs : objects
        If given, the function is called once with these inputs, and the bytes that it transfers are counted. The call
        also applies its updates.

    Returns
    -------
    Explanation
        Prints as tables of the lifted ops with their lifters, the ops on the host with reasons, and the transfers.
        ``picture`` draws the graph.

    Raises
    ------
    TypeError
        If `function` is not a compiled function.
    """
    refuse_pytensor("explain", function)
    graph = getattr(getattr(function, "maker", None), "fgraph", None)
    if graph is None:
        raise TypeError(f"explain takes a function that theano.function returned, not {function!r}")
    placement = getattr(function.fn, "placement", None)
    graph, reports = (graph, lift_reports(graph)) if placement is None else placement()
    traffic = None
    if inputs:
        with count_transfers() as traffic:
            function(*inputs)
    from optdb.host.api.c_code import tier

    c_code = tier(function)
    is_tiered = config.optdb.tiered or not c_code.done
    return explained(function.name or "function", graph, reports, traffic, c_code if is_tiered else None)


def explained(
    name: str,
    graph: FunctionGraph,
    reports: list[LiftReport],
    traffic: Traffic | None = None,
    c_code: Tier | None = None,
) -> Explanation:
    """Explain the placement of a graph's ops; the parameters are those of `Explanation`."""
    return Explanation(name, graph, reports, *_count(graph), traffic, c_code, _notes_on(graph))


def _notes_on(graph: FunctionGraph) -> tuple[tuple[str, str], ...]:
    found: dict[tuple[str, str], None] = {}
    for device in devices():
        names = {var.type.context_name for var in graph.variables if device.has(var)}
        for name in sorted(names, key=str):
            found.update(dict.fromkeys((_device_name(device, name), note) for note in device.notes(name)))
    return tuple(found)


def _count(graph: FunctionGraph) -> tuple[Counter[str], Counter[str]]:
    places: Counter[str] = Counter()
    transfers: Counter[str] = Counter()
    for node in graph.apply_nodes:
        if _is_transfer(node):
            transfers[str(node.op)] += 1
        else:
            places[placement_of(node)] += 1
    return places, transfers


def _is_transfer(node: Apply) -> bool:
    return any(isinstance(node.op, (d.from_host, d.to_host, d.between)) for d in devices())


def placement_of(node: Apply) -> str:
    """Return the placement of a node: the device and context of its first device variable, or ``'host'``."""
    for device in devices():
        for var in (*node.outputs, *node.inputs):
            if device.has(var):
                return _device_name(device, var.type.context_name)
    return HOST


def _device_name(device: Device, context_name: str | None) -> str:
    return device.name if context_name in (None, device.name) else f"{device.name} {context_name}"


def _draw(graph: FunctionGraph, path: Path) -> Path:
    try:
        import graphviz
    except ImportError as error:
        raise RuntimeError("drawing needs the package graphviz: pip install 'optdb[picture]'") from error

    drawing = graphviz.Digraph(node_attr={"shape": "box", "style": "filled", "fontname": "sans-serif"})
    names = {node: f"n{number}" for number, node in enumerate(graph.toposort())}
    colours: dict[str, str] = {HOST: HOST_COLOUR}
    for node, name in names.items():
        where = placement_of(node)
        colours.setdefault(where, CONTEXT_COLOURS[(len(colours) - 1) % len(CONTEXT_COLOURS)])
        colour = TRANSFER_COLOUR if _is_transfer(node) else colours[where]
        drawing.node(name, graphviz.escape(str(node.op)), fillcolor=colour, tooltip=where)
    _draw_edges(drawing, graph, names)
    for where, colour in colours.items():
        drawing.node(f"legend {where}", where, fillcolor=colour, shape="note")
    if path.suffix == ".dot":
        path.write_text(drawing.source)
        return path
    try:
        path.write_bytes(drawing.pipe(format=path.suffix.lstrip(".")))
    except graphviz.ExecutableNotFound as error:
        raise RuntimeError(
            f"drawing {path.name} needs Graphviz's program dot (apt install graphviz); a .dot file needs nothing"
        ) from error
    return path


def _draw_edges(drawing: Any, graph: FunctionGraph, names: dict[Apply, str]) -> None:
    for number, var in enumerate(graph.inputs):
        drawing.node(f"i{number}", str(var), shape="ellipse", fillcolor="white")
    inputs = {var: f"i{number}" for number, var in enumerate(graph.inputs)}
    for node, name in names.items():
        for var in node.inputs:
            source = inputs.get(var) if var.owner is None else names.get(var.owner)
            if source is not None:
                drawing.edge(source, name, label=str(var.type), fontsize="8")
    for number, var in enumerate(graph.outputs):
        drawing.node(f"o{number}", f"output {number}", shape="ellipse", fillcolor="white")
        source = inputs.get(var) if var.owner is None else names.get(var.owner)
        if source is not None:
            drawing.edge(source, f"o{number}", label=str(var.type), fontsize="8")
