"""Writes what `observe` recorded about a script's functions to a self-contained HTML file.

The file is a template (``report.html``) with the data filled in as JSON.
"""

from __future__ import annotations

import importlib.resources
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import optdb
from optdb.host.theano.functions.call_memory import CallMemory
from optdb.host.theano.functions.observing import GraphSnapshot, NodeSnapshot, ObservedFunction, snapshot
from optdb.lifters.explain import HOST, explain, placement_of
from optdb.lifters.report import LiftReport
from optdb.topo.result import TopoResult

__all__ = ["document_of", "write_html"]

#: The placeholder for the data in the template.
DATA = "/*DATA*/null"
#: Graphs with more nodes than this are not drawn, because browsers would be slow. The tables still count all nodes.
MAX_DRAWN_NODES = 3000
#: The maximum length of an op's name in its box, in characters.
MAX_LABEL_CHARS = 26
#: The number of nodes in the table of times, which lists the slowest nodes first.
MAX_TIMED_NODES = 40
#: The maximum number of bars in the memory chart.
MAX_MEMORY_BARS = 600
#: The number of sweeps, alternately down and up, that order the nodes within layers.
LAYOUT_SWEEPS = 4


def write_html(functions: Sequence[ObservedFunction], path: Path, title: str) -> None:
    """Write a page about functions, in the order in which they were compiled."""
    template = importlib.resources.files("optdb.cli").joinpath("report.html").read_text(encoding="utf-8")
    data = json.dumps(document_of(functions, title), separators=(",", ":"))
    # Escape the data, so that it cannot close the script element.
    data = data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(template.replace(DATA, data), encoding="utf-8")


def document_of(functions: Sequence[ObservedFunction], title: str) -> dict[str, Any]:
    """Return the page's data as a JSON-serializable document."""
    compiled = [seen for seen in functions if seen.function is not None]
    return {
        "title": title,
        "version": optdb.__version__,
        "failed": len(functions) - len(compiled),
        "functions": [_function(seen) for seen in compiled],
    }


def _function(seen: ObservedFunction) -> dict[str, Any]:
    profile = seen.profile
    # The executed graph, which may differ from Theano's graph.
    explanation = explain(seen.function)
    after = snapshot(explanation.graph.outputs)
    return {
        "name": seen.name,
        "before": _graph(seen.before, {}),
        "after": _graph(after, seen.node_times()),
        "rewriters": _rewriters(seen.around or []),
        "stopped": [f"{run.name}: {run.reason}" for run in seen.around or [] if not run.converged],
        "places": Counter(placement_of(node.node) for node in after.nodes if node.node is not None),
        "lifted": [_lift(report) for report in explanation.reports],
        "compile": _compile_times(seen),
        "calls": profile.fct_callcount,
        "call_seconds": profile.fct_call_time,
        "first_call_seconds": seen.first_call_seconds,
        "memory": _memory(seen.call_memory()),
        "nodes": _node_times(seen, after),
    }


def _graph(graph: GraphSnapshot, times: dict[Any, tuple[float, int]]) -> dict[str, Any]:
    """Return a graph's nodes with their positions in the drawing; if there are too many nodes, return only counts."""
    count = {"count": graph.node_count, "ops": _ops(graph.nodes)}
    if len(graph.nodes) > MAX_DRAWN_NODES:
        return {**count, "nodes": None, "most": MAX_DRAWN_NODES}
    positions = _lay_out([node.inputs for node in graph.nodes])
    outputs = set(graph.outputs)
    return {
        **count,
        "nodes": [
            {
                "label": _short(node.op),
                "op": node.op,
                "types": node.types,
                "inputs": node.inputs,
                "line": node.line,
                "kind": "input" if node.node is None else placement_of(node.node),
                "output": number in outputs,
                "seconds": times.get(node.node, (None, 0))[0],
                "x": x,
                "y": y,
            }
            for number, (node, (x, y)) in enumerate(zip(graph.nodes, positions, strict=True))
        ],
    }


def _ops(nodes: Iterable[NodeSnapshot]) -> list[tuple[str, int]]:
    """Return the number of nodes for each op, the most frequent op first."""
    return Counter(node.op for node in nodes if not node.is_input).most_common()


def _short(op: str) -> str:
    return op if len(op) <= MAX_LABEL_CHARS else f"{op[: MAX_LABEL_CHARS - 1]}…"


def _rewriters(runs: Sequence[TopoResult]) -> list[dict[str, Any]]:
    """Return each rewriter's statistics in each of the engine's phases, ordered by the number of applications."""
    rows: dict[tuple[str, str], list[float]] = {}
    for run in runs:
        for rule in run.rules:
            sums = rows.setdefault((run.name or "", rule.name), [0, 0, 0, 0.0])
            for number, value in enumerate((rule.applications, rule.attempts, rule.nodes_made, rule.seconds)):
                sums[number] += value
    return [
        {"phase": phase, "rule": rule, "applied": sums[0], "tried": sums[1], "made": sums[2], "seconds": sums[3]}
        for (phase, rule), sums in sorted(rows.items(), key=lambda row: (-row[1][0], -row[1][3]))
        if sums[1]
    ]


def _lift(report: LiftReport) -> dict[str, Any]:
    return {
        "device": report.device,
        "lifted": [[op, lifter, count] for (op, lifter), count in report.by_lifter().most_common()],
        "stayed": [[op, reason, count] for (op, reason), count in report.by_reason().most_common()],
    }


def _compile_times(seen: ObservedFunction) -> list[tuple[str, float]]:
    """Return the seconds that each part of the compilation took, the longest first."""
    phases = seen.phases()
    rest = seen.profile.optimizer_time - sum(seconds for _, seconds in phases)
    optimizing = [(f"optimizer: {name}", seconds) for name, seconds in phases]
    parts = [*optimizing, ("optimizer: between the phases", rest), *seen.link_times()]
    return sorted(((name, seconds) for name, seconds in parts if seconds > 0), key=lambda part: -part[1])


def _memory(memory: CallMemory | None) -> dict[str, Any] | None:
    """Return how many bytes are live at each node, and the byte totals of one call."""
    if memory is None:
        return None
    steps = [(str(node.op)[:200], nbytes) for node, nbytes in memory.steps]
    # If there are too many nodes, neighbouring nodes share a bar, which shows their maximum.
    group = -(-len(steps) // MAX_MEMORY_BARS) or 1
    bars = [max(enumerate(steps[i : i + group], i), key=lambda item: item[1][1]) for i in range(0, len(steps), group)]
    return {
        "nodes": len(steps),
        "peak": memory.peak,
        "bars": [[number, op, nbytes] for number, (op, nbytes) in bars],
        "sums": [
            ["peak live values", memory.peak],
            *([] if memory.buffers is None else [["buffers assigned to values", memory.buffers]]),
            ["values, with a buffer for each", memory.separately],
            ["arguments", memory.arguments],
            ["shared variables", memory.shared],
            ["constants", memory.constants],
        ],
        "unknown": memory.unknown,
    }


def _node_times(seen: ObservedFunction, after: GraphSnapshot) -> list[dict[str, Any]]:
    """Return the slowest nodes, with their shares of the total time."""
    times = seen.node_times()
    total = sum(seconds for seconds, _ in times.values()) or 1.0
    lines = {node.node: node.line for node in after.nodes}
    longest = sorted(times.items(), key=lambda item: -item[1][0])[:MAX_TIMED_NODES]
    return [
        {
            "op": str(node.op)[:200],
            "where": placement_of(node) if node in lines else HOST,
            "line": lines.get(node, ""),
            "calls": calls,
            "seconds": seconds,
            "share": seconds / total,
        }
        for node, (seconds, calls) in longest
    ]


def _lay_out(inputs: Sequence[Sequence[int]]) -> list[tuple[float, int]]:
    """Return a pair for each node: its position in its layer, counted from the middle, and the layer's number.

    To keep edges short, each sweep down orders a layer's nodes by the mean position of their inputs, and each sweep up
    by the mean position of their users (the barycentre heuristic). `inputs` lists, for each node, the earlier nodes
    that it uses.
    """
    layers = _layers(inputs)
    rows: list[list[int]] = [[] for _ in range(max(layers, default=-1) + 1)]
    for node, layer in enumerate(layers):
        rows[layer].append(node)
    users: list[list[int]] = [[] for _ in inputs]
    for node, used in enumerate(inputs):
        for number in used:
            users[number].append(node)
    positions = _centred(rows)
    for sweep in range(LAYOUT_SWEEPS):
        downwards = sweep % 2 == 0
        neighbours = inputs if downwards else users
        for row in rows if downwards else rows[::-1]:
            row.sort(key=lambda node: _mean(neighbours[node], positions, positions[node]))
            positions.update(_centred([row]))
    return [(positions[node], layers[node]) for node in range(len(inputs))]


def _layers(inputs: Sequence[Sequence[int]]) -> list[int]:
    """Return each node's layer, which is directly below the lowest layer of its inputs."""
    depth: list[int] = []
    for used in inputs:
        depth.append(1 + max((depth[number] for number in used), default=-1))
    first_user = [len(inputs)] * len(inputs)
    for node, used in enumerate(inputs):
        for number in used:
            first_user[number] = min(first_user[number], depth[node])
    # A graph input is drawn right above its first user, because edges from the top to all layers would be unreadable.
    return [depth[n] if used or first_user[n] == len(inputs) else first_user[n] - 1 for n, used in enumerate(inputs)]


def _centred(rows: Sequence[Sequence[int]]) -> dict[int, float]:
    return {node: number - (len(row) - 1) / 2 for row in rows for number, node in enumerate(row)}


def _mean(neighbours: Sequence[int], positions: dict[int, float], default: float) -> float:
    return sum(positions[node] for node in neighbours) / len(neighbours) if neighbours else default
