"""Ops that contain graphs, ops that check conditions, and ops that apply a core op to each matrix of a batch."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.math import Dot

from optdb.device.expressions import cast
from optdb.device.functions.host_parts import Value
from optdb.device.tensors import Constant
from optdb.pytensor.blas import batched_product
from optdb.pytensor.dispatch import NodeTrace, OnHost, described, tensors_of


@functools.singledispatch
def batched(core_op: Any, op: Blockwise, node: Apply, inputs: Sequence[Value], trace: NodeTrace) -> list[Value] | None:
    """Return the outputs of a blockwise node, dispatched by its core op's class; None if the host computes it."""
    return None


@batched.register(Dot)
def _dot(core_op: Dot, op: Blockwise, node: Apply, inputs: Sequence[Value], trace: NodeTrace) -> list[Value] | None:
    dtype = node.outputs[0].type.dtype
    return [batched_product(*[cast(x, dtype) for x in tensors_of(inputs)])]


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
    found = batched(op.core_op, op, node, inputs, trace)
    if found is None:
        raise OnHost(f"{op.core_op} is not computed in batches on the device")
    return found
