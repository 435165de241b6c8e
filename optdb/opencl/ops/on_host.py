"""Ops that the host computes within a device graph, such as linear algebra with LAPACK.

Inputs and outputs are on the device, so that the surrounding graph stays on the device. If the device shares the host's
memory, as a CPU does, the op maps its inputs without copying them; otherwise it copies them. Results are copied to the
device. These copies are counted as transfers.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from optdb.host.api.graph import Apply, Op, PureOp, Variable
from optdb.host.api.ops import LINEAR_ALGEBRA, ShapeError
from optdb.host.api.variables import Type, as_tensor_variable, is_host_array
from optdb.lifters.transfers import record_transfer
from optdb.opencl.contexts import infer_context_name
from optdb.opencl.lifting import Inputs, lifts
from optdb.opencl.ops.shell import once_per_node
from optdb.opencl.transfers import as_opencl_variable
from optdb.opencl.type import OpenCLArrayType
from optdb.runtime.arrays import from_host, seen_by_host, to_host


class OpenCLOnHost(Op):
    """A host op applied to device arrays; it runs ``perform`` and does not overwrite its inputs.

    `output_types` are the types of the host op's outputs. Integer outputs, such as ranks, stay on the host.
    """

    __props__ = ("op", "output_types")
    #: As `OpenCLKernelBase.repeatable`.
    repeatable = False
    _f16_ok = True

    def __init__(self, op: PureOp, output_types: Sequence[Type]) -> None:
        if getattr(op, "destroy_map", None):
            raise TypeError(f"{op} overwrites its inputs, which are on the device")
        self.op = op
        self.output_types = tuple(output_types)

    def __str__(self) -> str:
        return f"OpenCLOnHost{{{self.op}}}"

    def make_node(self, *inputs: Any) -> Apply:
        """Return a node for inputs of which at least one is on the device; inputs on the host stay there."""
        taken = [x if isinstance(x, Variable) else as_tensor_variable(x) for x in inputs]
        device_inputs = [x for x in taken if isinstance(x.type, OpenCLArrayType)]
        if not device_inputs:
            raise TypeError(f"{self} takes device arrays; for host arrays, use {self.op} itself")
        context_name = infer_context_name(*device_inputs)
        outputs = [
            kind() if _stays(kind) else OpenCLArrayType(kind.dtype, kind.broadcastable, context_name)()
            for kind in self.output_types
        ]
        return Apply(self, taken, outputs)

    def perform(self, node: Apply, inputs: Sequence[Any], outputs: Sequence[list[Any]], params: Any = None) -> None:
        results: list[list[Any]] = [[None] for _ in outputs]
        with ExitStack() as mapped:
            values = [self._value(mapped, var, x) for var, x in zip(node.inputs, inputs, strict=True)]
            self.op.perform(self._on_host(node), values, results)
            # Keep the inputs mapped until here, since a result may be a view of an input.
            for storage, (result,), var in zip(outputs, results, node.outputs, strict=True):
                storage[0] = self._result(var, result, storage[0])

    def _value(self, mapped: ExitStack, var: Variable, x: Any) -> Any:
        """Return an input's value on the host."""
        if not isinstance(var.type, OpenCLArrayType):
            return x
        if var.type.context.profile.shares_host_memory:
            return mapped.enter_context(seen_by_host(x))
        record_transfer(self, x.nbytes)
        return to_host(x)

    def _result(self, var: Variable, result: Any, before: Any) -> Any:
        """Return an output on the device or on the host, as its type requires."""
        value = np.asarray(result, var.type.dtype)
        if not isinstance(var.type, OpenCLArrayType):
            return value.copy()
        record_transfer(self, value.nbytes)
        return from_host(var.type.context, value, before)

    @once_per_node
    def _on_host(self, node: Apply) -> Apply:
        """Return the node that the host op expects."""
        return Apply(self.op, [_host_type(x.type)() for x in node.inputs], [kind() for kind in self.output_types])

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> Sequence[Any]:
        if not hasattr(self.op, "infer_shape"):
            raise ShapeError(f"{self.op} does not define the shapes of its outputs")
        return self.op.infer_shape(node, shapes)

    def L_op(  # noqa: N802 (the host's name)
        self, inputs: Sequence[Variable], outputs: Sequence[Variable], output_grads: Sequence[Variable]
    ) -> Any:
        """Return the host op's gradients."""
        return self.op.L_op(*[list(map(_as_on_host, group)) for group in (inputs, outputs, output_grads)])

    def R_op(self, inputs: Sequence[Variable], eval_points: Sequence[Variable | None]) -> Any:  # noqa: N802
        points = [None if point is None else _as_on_host(point) for point in eval_points]
        return self.op.R_op(list(map(_as_on_host, inputs)), points)


def _stays(kind: Any) -> bool:
    return np.dtype(kind.dtype).kind not in "fc"


def _host_type(kind: Any) -> Any:
    return kind.host_type if isinstance(kind, OpenCLArrayType) else kind


def _as_on_host(x: Variable) -> Variable:
    return as_tensor_variable(x) if isinstance(x.type, OpenCLArrayType) else x


def _arrays_alone(op: PureOp, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    if all(is_host_array(x) or isinstance(x.type, OpenCLArrayType) for x in (*inputs, *outputs)):
        return None
    return "only arrays can be read by the host in place"


@lifts(list(LINEAR_ALGEBRA), 98, _arrays_alone)
def lift_linear_algebra(op: PureOp, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift an op that the host computes in a device graph; scalars and integer arrays stay on the host."""
    taken = [as_opencl_variable(x, context_name) if _moves(x) else x for x in inputs]
    lifted = OpenCLOnHost(op, [out.type for out in outputs])
    return lifted(*taken, return_list=True)


def _moves(x: Variable) -> bool:
    return isinstance(x.type, OpenCLArrayType) or (x.type.ndim > 0 and x.type.dtype.startswith(("float", "complex")))
