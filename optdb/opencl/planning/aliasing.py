"""Which variables of a function may share memory on the host, and whose memory is not the plan's alone.

A plan keeps what a node has left on the host from one call to the next, and then skips the node. That is right only
while nobody else can write there or take it away. So there is one rule: **a plan owns a value of the host only if no
variable of its alias class is seen outside of the nodes that read it**. An alias class is exposed if one of its
variables

- is an input of the function, whose memory is the caller's or a shared variable's;
- is an output or the next value of an input, which the caller gets, and whose cell is emptied before each call;
- is overwritten by a node that works in place.

A node that gives a value of an exposed class computes at each call (``roles``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from optdb.host.destroy import destroyed_slots, viewed_slots
from optdb.host.graph import Apply, Variable, reachable

__all__ = ["exposed_variables"]


def exposed_variables(
    nodes: Sequence[Apply],
    inputs: Iterable[Variable],
    outputs: Iterable[Variable],
    overwrites: Callable[[Apply], object] = destroyed_slots,
) -> set[Variable]:
    """Find the variables whose memory others than the function's nodes see, or that a node overwrites.

    Parameters
    ----------
    nodes : sequence of Apply
        Of the function.
    inputs, outputs : iterable of Variable
        Of the function; next values are among the outputs.
    overwrites : callable
        Whether a node works in place as it is computed; by default, whether the graph lets it.
    """
    exposed = {*inputs, *outputs}
    aliases: dict[Variable, list[Variable]] = defaultdict(list)
    for node in nodes:
        pairs = viewed_slots(node)
        if overwrites(node):
            exposed.update(node.inputs[slot] for slot in destroyed_slots(node))
            pairs += [(node.outputs[out], slot) for out, slots in node.op.destroy_map.items() for slot in slots]
        for out, slot in pairs:
            aliases[out].append(node.inputs[slot])
            aliases[node.inputs[slot]].append(out)
    return set(reachable(exposed, lambda var: aliases.get(var, ())))
