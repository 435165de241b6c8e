"""The inputs that a node overwrites, and the inputs that its outputs are views of."""

from __future__ import annotations

from optdb.host.api.graph import Apply, Variable


def destroyed_slots(node: Apply) -> list[int]:
    """Return the indices of the inputs that `node` overwrites.

    Raises
    ------
    NotImplementedError
        If an output overwrites several inputs.
    """
    destroy_map = getattr(node.op, "destroy_map", None)
    if not destroy_map:
        return []
    if any(len(slots) != 1 for slots in destroy_map.values()):
        raise NotImplementedError("an output that destroys several inputs", node.op)
    return [slots[0] for slots in destroy_map.values()]


def viewed_slots(node: Apply) -> list[tuple[Variable, int]]:
    """Return each output that is a view, with the index of the viewed input.

    Raises
    ------
    NotImplementedError
        If an output is a view of several inputs.
    """
    view_map = getattr(node.op, "view_map", None)
    if not view_map:
        return []
    if any(len(slots) > 1 for slots in view_map.values()):
        raise NotImplementedError("destroying this output invalidates multiple inputs", node.op)
    return [(node.outputs[out], slots[0]) for out, slots in view_map.items() if slots]
