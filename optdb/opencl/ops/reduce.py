"""Sums, products, extremes and the like over axes.

A reduction can compute its elements from those of several arrays, without storing them, and can
apply an epilogue to each result. :mod:`optdb.opencl.ops.reduction_code` generates the kernels, and
:mod:`optdb.opencl.ops.reduction_plan` chooses and launches them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optdb.codegen.scalars.types import NoCode, c_type, literal
from optdb.codegen.source import work_dtype
from optdb.host.api import ops as host
from optdb.host.api import scalars
from optdb.host.api.graph import Apply, Variable
from optdb.host.api.ops import grad_undefined
from optdb.opencl.kernels import Context, Kernel, Kernels, OpenCLKernelBase, Outputs, check_lengths, output_array
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.elemwise import OpenCLElemwise, as_on_host, common_shape
from optdb.opencl.ops.reduction_code import Tail
from optdb.opencl.ops.reduction_plan import ReductionPlans
from optdb.opencl.ops.shell import once_per_node
from optdb.opencl.scalars.code import signature
from optdb.opencl.scalars.program import Program
from optdb.runtime.arrays import Array, from_host

#: The result of folding no elements; NumPy raises an error for other ops. A product without zeros is 0 unless there is
#: an element other than 0.
NOTHING = {
    **{scalars.Add: 0, scalars.Mul: 1, scalars.MulWithoutZeros: 0},
    **{scalars.OR: 0, scalars.XOR: 0, scalars.AND: -1},
}
#: The ops that fold in any order.
FOLDS = (*NOTHING, scalars.Maximum, scalars.Minimum)

#: What the host calls them where it has gradients.
_WITH_GRADIENT = {scalars.Add: host.Sum, scalars.Mul: host.Prod}


class OpenCLCAReduce(Counterpart, OpenCLKernelBase, host.CAReduceDtype):
    """A scalar op folded over axes.

    Parameters
    ----------
    scalar_op : ScalarOp
        What folds two elements into one, in any order.
    axis : int or sequence of int, optional
        The axes that go; all if not given.
    dtype, acc_dtype : str, optional
        Of the result, and of what is computed in between; as `CAReduceDtype` of the host has it if not given.
    pre_scalar_op : ScalarOp, optional
        What makes an element of those of the inputs, which have as many axes each, and broadcast. Without it there is
        one input, and its elements are folded.
    post_scalar_op : ScalarOp, optional
        What makes the outputs of a result, which comes first, and of elements of further inputs, which broadcast to the
        result's shape. It says how many these are (`nin`). Without it the output is the result.
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
        behind = "" if self.post_scalar_op is None else f", then {self.post_scalar_op}"
        return f"OpenCLCAReduce{{{self.scalar_op}{axes}, acc_dtype={self.acc_dtype}{before}{behind}}}"

    def make_node(self, *inputs: Any) -> Apply:
        """Return the node for an array, or for those that `pre_scalar_op` makes one of; and what comes in behind.

        Raises
        ------
        TypeError
            If the op cannot be computed on the device.
        """
        folded, behind = self.parted(inputs)
        if self.pre_scalar_op is None:
            node = super().make_node(*folded)
            dtype = node.inputs[0].type.dtype
        else:
            node, dtype = self._node_of_several(folded)
        reason = folding_unsupported_reason(node.op.scalar_op, dtype, node.op.acc_dtype)
        if reason is not None:
            raise TypeError(f"{self}: {reason}")
        return node if self.post_scalar_op is None else self._node_with_more(node, behind)

    def parted(self, inputs: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Return the inputs that are folded, and those that come in behind."""
        behind = 0 if self.post_scalar_op is None else self.post_scalar_op.nin - 1
        return list(inputs[: len(inputs) - behind]), list(inputs[len(inputs) - behind :])

    def _node_with_more(self, node: Apply, behind: Sequence[Any]) -> Apply:
        (result,) = node.outputs
        like = OpenCLElemwise(self.post_scalar_op).make_node(result, *behind)
        pattern = like.outputs[0].type.broadcastable
        if pattern != result.type.broadcastable:
            raise TypeError(f"{self}: what comes in behind broadcasts the result, which is {result.type}, to {pattern}")
        return Apply(node.op, [*node.inputs, *like.inputs[1:]], [out.type() for out in like.outputs])

    def _node_of_several(self, inputs: Sequence[Any]) -> tuple[Apply, str]:
        like = OpenCLElemwise(self.pre_scalar_op).make_node(*inputs)
        if len(like.outputs) != 1:
            raise TypeError(f"{self}: what is folded has to be one output, and not {len(like.outputs)}")
        (element,) = like.outputs
        node = super().make_node(element)
        return Apply(node.op, like.inputs, [out.type() for out in node.outputs]), element.type.dtype

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> Sequence[Any]:
        """Return the shape of the outputs: what the inputs broadcast to, without the axes that go."""
        folded, _ = self.parted(shapes)
        if self.pre_scalar_op is not None:
            elements = OpenCLElemwise(self.pre_scalar_op)
            folded = elements.infer_shape(elements.make_node(*self.parted(node.inputs)[0]), folded)
        return super().infer_shape(node, folded[:1]) * len(node.outputs)

    def L_op(  # noqa: N802 (the host's name)
        self, inputs: Sequence[Variable], outputs: Sequence[Variable], output_grads: Sequence[Variable]
    ) -> list[Variable]:
        """Return the gradient that the host's op has, on the device."""
        op = _WITH_GRADIENT.get(type(self.scalar_op))
        if op is None or self.pre_scalar_op is not None or self.post_scalar_op is not None:
            what = f"folding {self.scalar_op} has no gradient"
            return [grad_undefined(self, i, x, what) for i, x in enumerate(inputs)]
        host_op = op(self.axis, self.dtype, acc_dtype=self.acc_dtype)
        return as_on_host(host_op.L_op, inputs, outputs, output_grads)

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        return self._plans(node).kernels()

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        of_fold, behind = self.parted(inputs)
        shape = self._folded_shape(node, of_fold)
        kept_axes, folded_axes = _split_axes(self, range(len(shape)))
        result = tuple([shape[axis] for axis in kept_axes])
        if behind:
            _check_broadcast(self, node, behind, result)
        outs = [output_array(storage, context, result, out.type.dtype) for storage, out in zip(outputs, node.outputs)]
        if not outs[0].size:
            return
        if 0 not in shape:
            self._plans(node).launch(kernels, shape, (kept_axes, folded_axes), [*of_fold, *behind, *outs])
        elif self.post_scalar_op is None:
            outputs[0][0] = self._of_nothing(context, result, self.dtype)
        else:
            whole = self._of_nothing(context, (1, *result), work_dtype(self.acc_dtype))
            self._plans(node).of_nothing(kernels, whole, [*behind, *outs])

    def _folded_shape(self, node: Apply, of_fold: Sequence[Array]) -> tuple[int, ...]:
        """Return the shape of the elements that are folded."""
        if self.pre_scalar_op is not None:
            return common_shape(node, of_fold)
        check_lengths(self, node.inputs[:1], of_fold, empty=True)
        return of_fold[0].shape

    def _of_nothing(self, context: Context, shape: Sequence[int], dtype: str) -> Array:
        identity = NOTHING.get(type(self.scalar_op))
        if identity is None:
            raise ValueError(f"{self} has nothing to fold, and {self.scalar_op} of nothing is not defined")
        return from_host(context, np.full(shape, identity).astype(dtype))

    @once_per_node
    def _plans(self, node: Apply) -> ReductionPlans:
        of_fold, behind = self.parted(node.inputs)
        dtypes = tuple([x.type.dtype for x in of_fold])
        kept_axes, folded_axes = _split_axes(self, range(of_fold[0].type.ndim))
        pre = self.pre_scalar_op or Program(dtypes, (), (0,))
        tail = Tail(
            self.post_scalar_op or Program((self.dtype,), (), (0,)),
            (self.dtype, *[x.type.dtype for x in behind]),
            tuple([all(x.type.broadcastable) for x in behind]),
            tuple([out.type.dtype for out in node.outputs]),
        )
        return ReductionPlans(
            context=self.get_context(node),
            op=self.scalar_op,
            pre=pre,
            dtypes=dtypes,
            single=tuple([all(x.type.broadcastable) for x in of_fold]),
            dtype=signature(pre, dtypes).outputs[0],
            acc_dtype=self.acc_dtype,
            tail=tail,
            identity=identity_of(self.scalar_op, self.acc_dtype),
            kept=max(len(kept_axes), 1),
            folded=max(len(folded_axes), 1),
        )


def _check_broadcast(op: Any, node: Apply, behind: Sequence[Array], result: tuple[int, ...]) -> None:
    """Do nothing if arrays that come in behind have the result's shape, but for what is known to be broadcast."""
    _, variables = op.parted(node.inputs)
    check_lengths(op, variables, behind)
    for array, var in zip(behind, variables, strict=True):
        lengths = zip(array.shape, result, var.type.broadcastable, strict=True)
        if any(length != target for length, target, broadcast in lengths if not broadcast):
            raise ValueError(f"Dimension mismatch in {op}: {tuple(array.shape)} comes in behind a result of {result}")


def identity_of(op: Any, dtype: str) -> str:
    """Return the identity of an op that is folded, in OpenCL C."""
    if isinstance(op, scalars.AND):
        return literal(1 if dtype == "bool" else np.asarray(-1).astype(dtype), dtype)
    if type(op) in NOTHING:
        return literal(NOTHING[type(op)], dtype)
    largest = isinstance(op, scalars.Minimum)
    if dtype.startswith("float"):
        return literal(np.inf if largest else -np.inf, dtype)
    if dtype == "bool":
        return literal(largest, dtype)
    return literal(np.iinfo(dtype).max if largest else np.iinfo(dtype).min, dtype)


def folding_unsupported_reason(op: Any, dtype: str, acc_dtype: str) -> str | None:
    """Return why a scalar op cannot be folded on the device; None if it can."""
    if type(op) not in FOLDS:
        return f"no OpenCL C for folding {type(op).__name__}"
    try:
        c_type(dtype)
        return signature(op, (acc_dtype, acc_dtype)).reason
    except (NoCode, TypeError) as error:
        return str(error)


def _split_axes(op: Any, axes: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the axes that stay and those that go."""
    folded = list(axes) if op.axis is None else sorted(op.axis)
    return [axis for axis in axes if axis not in folded], folded
