"""Arrays in C order without gaps, for kernels and libraries that take no strides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optdb.codegen.elements import ElementKernels, copied, copying
from optdb.codegen.layout import is_contiguous
from optdb.host.api.graph import Apply, Variable
from optdb.opencl.kernels import Context, Kernel, Kernels, OpenCLKernelBase, Outputs
from optdb.opencl.ops.counterpart import on_one_device
from optdb.opencl.ops.shell import once_per_node

__all__ = ["OpenCLContiguous", "opencl_contiguous"]


class OpenCLContiguous(OpenCLKernelBase):
    """The same array if it is in C order, else a copy that is."""

    __props__ = ()
    _f16_ok = True
    #: The copy has the lengths of the array.
    checks_lengths = True
    view_map = {0: [0]}  # noqa: RUF012  (the host's protocol)

    def make_node(self, x: Any) -> Apply:
        (x,) = on_one_device([x])
        return Apply(self, [x], [x.type()])

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        return self._copying(node).kernels()

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        (x,) = inputs
        # The previous output is not reused: it may be an earlier input itself.
        outputs[0][0] = x if is_contiguous(x) else copied(x, self._copying(node), kernels, context)

    @once_per_node
    def _copying(self, node: Apply) -> ElementKernels:
        return copying(node.inputs[0].type)

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
