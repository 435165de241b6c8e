"""Moves partitions of a graph between the host and the device if that saves more time than it costs.

A partition is a set of connected nodes that are all on the host or all on the device, and could all be moved. Each
variable transferred at the partition's boundary costs one elementwise pass. The gain from running a partition on the
device is the sum of `Device.weight` over its ops.
"""

from __future__ import annotations

from collections.abc import Iterator

from optdb.host.api.graph import Apply, Variable, clients, is_output, reachable
from optdb.lifters.device import ContextName
from optdb.lifters.placement import NO_INPUT, PARTITION, Placement, is_constant

#: Larger partitions stay on the device, since the transfers at the boundary are a poor estimate of their cost.
MAX_PARTITION_NODES = 32


def rebalance_partitions(placement: Placement) -> None:
    """Move partitions from the device to the host, and then from the host to the device."""
    for partition in list(_partitions(placement, on_device=True)):
        if _gain(placement, partition) < _saved(placement, partition):
            for node in partition:
                placement.take_back(node, PARTITION)
    for partition in list(_partitions(placement, on_device=False)):
        _move_to_device(placement, partition)
    _forget_unused_inputs(placement)


def _move_to_device(placement: Placement, partition: list[Apply]) -> None:
    """Move a host partition to the device if the gain exceeds the cost."""
    context_name = _context_for(placement, partition)
    if _gain(placement, partition) <= _saved(placement, partition):
        return
    # `_could_move_to_device` has checked the nodes only for the default context.
    if context_name != placement.default and any(
        placement.unwilling(node, context_name) is not None for node in partition
    ):
        return
    for node in partition:
        placement.put(node, context_name)


def _context_for(placement: Placement, partition: list[Apply]) -> ContextName:
    """Return the context that all users of a partition share; the default context if there is no such context."""
    contexts = {
        placement.contexts[user] for node in partition for user in placement.users(node) if user in placement.contexts
    }
    return contexts.pop() if len(contexts) == 1 else placement.default


def _gain(placement: Placement, partition: list[Apply]) -> float:
    return sum(placement.device.weight(node.op) for node in partition)


def _saved(placement: Placement, partition: list[Apply]) -> int:
    inside = set(partition)
    incoming = {var for node in partition for var in node.inputs if var.owner not in inside and not is_constant(var)}
    outgoing = {var for node in partition for var in node.outputs}
    on_device = sum(_is_moved(placement, var) for var in incoming)
    on_device += sum(_wanted(placement, var, inside, by_device=False) for var in outgoing)
    on_host = sum(not _is_on_host(placement, var) for var in incoming)
    on_host += sum(_wanted(placement, var, inside, by_device=True) for var in outgoing)
    return on_device - on_host


def _is_on_host(placement: Placement, var: Variable) -> bool:
    return placement.on_host(var) or (var.owner is None and not placement.device.has(var))


def _is_moved(placement: Placement, var: Variable) -> bool:
    return _is_on_host(placement, var) and placement.device.moves(var)


def _wanted(placement: Placement, var: Variable, inside: set[Apply], by_device: bool) -> bool:
    users = [(user, i) for user, i in clients(placement.fgraph, var) if user not in inside]
    return any(_wants_on_device(placement, user, i) == by_device for user, i in users)


def _wants_on_device(placement: Placement, user: Apply | str, i: int) -> bool:
    return not is_output(user) and _runs_on_device(placement, user) and not placement.device.is_host_input(user.op, i)


def _runs_on_device(placement: Placement, node: Apply) -> bool:
    return node in placement.contexts or isinstance(node.op, placement.device.from_host)


def _partitions(placement: Placement, on_device: bool) -> Iterator[list[Apply]]:
    """Yield the host's partitions, or the device's partitions of at most `MAX_PARTITION_NODES` nodes."""
    members = (
        set(placement.contexts)
        if on_device
        else {node for node in placement.nodes if _could_move_to_device(placement, node)}
    )
    seen: set[Apply] = set()
    for node in placement.nodes:
        if node not in members or node in seen:
            continue
        partition = _connected(placement, node, members)
        seen.update(partition)
        if len(partition) <= MAX_PARTITION_NODES or not on_device:
            yield partition


def _could_move_to_device(placement: Placement, node: Apply) -> bool:
    if placement.default is None or placement.reasons.get(node) != NO_INPUT:
        return False
    return all(map(placement.device.moves, node.outputs)) and placement.unwilling(node, placement.default) is None


def _connected(placement: Placement, start: Apply, members: set[Apply]) -> list[Apply]:
    def neighbours(node: Apply) -> list[Apply]:
        near = [*(var.owner for var in node.inputs), *placement.users(node)]
        return [other for other in near if isinstance(other, Apply) and other in members]

    return list(reachable([start], neighbours))


def _forget_unused_inputs(placement: Placement) -> None:
    for var in list(placement.moved):
        users = [user for user, _ in clients(placement.fgraph, var)]
        if not any(not is_output(user) and user in placement.contexts for user in users):
            del placement.moved[var]
