"""Elementwise ops on the device, which broadcast their inputs and may write results to slices of one array."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optdb.codegen.elementwise_programs import Elementwise, PlacedElementwise, common_shape
from optdb.codegen.operation import Operation
from optdb.codegen.scalars.program import ScalarProgram
from optdb.device.expressions import mapped
from optdb.device.tensors import Tensor
from optdb.host.api import ops as host
from optdb.host.api.graph import Apply, Variable
from optdb.host.api.ops import grad_undefined
from optdb.host.api.scalars import cast_op
from optdb.host.theano.speedups.construction import left_complete
from optdb.opencl.ops.counterpart_base import as_on_host, on_one_device
from optdb.opencl.ops.shell import Shell, spec_of
from optdb.opencl.ops.views import OpenCLDimShuffle
from optdb.opencl.scalar_programs import program_of, signature
from optdb.opencl.type import OpenCLArrayType, opencl_type


class OpenCLElemwise(Shell):
    """A scalar op or program applied to all elements of arrays; `inplace_pattern` maps outputs to overwritten inputs.

    The class does not derive from the host's Elemwise, since rewriters for Elemwise would match it.
    """

    __props__ = ("scalar_op", "inplace_pattern")

    def __init__(self, scalar_op: Any, inplace_pattern: Mapping[int, int] | None = None) -> None:
        self.scalar_op = scalar_op
        self.inplace_pattern = host.frozendict(inplace_pattern or {})
        self.destroy_map = {out: [overwritten] for out, overwritten in self.inplace_pattern.items()}

    def __str__(self) -> str:
        return f"OpenCLElemwise{{{self.scalar_op}}}{pattern_text(self.inplace_pattern)}"

    def make_node(self, *inputs: Any) -> Apply:
        """Return a node for inputs padded to the same rank; raise TypeError if their dtypes have no OpenCL C code."""
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

    def describe(self, node: Apply, inputs: Sequence[Tensor]) -> list[Tensor]:
        common_shape(self, [spec_of(x) for x in node.inputs], inputs)
        return mapped(program_of(self.scalar_op, [x.type.dtype for x in node.inputs]), inputs)

    def operation(self, node: Apply) -> Operation:
        program = program_of(self.scalar_op, [x.type.dtype for x in node.inputs])
        return Elementwise(self.get_context(node), program, [spec_of(x) for x in node.inputs], self.inplace_pattern)


class OpenCLPlacedElemwise(Shell):
    """Applies a scalar program to all elements of arrays, and writes its first results to slices of a zero array.

    The inputs are the lengths of the zero array, whose type is `kind`, followed by the operands. The outputs are the
    array that contains the slices, and the remaining results. `places` holds the start and stop of each slice along
    `axis`, in ascending order.
    """

    __props__ = ("program", "kind", "axis", "places")

    def __init__(
        self, program: ScalarProgram, kind: OpenCLArrayType, axis: int, places: tuple[tuple[int, int], ...]
    ) -> None:
        self.program, self.kind, self.axis, self.places = program, kind, axis, places

    def make_node(self, *inputs: Variable) -> Apply:
        """Return a node for lengths (host numbers), and for device arrays with one axis per length."""
        flags = zip(*[var.type.broadcastable for var in self._arrays(inputs)], strict=True)
        pattern = tuple([all(axis) for axis in flags])
        others = self.program.out_dtypes[len(self.places) :]
        stored = [opencl_type(dtype, pattern, self.kind.context_name)() for dtype in others]
        return Apply(self, list(inputs), [self.kind(), *stored])

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> Sequence[Any]:
        lengths, arrays = node.inputs[: self.kind.ndim], self._arrays(node.inputs)
        of_arrays = shapes[self.kind.ndim :]
        shape = []
        for axis in range(self.kind.ndim):
            known = [s[axis] for x, s in zip(arrays, of_arrays, strict=True) if not x.type.broadcastable[axis]]
            shape.append(known[0] if known else of_arrays[0][axis])
        return [tuple(lengths), *[tuple(shape) for _ in node.outputs[1:]]]

    def operation(self, node: Apply) -> Operation:
        specs = [spec_of(var) for var in self._arrays(node.inputs)]
        return PlacedElementwise(self.get_context(node), self.program, specs, self.axis, self.places)

    def _arrays(self, inputs: Sequence[Variable]) -> Sequence[Variable]:
        return inputs[self.kind.ndim :]


def pattern_text(pattern: Mapping[int, int]) -> str:
    """Return an inplace pattern as the end of an op's name; empty if the op overwrites nothing."""
    return f"[{', '.join(map(str, pattern.items()))}]" if pattern else ""


def cast(x: Variable, dtype: str) -> Variable:
    """Return a device array cast to a dtype, or `x` itself if it already has the dtype."""
    return x if x.type.dtype == dtype else OpenCLElemwise(cast_op(dtype))(x)
