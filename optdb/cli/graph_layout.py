"""Lays out the nodes of a graph in layers, for drawings: a node is drawn below the nodes that compute its inputs."""

from __future__ import annotations

from collections.abc import Sequence

#: The number of sweeps, alternately down and up, that improve the order within layers.
SWEEPS = 4


def lay_out(inputs: Sequence[Sequence[int]]) -> list[tuple[float, int]]:
    """Return for each node its position in its layer, counted from the middle, and its layer.

    The nodes of a layer are ordered by the mean position of their inputs, then of their users, alternately; this keeps
    edges short (the barycentre heuristic).

    Parameters
    ----------
    inputs : sequence of sequence of int
        For each node, the earlier nodes that it uses.
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
    for sweep in range(SWEEPS):
        downwards = sweep % 2 == 0
        neighbours = inputs if downwards else users
        for row in rows if downwards else rows[::-1]:
            row.sort(key=lambda node: _mean(neighbours[node], positions, positions[node]))
            positions.update(_centred([row]))
    return [(positions[node], layers[node]) for node in range(len(inputs))]


def _layers(inputs: Sequence[Sequence[int]]) -> list[int]:
    """Return each node's layer, which is one below the lowest layer of its inputs."""
    depth: list[int] = []
    for used in inputs:
        depth.append(1 + max((depth[number] for number in used), default=-1))
    first_user = [len(inputs)] * len(inputs)
    for node, used in enumerate(inputs):
        for number in used:
            first_user[number] = min(first_user[number], depth[node])
    # An input of the graph is drawn right above its first user: edges from the top to all layers would be unreadable.
    return [depth[n] if used or first_user[n] == len(inputs) else first_user[n] - 1 for n, used in enumerate(inputs)]


def _centred(rows: Sequence[Sequence[int]]) -> dict[int, float]:
    return {node: number - (len(row) - 1) / 2 for row in rows for number, node in enumerate(row)}


def _mean(neighbours: Sequence[int], positions: dict[int, float], default: float) -> float:
    return sum(positions[node] for node in neighbours) / len(neighbours) if neighbours else default
