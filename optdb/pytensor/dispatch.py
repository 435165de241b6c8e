"""Dispatches PyTensor's ops to the functions that describe them to the device."""

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
    """A node needs the host; the message gives the reason."""


class NodeTrace(Protocol):
    """The interface through which descriptions of nodes use a traced call."""

    tracer: FunctionTracer
    #: Maps constant indices and the length of the indexed axis to equivalent indices without negative elements. Gathers
    #: and the sums in their gradients then share one array of indices.
    indices: dict[tuple[Tensor, int], Tensor]
    #: Whether random variables that PyTensor draws by rejection are drawn on the device, which gives other values.
    draws_on_device: bool

    def value(self, var: Variable) -> Value:
        """Return the value of a variable."""

    def concrete(self, var: Variable) -> HostArray:
        """Return the value that a variable has in this call; it must be the same in later calls."""

    def numbers(self, variables: Sequence[Variable]) -> tuple[int, ...]:
        """Return the values of integer variables."""

    def inner(self, fgraph: Any, node: Apply) -> list[Value]:
        """Return the outputs of a node's inner graph, for the node's inputs."""


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
def described(op: Any, node: Apply, inputs: Sequence[Value], trace: NodeTrace) -> list[Value]:
    """Return the outputs of a node as device tensors.

    Parameters
    ----------
    op : Op
        The node's op, whose class selects the function.
    node : Apply
        The node.
    inputs : sequence
        Its inputs: tensors, and host values for variables that are not arrays.
    trace : NodeTrace
        The call that is traced.

    Raises
    ------
    OnHost
        If the node needs the host.
    ValueError, IndexError
        If the op does not accept the inputs.
    """
    raise OnHost(f"{type(op).__name__} is not supported on the device")
