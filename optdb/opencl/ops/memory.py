"""Ops that create filled arrays, empty arrays, ranges and triangular matrices.

Sizes are on the host. The inputs do not determine a context, so the ops store a context's name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optdb.codegen.creation import Count, Fill, Triangle
from optdb.codegen.operation import Operation, Outputs, output_array
from optdb.host.api import ops as host
from optdb.host.api.graph import Apply
from optdb.opencl.ops.counterpart_base import BeforeOp, Performed
from optdb.opencl.ops.shell import Shell, spec_of
from optdb.opencl.transfers import as_opencl_variable
from optdb.opencl.type import OpenCLArrayType
from optdb.runtime.sizes import as_int


class OpenCLAlloc(Shell, host.Alloc):
    """An array filled with a value that is broadcast to the array's shape; by default in the default context."""

    __props__ = ("context_name",)
    #: The operation checks the lengths of the value; the lengths in the shape are numbers on the host.
    checks_lengths = True

    def __init__(self, context_name: str | None = None) -> None:
        self.context_name = context_name

    def make_node(self, value: Any, *shape: Any) -> Apply:
        """Return a node for a value and the lengths of the axes."""
        value = as_opencl_variable(value, self.context_name)
        like = host.Alloc.make_node(self, value.type.host_type(), *shape)
        out = OpenCLArrayType(value.type.dtype, like.outputs[0].type.broadcastable, self.context_name)()
        return Apply(self, [value, *like.inputs[1:]], [out])

    def operation(self, node: Apply) -> Operation:
        return Fill(self.get_context(node), spec_of(node.inputs[0]), node.outputs[0].type.ndim)


class _Maker(BeforeOp):
    """Creates an array from host numbers, by default in the default context and with the host op's default dtype."""

    __props__ = ("dtype", "context_name")
    dtype: str

    def __init__(self, dtype: str | None = None, context_name: str | None = None) -> None:
        super().__init__(dtype)  # type: ignore[call-arg]  # the host op's class is next
        self.context_name = context_name

    def make_node(self, *numbers: Any) -> Apply:
        """Return a node for the host op's inputs."""
        like = super().make_node(*numbers)
        out = OpenCLArrayType(self.dtype, like.outputs[0].type.broadcastable, self.context_name)()
        vars(out.tag).update(vars(like.outputs[0].tag))
        return Apply(self, like.inputs, [out])


class OpenCLAllocEmpty(Performed, _Maker, host.AllocEmpty):
    """An array with undefined contents."""

    def perform(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, params: Any = None) -> None:
        context = node.outputs[0].type.context
        output_array(outputs[0], context, [as_int(length) for length in inputs], self.dtype)

    def debug_perform(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, params: Any = None) -> None:
        """Call `perform`; unlike the host op, this op does not fill the array for debugging."""
        self.perform(node, inputs, outputs)


class OpenCLARange(_Maker, Shell, host.ARange):
    """Evenly spaced numbers."""

    def operation(self, node: Apply) -> Operation:
        return Count(self.get_context(node), self.dtype)


class OpenCLTri(_Maker, Shell, host.Tri):
    """Ones at and below a diagonal."""

    def operation(self, node: Apply) -> Operation:
        return Triangle(self.get_context(node), self.dtype)
