"""Dispatches PyTensor's ops to what describes them to the device."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Protocol

from pytensor.graph.basic import Apply, Variable
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.type import DenseTensorType

from optdb.device.functions.host_parts import Value
from optdb.device.functions.tracer import FunctionTracer
from optdb.device.tensors import Tensor
from optdb.numpy_types import HostArray


class OnHost(Exception):
    """A node is left to the host; the message says why."""


class NodeTrace(Protocol):
    """What the description of a node may ask of the call that is traced."""

    tracer: FunctionTracer
    #: Constant indices that count from zero on, by the given ones and the length of the axis: gathers and the sums of
    #: their gradients share one array.
    indices: dict[tuple[Tensor, int], Tensor]

    def value(self, var: Variable) -> Value:
        """Return the value of a variable."""

    def concrete(self, var: Variable) -> HostArray:
        """Return the value that a variable has in this call; later calls have to have the same."""

    def numbers(self, variables: Sequence[Variable]) -> tuple[int, ...]:
        """Return the values of variables that are whole numbers."""

    def inner(self, fgraph: Any, node: Apply) -> list[Value]:
        """Return the outputs of a graph within a node."""


def tensors_of(inputs: Sequence[Value]) -> list[Tensor]:
    """Return inputs that all have to be tensors; raise OnHost if one is a value of the host, as a sparse matrix."""
    tensors = [x for x in inputs if isinstance(x, Tensor)]
    if len(tensors) < len(inputs):
        raise OnHost("an input is no array")
    return tensors


def is_array(var: Variable) -> bool:
    """Tell whether a variable is an array, or a number."""
    return isinstance(var.type, DenseTensorType | ScalarType)


@functools.singledispatch
def described(op: Any, node: Apply, inputs: Sequence[Value], trace: NodeTrace) -> list[Value]:
    """Return the outputs of a node, as tensors of the device.

    Parameters
    ----------
    op : Op
        The node's op, by whose class a function is chosen.
    node : Apply
        The node.
    inputs : sequence
        Its inputs: tensors, and values of the host where a variable is no array.
    trace : NodeTrace
        The call that is traced.

    Raises
    ------
    OnHost
        If the host computes the node.
    ValueError, IndexError
        If the inputs are not what the op takes.
    """
    raise OnHost(f"{type(op).__name__} is not among the ops of the device")
