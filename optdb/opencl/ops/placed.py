"""Elementwise ops that write results to slices of one array, on the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optdb.codegen.operation import Operation
from optdb.codegen.placing import PlacedElementwise
from optdb.codegen.scalars.program import ScalarProgram
from optdb.host.api.graph import Apply, Variable
from optdb.opencl.ops.shell import Shell, spec_of
from optdb.opencl.type import OpenCLArrayType, opencl_type


class OpenCLPlacedElemwise(Shell):
    """A scalar program applied to all elements of arrays, which writes its first results to slices of a zero array.

    The inputs are the lengths of the zero array (its type is `kind`), and the operands. The outputs are that array and
    the other results. `places` holds the start and stop of each slice along `axis`, in ascending order.
    """

    __props__ = ("program", "kind", "axis", "places")
    #: The operation checks the lengths.
    checks_lengths = True

    def __init__(
        self, program: ScalarProgram, kind: OpenCLArrayType, axis: int, places: tuple[tuple[int, int], ...]
    ) -> None:
        self.program, self.kind, self.axis, self.places = program, kind, axis, places

    def __str__(self) -> str:
        return f"OpenCLPlacedElemwise{{{self.program}, axis={self.axis}, places={list(self.places)}}}"

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
