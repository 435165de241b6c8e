"""Groups of device ops that are scheduled together, so that kernels need not follow the graph's ops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from optdb.codegen.operation import Operation
from optdb.device.functions.described import DescribedOperation
from optdb.device.tensors import ArgumentTensor, Constant, Tensor
from optdb.host.api.graph import Apply, Variable, reachable
from optdb.host.api.ops import grad_undefined
from optdb.numpy_types import HostArray
from optdb.opencl.ops.elemwise import OpenCLElemwise, pattern_text
from optdb.opencl.ops.reduce import OpenCLCAReduce
from optdb.opencl.ops.shell import Shell
from optdb.opencl.scalar_programs import program_of


class OpenCLFused(Shell):
    """Computes a group of ops that have descriptions.

    Parameters
    ----------
    inputs, outputs : sequence of Variable
        The inputs and outputs of the group's graph, which belongs to no function.
    nodes : sequence of Apply
        The nodes of the graph, operands first.
    constants : mapping of Variable to ndarray
        The values of variables that never change.
    inplace_pattern : mapping of int to int, optional
        Maps outputs to the inputs that they overwrite.
    """

    schedules_kernels = True

    def __init__(
        self,
        inputs: Sequence[Variable],
        outputs: Sequence[Variable],
        nodes: Sequence[Apply],
        constants: Mapping[Variable, HostArray],
        inplace_pattern: Mapping[int, int] | None = None,
    ) -> None:
        self.inputs, self.outputs, self.nodes = tuple(inputs), tuple(outputs), tuple(nodes)
        self._constants = dict(constants)
        self.inplace_pattern = dict(inplace_pattern or {})
        self.destroy_map = {out: [overwritten] for out, overwritten in self.inplace_pattern.items()}

    def overwriting(self, pattern: Mapping[int, int]) -> OpenCLFused:
        """Return the group with another inplace pattern."""
        return OpenCLFused(self.inputs, self.outputs, self.nodes, self._constants, pattern)

    def overwritable(self, number: int) -> set[int]:
        """Return the inputs of which an output reads, for each element, the element at the same index."""
        out = self.outputs[number]
        pattern = out.type.broadcastable

        def operands(var: Variable) -> list[Variable]:
            if var.owner is None or type(var.owner.op) is not OpenCLElemwise:
                return []
            return [x for x in var.owner.inputs if x.type.broadcastable == pattern]

        read = reachable([out], operands)
        return {slot for slot, var in enumerate(self.inputs) if var in read}

    def __str__(self) -> str:
        counts = Counter(str(node.op) for node in self.nodes)
        names = ", ".join(name if number == 1 else f"{number} {name}" for name, number in counts.items())
        return f"OpenCLFused{{{names}}}{pattern_text(self.inplace_pattern)}"

    def make_node(self, *inputs: Variable) -> Apply:
        """Return a node for inputs of the same types as the group's inputs."""
        for given, inner in zip(inputs, self.inputs, strict=True):
            if given.type != inner.type:
                raise TypeError(f"{self} takes {inner.type}, but got {given.type}")
        return Apply(self, list(inputs), [out.type() for out in self.outputs])

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> Sequence[Any]:
        known: dict[Variable, Any] = dict(zip(self.inputs, shapes, strict=True))
        known |= {var: tuple(value.shape) for var, value in self._constants.items()}
        for inner in self.nodes:
            results = inner.op.infer_shape(inner, [known[var] for var in inner.inputs])
            known.update(zip(inner.outputs, results, strict=True))
        return [known[out] for out in self.outputs]

    def L_op(  # noqa: N802 (the host's name)
        self, inputs: Sequence[Variable], outputs: Sequence[Variable], output_grads: Sequence[Variable]
    ) -> list[Variable]:
        """Return undefined gradients, which raise an error where they are used."""
        return [grad_undefined(self, i, x, "the op is the result of fusion") for i, x in enumerate(inputs)]

    def operation(self, node: Apply) -> Operation:
        return DescribedOperation(self.get_context(node), self._describe, str(self), self.inplace_pattern)

    def scalar_operations(self, arrays: Sequence[Any]) -> int:
        """Return the number of scalar operations for inputs, if no kernel computes anything twice."""
        tensors = self._tensors([ArgumentTensor(x.shape, x.dtype.name) for x in arrays])
        count = 0
        for node in self.nodes:
            if type(node.op) is OpenCLCAReduce:
                count += tensors[node.inputs[0]].size
            elif type(node.op) is OpenCLElemwise:
                program = program_of(node.op.scalar_op, [x.type.dtype for x in node.inputs])
                count += len(program.steps) * tensors[node.outputs[0]].size
        return count

    def _describe(self, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        tensors = self._tensors(inputs)
        return [tensors[out] for out in self.outputs]

    def _tensors(self, inputs: Sequence[Tensor]) -> dict[Variable, Tensor]:
        """Return the tensors of all variables of the group's graph."""
        tensors: dict[Variable, Tensor] = dict(zip(self.inputs, inputs, strict=True))
        tensors |= {var: Constant(np.asarray(value)) for var, value in self._constants.items()}
        for node in self.nodes:
            op: Any = node.op
            described = op.describe(node, [tensors[var] for var in node.inputs])
            tensors.update(zip(node.outputs, described, strict=True))
        return tensors
