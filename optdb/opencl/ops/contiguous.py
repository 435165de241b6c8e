"""Conversion to C-contiguous arrays, for kernels and libraries that do not support strides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optdb.codegen.creation import InOrder
from optdb.host.api.graph import Apply, Variable
from optdb.opencl.ops.counterpart_base import on_one_device
from optdb.opencl.ops.shell import Shell


class OpenCLContiguous(Shell):
    """The array itself if it is C-contiguous after its first `leading` axes, else a contiguous copy."""

    __props__ = ("leading",)
    view_map = {0: [0]}  # noqa: RUF012  (the host's protocol)
    computed_by = InOrder
    settings = ("leading",)

    def __init__(self, leading: int = 0) -> None:
        self.leading = leading

    def make_node(self, x: Any) -> Apply:
        (x,) = on_one_device([x])
        return Apply(self, [x], [x.type()])

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> Sequence[Any]:
        return shapes

    def grad(self, inputs: Sequence[Variable], output_grads: Sequence[Variable]) -> Sequence[Variable]:
        return output_grads

    def R_op(self, inputs: Sequence[Variable], eval_points: Sequence[Variable | None]) -> list[Any]:  # noqa: N802
        (point,) = eval_points
        return [None if point is None else self(point)]


_contiguous = OpenCLContiguous()


def opencl_contiguous(x: Variable) -> Variable:
    """Return a C-contiguous device variable, which is `x` itself if `x` is known to be contiguous."""
    if x.owner is not None and x.owner.op == _contiguous:
        return x
    return _contiguous(x)


def opencl_sequence(x: Variable) -> Variable:
    """Return a device sequence whose parts are C-contiguous; a sequence of single numbers is itself contiguous."""
    if x.type.ndim < 2 or (x.owner is not None and isinstance(x.owner.op, OpenCLContiguous)):
        return opencl_contiguous(x)
    return OpenCLContiguous(leading=1)(x)
