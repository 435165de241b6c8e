"""Arrays in C order without gaps, for kernels and libraries that know no strides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optdb.host.graph import Apply, Op, Variable
from optdb.opencl.contexts import infer_context_name
from optdb.opencl.transfers import as_opencl_variable
from optdb.runtime.arrays import copy

__all__ = ["OpenCLContiguous", "opencl_contiguous"]


class OpenCLContiguous(Op):
    """The same array if it is in C order, else a copy that is."""

    __props__ = ()
    _f16_ok = True
    view_map = {0: [0]}  # noqa: RUF012  (the host's protocol)

    def make_node(self, x: Any) -> Apply:
        x = as_opencl_variable(x, infer_context_name(*([x] if isinstance(x, Variable) else [])))
        return Apply(self, [x], [x.type()])

    def perform(self, node: Apply, inputs: Sequence[Any], outputs: Sequence[list[Any]], params: Any = None) -> None:
        (x,) = inputs
        outputs[0][0] = x if x.flags.c_contiguous else copy(x)

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> Sequence[Any]:
        return shapes

    def grad(self, inputs: Sequence[Variable], output_grads: Sequence[Variable]) -> Sequence[Variable]:
        return output_grads

    def R_op(self, inputs: Sequence[Variable], eval_points: Sequence[Variable | None]) -> list[Any]:  # noqa: N802
        (point,) = eval_points
        return [None if point is None else self(point)]


_contiguous = OpenCLContiguous()


def opencl_contiguous(x: Variable) -> Variable:
    """Return a variable of the device that is in C order: `x` itself if it is known to be."""
    if x.owner is not None and isinstance(x.owner.op, OpenCLContiguous):
        return x
    return _contiguous(x)
