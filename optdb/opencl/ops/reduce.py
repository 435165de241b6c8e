"""Sums, products, extremes and the like over axes.

A work item folds a part of what goes into one output, in the dtype of the accumulator.
Where there are few outputs and much to fold, several items share one output: they leave
parts, which a second kernel folds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from optdb.host import ops as host
from optdb.host import scalars
from optdb.host.graph import Apply
from optdb.opencl.fp16_help import load_w, write_w
from optdb.opencl.kernels import ARRAY, SIZE, SSIZE, CompiledKernel, Kernel, OpenCLKernelBase, ctype, output_array
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.layout import collapse, size_of
from optdb.opencl.scalars.code import scalar_code
from optdb.opencl.scalars.types import NoCode, c_type, convert
from optdb.runtime.arrays import Array, empty, from_host

if TYPE_CHECKING:
    from optdb.runtime.context import Context

#: What folding nothing gives; NumPy has no answer for the others.
NOTHING = {scalars.Add: 0, scalars.Mul: 1, scalars.OR: 0, scalars.XOR: 0, scalars.AND: -1}
#: The ops that fold in any order.
FOLDS = (*NOTHING, scalars.Maximum, scalars.Minimum)

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

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        (x,), (out,) = node.inputs, node.outputs
        kept, folded = _split_axes(self, range(x.type.ndim))
        whole = _Fold(self.scalar_op, x.type.dtype, self.acc_dtype, out.type.dtype, len(kept), len(folded))
        parts = _Fold(self.scalar_op, x.type.dtype, self.acc_dtype, self.acc_dtype, len(kept), len(folded))
        rest = _Fold(self.scalar_op, self.acc_dtype, self.acc_dtype, out.type.dtype, 1, 1)
        return [whole.kernel("fold"), parts.kernel("fold_parts"), rest.kernel("fold_rest")]

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


@dataclass(frozen=True)
class _Fold:
    """One kernel that folds."""

    op: Any
    dtype: str
    acc_dtype: str
    out_dtype: str
    kept: int
    folded: int

    def kernel(self, name: str) -> Kernel:
        kept, folded = max(self.kept, 1), max(self.folded, 1)
        code = scalar_code(self.op, [self.acc_dtype, self.acc_dtype], ["acc", "x"], ["acc"])
        params = [SIZE] * 5 + [SIZE] * (kept + folded) + [ARRAY] + [SSIZE] * (kept + folded) + [ARRAY]
        flags = Kernel.get_flags(*sorted({self.dtype, self.acc_dtype, self.out_dtype}))
        return Kernel(code.helpers + self._code(name, kept, folded, code.statements), name, params, flags)

    def _code(self, name: str, kept: int, folded: int, combine: str) -> str:
        computed = c_type(self.acc_dtype)
        read = f"{load_w(self.dtype)}(a[p])"
        value = f"({computed})({convert(read, self.dtype, self.acc_dtype)})"
        result = f"{write_w(self.out_dtype)}({convert('acc', self.acc_dtype, self.out_dtype)})"
        return walk(
            name,
            ctype(self.dtype),
            [("z", ctype(self.out_dtype))],
            (kept, folded),
            start=f"{computed} acc = 0;",
            first=f"acc = {value};",
            each=f"const {computed} x = {value};\n{combine}",
            finish=f"z[o * parts + mine] = {result};",
        )


def walk(
    name: str,
    stored: str,
    outputs: Sequence[tuple[str, str]],
    ndims: tuple[int, int],
    start: str,
    first: str,
    each: str,
    finish: str,
) -> str:
    """Return a kernel that goes over what each output depends on.

    Parameters
    ----------
    name : str
        Of the kernel.
    stored : str
        The C type of the elements of the input, `a`.
    outputs : sequence of (str, str)
        Names of the outputs and the C types of their elements.
    ndims : tuple of int
        How many axes stay, and how many go.
    start, finish : str
        What is done before and after, for output ``o``.
    first, each : str
        What is done with the first element, ``a[p]``, and with all others; ``i`` counts them.
    """
    kept, folded = ndims
    lengths = [f"ga_size k{d}" for d in range(kept)] + [f"ga_size r{d}" for d in range(folded)]
    steps = [f"ga_ssize ks{d}" for d in range(kept)] + [f"ga_ssize rs{d}" for d in range(folded)]
    last = folded - 1
    place_kept = "\n".join(f"base += (ga_ssize)(rest % k{d}) * ks{d}; rest /= k{d};" for d in reversed(range(kept)))
    place_folded = "\n".join(f"p += (ga_ssize)(at % r{d}) * rs{d}; at /= r{d};" for d in reversed(range(last)))
    params = ", ".join(f"GLOBAL_MEM {kind} *{z}, ga_size {z}_off" for z, kind in outputs)
    pointers = "\n".join(
        f"{z} = (GLOBAL_MEM {kind} *)((GLOBAL_MEM char *){z} + {z}_off);" for z, kind in [("a", stored), *outputs]
    )
    return f"""
#pragma OPENCL FP_CONTRACT OFF
KERNEL void {name}(ga_size n, ga_size each, ga_size m, ga_size parts, ga_size part,
    {", ".join(lengths)}, GLOBAL_MEM {stored} *a, ga_size a_off, {", ".join(steps)}, {params})
{{
{pointers}
const ga_size item = get_global_id(0);
const ga_size mine = item % parts;
const ga_size begin = mine * part;
const ga_size end = min(begin + part, m);
ga_size o = item / parts * each;
const ga_size o_end = min(o + each, n);
for (; o < o_end; ++o) {{
ga_size rest = o;
ga_ssize base = 0;
{place_kept}
{start}
ga_size i = begin;
while (i < end) {{
const ga_size column = i % r{last};
ga_size at = i / r{last};
ga_ssize p = base + (ga_ssize)column * rs{last};
{place_folded}
const ga_size stop = min(end, i + (r{last} - column));
if (i == begin) {{
{first}
++i;
p += rs{last};
}}
for (; i < stop; ++i) {{
{each}
p += rs{last};
}}
}}
{finish}
}}
}}
"""


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
    units = context.device.max_compute_units
    parts = _parts(n, m, units * (4 if context.flavour == "cpu" else 512))
    args = [*kept_lengths, *folded_lengths, x, *kept_steps, *folded_steps]
    if parts == 1:
        launch_walk(kernels["fold"], context, n, m, 1, [*args, out])
        return
    left = empty(context, (n, parts), acc_dtype)
    launch_walk(kernels["fold_parts"], context, n, m, parts, [*args, left])
    launch_walk(kernels["fold_rest"], context, n, parts, 1, [n, parts, left, parts, 1, out])


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
