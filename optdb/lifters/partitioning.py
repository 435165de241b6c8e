"""Rebalancing of partitions: small ones move to the other side if that saves more transfers than it costs.

A partition is a set of connected nodes on one side that could all run on the other: device nodes surrounded by host
nodes, or host nodes that a lifter accepts. Its cost on either side is the number of variables transferred at its
boundary. The device's gain is the sum of `Device.weight` over its ops, in passes over an array; one transfer costs one
pass.
"""

from __future__ import annotations

from collections.abc import Iterator

from optdb.host.api.graph import Apply, Variable, clients, is_output, reachable
from optdb.lifters.device import ContextName
from optdb.lifters.placement import NO_INPUT, PARTITION, PlacementPlan, is_constant

#: Larger partitions stay on the device: the transfers at their boundary are a poor measure of their cost.
MAX_PARTITION_NODES = 32


def rebalance_partitions(plan: PlacementPlan) -> None:
    """Move partitions of `plan` to the other side, first those on the device, then those on the host."""
    for partition in list(_partitions(plan, on_device=True)):
        if _gain(plan, partition) < _saved(plan, partition):
            for node in partition:
                plan.take_back(node, PARTITION)
    for partition in list(_partitions(plan, on_device=False)):
        _move_to_device(plan, partition)
    _forget_unused_inputs(plan)


def _move_to_device(plan: PlacementPlan, partition: list[Apply]) -> None:
    """Move a partition of the host to the device, if the gain exceeds the cost of its transfers."""
    context_name = _context_for(plan, partition)
    if _gain(plan, partition) <= _saved(plan, partition):
        return
    # `_could_move_to_device` has checked the nodes for the default context.
    if context_name != plan.default and any(plan.unwilling(node, context_name) is not None for node in partition):
        return
    for node in partition:
        plan.put(node, context_name)


def _context_for(plan: PlacementPlan, partition: list[Apply]) -> ContextName:
    """Return the context of the users of a partition; the default one if they have none or several."""
    contexts = {plan.contexts[user] for node in partition for user in plan.users(node) if user in plan.contexts}
    return contexts.pop() if len(contexts) == 1 else plan.default


def _gain(plan: PlacementPlan, partition: list[Apply]) -> float:
    return sum(plan.device.weight(node.op) for node in partition)


def _saved(plan: PlacementPlan, partition: list[Apply]) -> int:
    """Return the number of transfers saved by placing the partition on the host instead of on the device."""
    inside = set(partition)
    incoming = {var for node in partition for var in node.inputs if var.owner not in inside and not is_constant(var)}
    outgoing = {var for node in partition for var in node.outputs}
    on_device = sum(_is_moved(plan, var) for var in incoming)
    on_device += sum(_wanted(plan, var, inside, by_device=False) for var in outgoing)
    on_host = sum(not _is_on_host(plan, var) for var in incoming)
    on_host += sum(_wanted(plan, var, inside, by_device=True) for var in outgoing)
    return on_device - on_host


def _is_on_host(plan: PlacementPlan, var: Variable) -> bool:
    """Return whether a variable comes from the host, transferred or not."""
    return plan.on_host(var) or (var.owner is None and not plan.device.has(var))


def _is_moved(plan: PlacementPlan, var: Variable) -> bool:
    """Return whether a variable is transferred from the host to the device."""
    return _is_on_host(plan, var) and plan.device.moves(var)


def _wanted(plan: PlacementPlan, var: Variable, inside: set[Apply], by_device: bool) -> bool:
    users = [(user, i) for user, i in clients(plan.fgraph, var) if user not in inside]
    return any(_wants_on_device(plan, user, i) == by_device for user, i in users)


def _wants_on_device(plan: PlacementPlan, user: Apply | str, i: int) -> bool:
    """Return whether a user takes its input `i` on the device."""
    return not is_output(user) and _runs_on_device(plan, user) and not plan.device.is_host_input(user.op, i)


def _runs_on_device(plan: PlacementPlan, node: Apply) -> bool:
    return node in plan.contexts or isinstance(node.op, plan.device.from_host)


def _partitions(plan: PlacementPlan, on_device: bool) -> Iterator[list[Apply]]:
    """Yield the small sets of connected nodes on one side that could run on the other."""
    members = set(plan.contexts) if on_device else {node for node in plan.nodes if _could_move_to_device(plan, node)}
    seen: set[Apply] = set()
    for node in plan.nodes:
        if node not in members or node in seen:
            continue
        partition = _connected(plan, node, members)
        seen.update(partition)
        if len(partition) <= MAX_PARTITION_NODES or not on_device:
            yield partition


def _could_move_to_device(plan: PlacementPlan, node: Apply) -> bool:
    if plan.default is None or plan.reasons.get(node) != NO_INPUT:
        return False
    return all(map(plan.device.moves, node.outputs)) and plan.unwilling(node, plan.default) is None


def _connected(plan: PlacementPlan, start: Apply, members: set[Apply]) -> list[Apply]:
    def neighbours(node: Apply) -> list[Apply]:
        near = [*(var.owner for var in node.inputs), *plan.users(node)]
        return [other for other in near if isinstance(other, Apply) and other in members]

    return list(reachable([start], neighbours))


def _forget_unused_inputs(plan: PlacementPlan) -> None:
    """Do not move inputs that no device node uses any more."""
    for var in list(plan.moved):
        users = [user for user, _ in clients(plan.fgraph, var)]
        if not any(not is_output(user) and user in plan.contexts for user in users):
            del plan.moved[var]
