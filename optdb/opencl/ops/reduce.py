"""Reductions over axes, such as sums, products and maxima; see :mod:`optdb.codegen.reductions`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optdb.codegen.operation import Operation
from optdb.codegen.reductions.plan import Reduction
from optdb.codegen.scalars.program import ScalarProgram
from optdb.device import expressions
from optdb.device.tensors import Tensor
from optdb.host.api import ops as host
from optdb.host.api import scalars
from optdb.host.api.graph import Apply, Variable, op_of
from optdb.host.api.ops import grad_undefined
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.counterpart_base import as_on_host
from optdb.opencl.ops.elemwise import OpenCLElemwise
from optdb.opencl.ops.shell import Shell, spec_of
from optdb.opencl.scalar_programs import folding_unsupported_reason, program_of, scalar_name

#: Maps scalar ops to host reductions that have gradients.
_WITH_GRADIENT = {scalars.Add: host.Sum, scalars.Mul: host.Prod}


class OpenCLCAReduce(Counterpart, Shell, host.CAReduceDtype):
    """A reduction, which folds elements along axes with a scalar op; the default dtypes are the host op's.

    Parameters
    ----------
    scalar_op : ScalarOp
        The associative and commutative op that combines two elements into one.
    axis : int or sequence of int, optional
        The axes to reduce; by default, all axes.
    dtype, acc_dtype : str, optional
        The dtypes of the result and the accumulator.
    pre_scalar_op : ScalarOp or ScalarProgram, optional
        The prologue, which computes an element from elements of the broadcast inputs. A `ScalarProgram` may
        compute several elements, each of which is folded separately.
    post_scalar_op : ScalarOp or ScalarProgram, optional
        The epilogue, which computes the outputs. Its first operands are the reduction's results; its other operands are
        elements of further inputs, which are broadcast. Its `nin` counts both.
    """

    __props__ = ("scalar_op", "axis", "dtype", "acc_dtype", "pre_scalar_op", "post_scalar_op")

    def __init__(
        self,
        scalar_op: Any,
        axis: Any = None,
        dtype: str | None = None,
        acc_dtype: str | None = None,
        pre_scalar_op: Any = None,
        post_scalar_op: Any = None,
    ) -> None:
        super().__init__(scalar_op, axis, dtype, acc_dtype)
        self.pre_scalar_op = pre_scalar_op
        self.post_scalar_op = post_scalar_op

    def __str__(self) -> str:
        axes = "" if self.axis is None else f", axis={list(self.axis)}"
        before = "" if self.pre_scalar_op is None else f", of {self.pre_scalar_op}"
        after = "" if self.post_scalar_op is None else f", then {self.post_scalar_op}"
        return f"OpenCLCAReduce{{{self.scalar_op}{axes}, acc_dtype={self.acc_dtype}{before}{after}}}"

    def with_programs(self, pre: Any, post: Any) -> OpenCLCAReduce:
        return OpenCLCAReduce(self.scalar_op, self.axis, self.dtype, self.acc_dtype, pre, post)

    def make_node(self, *inputs: Any) -> Apply:
        """Return a node for the inputs to fold and the epilogue's inputs; raise TypeError if they are not supported."""
        folded, others = self.parted(inputs)
        if self.pre_scalar_op is None:
            node = super().make_node(*folded)
            dtypes = [node.inputs[0].type.dtype]
        else:
            node, dtypes = self._node_of_several(folded)
        acc_dtype = op_of(node, host.CAReduceDtype).acc_dtype
        for dtype in dtypes:
            reason = folding_unsupported_reason(self.scalar_op, dtype, acc_dtype)
            if reason is not None:
                raise TypeError(f"{self}: {reason}")
        return node if self.post_scalar_op is None else self._node_with_more(node, others)

    @property
    def results(self) -> int:
        """Number of results that the reduction passes to the epilogue."""
        return len(self.pre_scalar_op.results) if isinstance(self.pre_scalar_op, ScalarProgram) else 1

    def parted(self, inputs: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Split inputs into the inputs to fold and the epilogue's inputs."""
        others = 0 if self.post_scalar_op is None else self.post_scalar_op.nin - self.results
        return list(inputs[: len(inputs) - others]), list(inputs[len(inputs) - others :])

    def _node_with_more(self, node: Apply, others: Sequence[Any]) -> Apply:
        result = node.outputs[0]
        like = OpenCLElemwise(self.post_scalar_op).make_node(*node.outputs, *others)
        pattern = like.outputs[0].type.broadcastable
        if pattern != result.type.broadcastable:
            raise TypeError(f"{self}: the epilogue would broadcast the result, which is {result.type}, to {pattern}")
        return Apply(node.op, [*node.inputs, *like.inputs[self.results :]], [out.type() for out in like.outputs])

    def _node_of_several(self, inputs: Sequence[Any]) -> tuple[Apply, list[str]]:
        like = OpenCLElemwise(self.pre_scalar_op).make_node(*inputs)
        if len(like.outputs) != self.results:
            raise TypeError(f"{self}: the reduced expression must have one output, not {len(like.outputs)}")
        node = super().make_node(like.outputs[0])
        dtypes = [element.type.dtype for element in like.outputs]
        return Apply(node.op, like.inputs, [node.outputs[0].type() for _ in like.outputs]), dtypes

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> Sequence[Any]:
        folded: Sequence[Any] = self.parted(shapes)[0]
        if self.pre_scalar_op is not None:
            elements = OpenCLElemwise(self.pre_scalar_op)
            folded = elements.infer_shape(elements.make_node(*self.parted(node.inputs)[0]), folded)
        return super().infer_shape(node, folded[:1]) * len(node.outputs)

    def L_op(  # noqa: N802 (the host's name)
        self, inputs: Sequence[Variable], outputs: Sequence[Variable], output_grads: Sequence[Variable]
    ) -> list[Variable]:
        op = _WITH_GRADIENT.get(type(self.scalar_op))
        if op is None or self.pre_scalar_op is not None or self.post_scalar_op is not None:
            what = f"a reduction by {self.scalar_op} has no gradient"
            return [grad_undefined(self, i, x, what) for i, x in enumerate(inputs)]
        host_op = op(self.axis, self.dtype, acc_dtype=self.acc_dtype)
        return as_on_host(host_op.L_op, inputs, outputs, output_grads)

    def describe(self, node: Apply, inputs: Sequence[Tensor]) -> list[Tensor]:
        (x,) = inputs
        axes = range(x.ndim) if self.axis is None else [axis % x.ndim for axis in self.axis]
        return [expressions.folded(scalar_name(self.scalar_op), x, list(axes), self.dtype, self.acc_dtype)]

    def operation(self, node: Apply) -> Operation:
        folded, others = self.parted(node.inputs)
        ndim = folded[0].type.ndim
        return Reduction(
            self.get_context(node),
            scalar_name(self.scalar_op),
            [spec_of(x) for x in folded],
            range(ndim) if self.axis is None else self.axis,
            self.dtype,
            self.acc_dtype,
            self._program(self.pre_scalar_op, [x.type.dtype for x in folded]),
            self._program(self.post_scalar_op, [*[self.dtype] * self.results, *[x.type.dtype for x in others]]),
            [spec_of(x) for x in others],
        )

    def _program(self, op: Any, dtypes: Sequence[str]) -> ScalarProgram | None:
        return None if op is None else program_of(op, dtypes)
