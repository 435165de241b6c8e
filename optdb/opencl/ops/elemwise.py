"""Elementwise ops on the device, with broadcasting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optdb.codegen.elementwise_programs import Elementwise
from optdb.codegen.operation import Operation
from optdb.codegen.scalars.program import ScalarProgram
from optdb.host.api import ops as host
from optdb.host.api.graph import Apply, Variable
from optdb.host.api.ops import grad_undefined
from optdb.host.api.scalars import cast_op
from optdb.host.theano.speedups.construction import left_complete
from optdb.opencl.ops.counterpart_base import as_on_host, on_one_device
from optdb.opencl.ops.shell import Shell, spec_of
from optdb.opencl.ops.views import OpenCLDimShuffle
from optdb.opencl.scalar_programs import program_of, signature
from optdb.opencl.type import opencl_type


class OpenCLElemwise(Shell):
    """A scalar op applied to all elements of arrays; `inplace_pattern` maps outputs to the inputs that they overwrite.

    The scalar op is a host op or a program that loop fusion has created. This op does not derive from the host's
    Elemwise, since rewriters for Elemwise would match it.
    """

    __props__ = ("scalar_op", "inplace_pattern")
    _f16_ok = True
    #: The operation checks the lengths, once for each combination of shapes.
    checks_lengths = True

    def __init__(self, scalar_op: Any, inplace_pattern: Mapping[int, int] | None = None) -> None:
        self.scalar_op = scalar_op
        self.inplace_pattern = host.frozendict(inplace_pattern or {})
        self.destroy_map = {out: [overwritten] for out, overwritten in self.inplace_pattern.items()}

    def __str__(self) -> str:
        written_over = f"[{', '.join(map(str, self.inplace_pattern.items()))}]" if self.inplace_pattern else ""
        return f"OpenCLElemwise{{{self.scalar_op}}}{written_over}"

    def make_node(self, *inputs: Any) -> Apply:
        """Return a node; inputs with fewer dimensions are padded with axes of length 1 on the left.

        Raises
        ------
        TypeError
            If the op has no OpenCL C code for these dtypes.
        """
        moved = on_one_device(inputs)
        scalar_signature = signature(self.scalar_op, tuple([x.type.dtype for x in moved]))
        if scalar_signature.reason is not None:
            raise TypeError(f"{self}: {scalar_signature.reason}")
        ndim = max(x.type.ndim for x in moved)
        arrays = [left_complete(x, ndim, OpenCLDimShuffle) for x in moved]
        patterns = zip(*[x.type.broadcastable for x in arrays], strict=True)
        pattern = tuple([all(flags) for flags in patterns])
        self._check_inplace(arrays, scalar_signature.outputs, pattern)
        context_name = arrays[0].type.context_name
        return Apply(self, arrays, [opencl_type(dtype, pattern, context_name)() for dtype in scalar_signature.outputs])

    def _check_inplace(self, inputs: list[Variable], dtypes: tuple[str, ...], pattern: tuple[bool, ...]) -> None:
        for out, overwritten in self.inplace_pattern.items():
            kind = inputs[overwritten].type
            if kind.broadcastable != pattern or kind.dtype != dtypes[out]:
                raise TypeError(f"{self}: output {out} cannot overwrite input {overwritten}, which is {kind}")

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> Sequence[Any]:
        return host.Elemwise.infer_shape(self, node, shapes)

    def L_op(  # noqa: N802 (the host's name)
        self, inputs: Sequence[Variable], outputs: Sequence[Variable], output_grads: Sequence[Variable]
    ) -> list[Variable]:
        """Return the host op's gradients on the device; fused ops have no gradients."""
        if isinstance(self.scalar_op, ScalarProgram):
            return [grad_undefined(self, i, x, "the op is the result of fusion") for i, x in enumerate(inputs)]
        return as_on_host(host.Elemwise(self.scalar_op).L_op, inputs, outputs, output_grads)

    def R_op(self, inputs: Sequence[Variable], eval_points: Sequence[Variable | None]) -> list[Any]:  # noqa: N802
        if isinstance(self.scalar_op, ScalarProgram):
            raise NotImplementedError(
                f"{self} has no R-operator, since it is the result of fusion. Call Rop before compiling"
            )
        return as_on_host(host.Elemwise(self.scalar_op).R_op, inputs, eval_points)

    def operation(self, node: Apply) -> Operation:
        program = program_of(self.scalar_op, [x.type.dtype for x in node.inputs])
        return Elementwise(self.get_context(node), program, [spec_of(x) for x in node.inputs], self.inplace_pattern)


def cast(x: Variable, dtype: str) -> Variable:
    """Return a device array cast to a dtype, or `x` itself if it already has the dtype."""
    return x if x.type.dtype == dtype else OpenCLElemwise(cast_op(dtype))(x)
