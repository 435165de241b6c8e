"""Ops on each of the matrices that arrays hold along their leading axes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from pytensor.graph.basic import Apply
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.math import Dot

from optdb.device.functions.host_parts import Value
from optdb.device.tensors import cast
from optdb.pytensor.blas import batched_product
from optdb.pytensor.dispatch import NodeTrace, tensors_of


@functools.singledispatch
def batched(core_op: Any, op: Blockwise, node: Apply, inputs: Sequence[Value], trace: NodeTrace) -> list[Value] | None:
    """Return the outputs of a blockwise node, dispatched by its core op's class; None if the host computes it."""
    return None


@batched.register(Dot)
def _dot(core_op: Dot, op: Blockwise, node: Apply, inputs: Sequence[Value], trace: NodeTrace) -> list[Value] | None:
    dtype = node.outputs[0].type.dtype
    return [batched_product(*[cast(x, dtype) for x in tensors_of(inputs)])]
