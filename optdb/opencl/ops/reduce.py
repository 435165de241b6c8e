"""Sums, products, extremes and the like over axes.

A work item folds a part of what goes into one output, in the dtype of the accumulator.
Where there are few outputs and much to fold, several items share one output: they leave
parts, which a second kernel folds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from optdb.host import ops as host
from optdb.host import scalars
from optdb.host.creation import as_tensor_variable, grad_undefined
from optdb.host.graph import Apply, Variable
from optdb.host.lifting import is_host_array
from optdb.opencl.kernels import CompiledKernel, Kernel, OpenCLKernelBase, output_array
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.folds import COLUMNS, Fold
from optdb.opencl.ops.layout import collapse, size_of
from optdb.opencl.scalars.code import scalar_code
from optdb.opencl.scalars.types import NoCode, c_type
from optdb.opencl.transfers import as_opencl_variable
from optdb.runtime.arrays import Array, empty, from_host

if TYPE_CHECKING:
    from optdb.runtime.context import Context

#: What folding nothing gives; NumPy has no answer for the others.
NOTHING = {scalars.Add: 0, scalars.Mul: 1, scalars.OR: 0, scalars.XOR: 0, scalars.AND: -1}
#: The ops that fold in any order.
FOLDS = (*NOTHING, scalars.Maximum, scalars.Minimum)

#: What the host calls them where it has gradients.
_WITH_GRADIENT = {scalars.Add: host.Sum, scalars.Mul: host.Prod}

#: An item folds at least so many elements before another one helps it.
SMALLEST_PART = 4096


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
    """

    host = host.CAReduceDtype

    def __str__(self) -> str:
        axes = "" if self.axis is None else f", axis={list(self.axis)}"
        return f"OpenCLCAReduce{{{self.scalar_op}{axes}, acc_dtype={self.acc_dtype}}}"

    def make_node(self, x: Any) -> Apply:
        """Return the node for an array.

        Raises
        ------
        TypeError
            If the op cannot be folded on the device.
        """
        node = super().make_node(x)
        reason = why_not_folded(node.op.scalar_op, node.inputs[0].type.dtype, node.op.acc_dtype)
        if reason is not None:
            raise TypeError(f"{self}: {reason}")
        return node

    def L_op(  # noqa: N802 (the host's name)
        self, inputs: Sequence[Variable], outputs: Sequence[Variable], output_grads: Sequence[Variable]
    ) -> list[Variable]:
        """Return the gradient that the host's op has, on the device."""
        op = _WITH_GRADIENT.get(type(self.scalar_op))
        if op is None:
            return [grad_undefined(self, 0, inputs[0], f"folding {self.scalar_op} has no gradient")]
        on_host = [[as_tensor_variable(x) for x in group] for group in (inputs, outputs, output_grads)]
        grads = op(self.axis, self.dtype, acc_dtype=self.acc_dtype).L_op(*on_host)
        return [as_opencl_variable(g, inputs[0].type.context_name) if is_host_array(g) else g for g in grads]

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        (x,), (out,) = node.inputs, node.outputs
        kept, folded = _split_axes(self, range(x.type.ndim))
        whole = Fold(self.scalar_op, x.type.dtype, self.acc_dtype, out.type.dtype, len(kept), len(folded))
        parts = Fold(self.scalar_op, x.type.dtype, self.acc_dtype, self.acc_dtype, len(kept), len(folded))
        rest = Fold(self.scalar_op, self.acc_dtype, self.acc_dtype, out.type.dtype, 1, 1)
        rows = [whole.kernel("fold"), parts.kernel("fold_parts"), rest.kernel("fold_rest")]
        if not kept or self.get_context(node).flavour != "cpu":
            return rows
        return [*rows, whole.columns("columns"), parts.columns("columns_parts"), rest.columns("columns_rest")]

    def run(
        self,
        node: Apply,
        inputs: Sequence[Any],
        outputs: Sequence[list[Any]],
        kernels: dict[str, CompiledKernel],
        context: Context,
    ) -> None:
        (x,) = inputs
        kept, folded = _split_axes(self, range(x.ndim))
        shape = [x.shape[axis] for axis in kept]
        out = output_array(outputs[0], context, shape, node.outputs[0].type.dtype)
        if out.size and 0 in x.shape:
            outputs[0][0] = self._of_nothing(context, out)
        elif out.size:
            _fold(kernels, context, x, kept, folded, out, self.acc_dtype)

    def _of_nothing(self, context: Context, out: Array) -> Array:
        identity = NOTHING.get(type(self.scalar_op))
        if identity is None:
            raise ValueError(f"{self} has nothing to fold, and {self.scalar_op} of nothing is not defined")
        return from_host(context, np.full(out.shape, identity).astype(out.dtype))


def why_not_folded(op: Any, dtype: str, acc_dtype: str) -> str | None:
    """Return why a scalar op cannot be folded on the device; None if it can."""
    if type(op) not in FOLDS:
        return f"no OpenCL C for folding {type(op).__name__}"
    try:
        c_type(dtype)
        code = scalar_code(op, [acc_dtype, acc_dtype], ["x", "y"], ["z"])
    except NoCode as reason:
        return str(reason)
    except TypeError as error:
        return str(error)
    return None if code else "nothing to fold"


def _split_axes(op: Any, axes: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the axes that stay and those that go."""
    folded = list(axes) if op.axis is None else sorted(op.axis)
    return [axis for axis in axes if axis not in folded], folded


def _fold(
    kernels: Mapping[str, CompiledKernel],
    context: Context,
    x: Array,
    kept: Sequence[int],
    folded: Sequence[int],
    out: Array,
    acc_dtype: str,
) -> None:
    kept_lengths, kept_steps = axes_of(x, kept)
    folded_lengths, folded_steps = axes_of(x, folded)
    n, m = out.size, size_of(folded_lengths)
    wanted = context.device.max_compute_units * (4 if context.flavour == "cpu" else 512)
    side_by_side = kept_steps[-1] == 1 and kept_lengths[-1] == n and n > 1 and folded_lengths[-1] == m
    if side_by_side and context.flavour == "cpu":
        _fold_columns(kernels, context, x, folded_steps[-1], out, m, wanted, acc_dtype)
        return
    parts = _parts(n, m, wanted)
    args = [*kept_lengths, *folded_lengths, x, *kept_steps, *folded_steps]
    if parts == 1:
        launch_walk(kernels["fold"], context, n, m, 1, [*args, out])
        return
    left = empty(context, (n, parts), acc_dtype)
    launch_walk(kernels["fold_parts"], context, n, m, parts, [*args, left])
    launch_walk(kernels["fold_rest"], context, n, parts, 1, [n, parts, left, parts, 1, out])


def _fold_columns(
    kernels: Mapping[str, CompiledKernel],
    context: Context,
    x: Array,
    step: int,
    out: Array,
    m: int,
    wanted: int,
    acc_dtype: str,
) -> None:
    """Fold what lies side by side: going down one column after the other would leave most of what is read unused."""
    n = out.size
    blocks = -(-n // COLUMNS)
    parts = _parts(blocks, m * COLUMNS, wanted)
    part = -(-m // parts)
    parts = -(-m // part)
    if parts == 1:
        kernels["columns"].call(blocks, 1, n, m, 1, m, x, step, out)
        return
    left = empty(context, (parts, n), acc_dtype)
    kernels["columns_parts"].call(blocks * parts, 1, n, m, parts, part, x, step, left)
    kernels["columns_rest"].call(blocks, 1, n, parts, 1, parts, left, n, out)


def axes_of(x: Array, axes: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return lengths and strides of some axes, in as few dimensions as will do; then filled up with ones."""
    strides = [x.strides[axis] // x.dtype.itemsize for axis in axes]
    lengths, (steps,) = collapse([x.shape[axis] for axis in axes], [strides])
    missing = max(len(axes), 1) - len(lengths)
    return (1,) * missing + lengths, (0,) * missing + steps


def _parts(n: int, m: int, wanted: int) -> int:
    """Return in how many parts each of `n` outputs is folded from `m` elements; none is empty."""
    parts = max(1, min(wanted // n, m // SMALLEST_PART))
    return -(-m // -(-m // parts))


def launch_walk(kernel: CompiledKernel, context: Context, n: int, m: int, parts: int, args: Sequence[Any]) -> None:
    """Launch a kernel of `walk` for `n` outputs of `m` elements each, taken in parts."""
    part = -(-m // parts)
    if context.flavour != "cpu":
        kernel.scall(n * parts, n, 1, m, parts, part, *args)
        return
    # A processor's item takes several outputs, if they are small.
    each = max(1, min(SMALLEST_PART // m, -(-n // context.device.max_compute_units))) if parts == 1 else 1
    kernel.call(-(-n // each) * parts, 1, n, each, m, parts, part, *args)
