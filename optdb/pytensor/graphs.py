"""Ops that contain graphs, and ops that check conditions."""

from __future__ import annotations

from collections.abc import Sequence

from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.blockwise import Blockwise

from optdb.device.functions.host_parts import Value
from optdb.device.tensors import Constant
from optdb.pytensor.dispatch import NodeTrace, OnHost, described, tensors_of


@described.register(OpFromGraph)
def _inner_graph(op: OpFromGraph, node: Apply, inputs: Sequence[Value], trace: NodeTrace) -> list[Value]:
    return trace.inner(op.fgraph, node)


@described.register(CheckAndRaise)
def _check(op: CheckAndRaise, node: Apply, inputs: Sequence[Value], trace: NodeTrace) -> list[Value]:
    x, *conditions = inputs
    for condition in tensors_of(conditions):
        if not isinstance(condition, Constant):
            trace.tracer.check(condition, lambda: op.exc_type(op.msg))
        elif not condition.value.all():
            raise op.exc_type(op.msg)
    return [x]


@described.register(Blockwise)
def _blockwise(op: Blockwise, node: Apply, inputs: Sequence[Value], trace: NodeTrace) -> list[Value]:
    from optdb.pytensor.batched import batched

    found = batched(op.core_op, op, node, inputs, trace)
    if found is None:
        raise OnHost(f"{op.core_op} is not computed in batches on the device")
    return found
