"""Scalar ops on all elements of arrays, with broadcasting, on the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from optdb.host import ops as host
from optdb.host.graph import Apply, Variable
from optdb.host.scalars import cast_op
from optdb.opencl.contexts import infer_context_name
from optdb.opencl.kernels import CompiledKernel, Kernel, OpenCLKernelBase, output_array
from optdb.opencl.ops.elements import ElementKernels, once_per_node
from optdb.opencl.ops.views import OpenCLDimShuffle
from optdb.opencl.scalars.code import why_not
from optdb.opencl.transfers import as_opencl_variable
from optdb.opencl.type import OpenCLArrayType
from optdb.runtime.arrays import Array

if TYPE_CHECKING:
    from optdb.runtime.context import Context


class OpenCLElemwise(OpenCLKernelBase, host.Elemwise):
    """A scalar op on all elements of arrays.

    Parameters
    ----------
    scalar_op : ScalarOp
        What is done to each element.
    inplace_pattern : dict, optional
        Which output is written over which input.
    """

    def __str__(self) -> str:
        if self.name is not None:
            return self.name
        return f"OpenCL{super().__str__()}"

    def make_node(self, *inputs: Any) -> Apply:
        """Return a node; inputs with fewer dimensions get more in front.

        Raises
        ------
        TypeError
            If there is no OpenCL C for the op and these dtypes.
        """
        context_name = infer_context_name(*[x for x in inputs if isinstance(x, Variable)])
        moved = [as_opencl_variable(x, context_name) for x in inputs]
        reason = why_not(self.scalar_op, [x.type.dtype for x in moved])
        if reason is not None:
            raise TypeError(f"{self}: {reason}")
        dtypes, patterns, arrays = self.get_output_info(OpenCLDimShuffle, *moved)
        outputs = [OpenCLArrayType(dtype, pattern, context_name)() for dtype, pattern in zip(dtypes, patterns)]
        return Apply(self, arrays, outputs)

    def prepare_node(self, node: Apply, storage_map: Any, compute_map: Any, impl: str | None) -> None:
        """Do nothing: what the host prepares is for its own code."""

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        return self._elements(node).kernels()

    def run(
        self,
        node: Apply,
        inputs: Sequence[Any],
        outputs: Sequence[list[Any]],
        kernels: dict[str, CompiledKernel],
        context: Context,
    ) -> None:
        shape = common_shape(node, inputs)
        results = []
        for i, (out, storage) in enumerate(zip(node.outputs, outputs, strict=True)):
            if i in self.inplace_pattern:
                storage[0] = inputs[self.inplace_pattern[i]]
            else:
                output_array(storage, context, shape, out.type.dtype)
            results.append(storage[0])
        self._elements(node).launch(kernels, context, shape, [*inputs, *results])

    @once_per_node
    def _elements(self, node: Apply) -> ElementKernels:
        return ElementKernels.of_scalar_op(
            self.scalar_op,
            [x.type.dtype for x in node.inputs],
            [out.type.dtype for out in node.outputs],
            [all(x.type.broadcastable) for x in node.inputs],
            node.outputs[0].type.ndim,
        )


def common_shape(node: Apply, arrays: Sequence[Array]) -> tuple[int, ...]:
    """Return the shape to which inputs of a node broadcast.

    Raises
    ------
    ValueError
        If lengths differ where none of them is known to be 1 beforehand.
    """
    shape = [1] * node.outputs[0].type.ndim
    for axis in range(len(shape)):
        lengths = {
            array.shape[axis]
            for array, var in zip(arrays, node.inputs, strict=True)
            if not var.type.broadcastable[axis]
        }
        if len(lengths) > 1:
            shapes = ", ".join(str(tuple(array.shape)) for array in arrays)
            raise ValueError(f"Dimension mismatch at axis {axis} of {node.op}; shapes are {shapes}")
        if lengths:
            (shape[axis],) = lengths
    return tuple(shape)


def cast(x: Variable, dtype: str) -> Variable:
    """Return an array of the device in another dtype; `x` itself if it has that."""
    return x if x.type.dtype == dtype else OpenCLElemwise(cast_op(dtype))(x)
