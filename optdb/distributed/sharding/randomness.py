"""The rules of random numbers: each worker draws the numbers for the whole batch, and takes its rows.

So each example gets the same number as on one device, and the states of generators stay equal on all workers.
"""

from __future__ import annotations

from optdb.distributed.errors import NotSplittable
from optdb.distributed.sharding.layouts import Length, Replicated, Sharded, Value, Vector
from optdb.distributed.sharding.spreading import Spreader, remade, rule
from optdb.host.api.graph import Apply
from optdb.host.api.ops import RandomFunction, mrg_uniform_base


@rule(mrg_uniform_base)
def draw_uniform(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Draw for the whole batch; inputs are the generator's state and the shape."""
    return _draw(spreader, node, inputs, inputs[1])


@rule(RandomFunction)
def draw(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Draw for the whole batch; inputs are the generator's state, the shape, and parameters."""
    if any(isinstance(value, Sharded) for value in inputs):
        raise NotSplittable(node, "the distribution's parameters depend on the example")
    return _draw(spreader, node, inputs, inputs[1])


def _draw(spreader: Spreader, node: Apply, inputs: list[Value], shape: Value) -> list[Value]:
    outputs = remade(node, spreader.wholes(inputs, node))
    if not isinstance(shape, Vector):
        return list(map(Replicated, outputs))
    lengths = [(i, entry) for i, entry in enumerate(shape.entries) if isinstance(entry, Length)]
    if len(lengths) != 1 or not lengths[0][1].unit:
        return list(map(Replicated, outputs))
    state, drawn = outputs
    axis, _ = lengths[0]
    layout = Sharded(drawn, axis)
    return [Replicated(state), Sharded(spreader.own_rows(drawn, layout, node), axis)]
