"""Dispatches PyTensor's ops to the functions that trace them for the device."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.type import DenseTensorType

from optdb.device.functions.host_parts import Value
from optdb.device.tensors import Constant, Lengths, Tensor


class OnHost(Exception):
    """Raised if a node needs the host; the message gives the reason."""


def tensors_of(inputs: Sequence[Value]) -> list[Tensor]:
    """Return the inputs if all are tensors; raise OnHost if one is a host value such as a sparse matrix."""
    tensors = [x for x in inputs if isinstance(x, Tensor)]
    if len(tensors) < len(inputs):
        raise OnHost("an input is not an array")
    return tensors


def is_array(var: Variable) -> bool:
    """Return whether a variable is an array or a number."""
    return isinstance(var.type, DenseTensorType | ScalarType)


@functools.singledispatch
def described(op: Any, node: Apply, inputs: Sequence[Value], trace: Any) -> list[Value]:
    """Trace a node: return its outputs as device tensors.

    The inputs are tensors, or host values for variables that are not arrays; `trace` is a `GraphTrace`.

    Raises
    ------
    OnHost
        If the node needs the host.
    ValueError, IndexError
        If the op does not accept the inputs.
    """
    raise OnHost(f"{type(op).__name__} is not supported on the device")


@functools.singledispatch
def of_lengths(op: Any, node: Apply, inputs: Sequence[Constant | Lengths], may_guard: bool) -> Tensor | None:
    """Return the only output of a node whose inputs are constants or `Lengths`; None if the device must compute it.

    Raise `NotFollowed` if no rule reproduces the output in each call of an exported function. With `may_guard`, the
    output may be right only for calls in which a test has the same result as in the example.
    """
    return None


@functools.singledispatch
def batched(core_op: Any, node: Apply, inputs: Sequence[Value], trace: Any) -> list[Value]:
    """Trace a blockwise node; this dispatches on the class of its core op."""
    raise OnHost(f"{core_op} is not computed in batches on the device")


@described.register(Blockwise)
def _blockwise(op: Blockwise, node: Apply, inputs: Sequence[Value], trace: Any) -> list[Value]:
    return batched(op.core_op, node, inputs, trace)
