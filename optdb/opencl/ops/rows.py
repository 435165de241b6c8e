"""Ops that take, set and increment the rows of an array that a vector of indexes names.

The indexes come from the host, where they are checked. A row that is named several times
is incremented in the order of its mentions, by one work item, so results do not vary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from optdb.codegen.fp16 import load_w, write_w
from optdb.codegen.layout import is_contiguous, size_of, view
from optdb.codegen.scalars.types import c_type
from optdb.host import ops as host
from optdb.host import scalars
from optdb.host.graph import Apply
from optdb.opencl.kernels import (
    ARRAY,
    SIZE,
    SSIZE,
    CompiledKernel,
    Kernel,
    Kernels,
    OpenCLKernelBase,
    Outputs,
    ctype,
    output_array,
)
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.elements import RAW, ElementKernels
from optdb.opencl.ops.parts import broadcast_view, host_indexes, of_one_dtype
from optdb.opencl.ops.views import contiguous, copying
from optdb.opencl.scalars.code import scalar_code
from optdb.runtime.arrays import Array, empty, from_host
from optdb.runtime.sizes import smallest
from optdb.runtime.tables import computed

if TYPE_CHECKING:
    from optdb.runtime.context import Context

_TAKE = """
KERNEL void take(ga_size n, ga_size columns, GLOBAL_MEM {raw} *x, ga_size x_off,
    GLOBAL_MEM ga_long *rows, ga_size rows_off, GLOBAL_MEM {raw} *z, ga_size z_off)
{{
x = (GLOBAL_MEM {raw} *)((GLOBAL_MEM char *)x + x_off);
rows = (GLOBAL_MEM ga_long *)((GLOBAL_MEM char *)rows + rows_off);
z = (GLOBAL_MEM {raw} *)((GLOBAL_MEM char *)z + z_off);
for (ga_size i = get_global_id(0); i < n; i += get_global_size(0))
    z[i] = x[rows[i / columns] * columns + i % columns];
}}
"""

# order: mentions, sorted by the row they name; starts: where in it each row's mentions begin. Behind the last row there
# may be some without mentions.
_CHANGE = """
#pragma OPENCL FP_CONTRACT OFF
{helpers}
KERNEL void change(ga_size n, ga_size columns, GLOBAL_MEM {stored} *x, ga_size x_off, ga_ssize x_row, ga_ssize x_column,
    GLOBAL_MEM {stored} *y, ga_size y_off, GLOBAL_MEM ga_long *rows, ga_size rows_off,
    GLOBAL_MEM ga_long *order, ga_size order_off, GLOBAL_MEM ga_long *starts, ga_size starts_off)
{{
x = (GLOBAL_MEM {stored} *)((GLOBAL_MEM char *)x + x_off);
y = (GLOBAL_MEM {stored} *)((GLOBAL_MEM char *)y + y_off);
rows = (GLOBAL_MEM ga_long *)((GLOBAL_MEM char *)rows + rows_off);
order = (GLOBAL_MEM ga_long *)((GLOBAL_MEM char *)order + order_off);
starts = (GLOBAL_MEM ga_long *)((GLOBAL_MEM char *)starts + starts_off);
for (ga_size i = get_global_id(0); i < n; i += get_global_size(0)) {{
    const ga_size group = i / columns, column = i % columns;
    if (starts[group] == starts[group + 1])
        continue;
    const ga_ssize p = rows[group] * x_row + (ga_ssize)column * x_column;
    {computed} old = {load}(x[p]);
    for (ga_long m = {first}; m < starts[group + 1]; ++m) {{
        const {computed} by = {load}(y[order[m] * columns + column]);
        {statements}
    }}
    x[p] = {store}(old);
}}
}}
"""


class OpenCLAdvancedSubtensor1(Counterpart, OpenCLKernelBase, host.AdvancedSubtensor1):
    """The rows of an array that a vector of indexes names."""

    host = host.AdvancedSubtensor1
    device_inputs = slice(0, 1)

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        x = node.inputs[0].type
        code = _TAKE.format(raw=RAW[np.dtype(x.dtype).itemsize])
        return [Kernel(code, "take", [SIZE, SIZE, ARRAY, ARRAY, ARRAY]), *copying(x).kernels()]

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, indexes = inputs
        rows = host_indexes(indexes, x.shape[0], self)
        out = output_array(outputs[0], context, (rows.shape[0], *x.shape[1:]), x.dtype)
        if not out.size:
            return
        x = contiguous(x, node.inputs[0].type, kernels, context)
        launch_each(
            kernels["take"], context, out.size, size_of(x.shape[1:]), x, from_host(context, rows, constant=True), out
        )


class OpenCLAdvancedIncSubtensor1(Counterpart, OpenCLKernelBase, host.AdvancedIncSubtensor1):
    """An array of which the rows that a vector of indexes names are set or incremented."""

    host = host.AdvancedIncSubtensor1
    device_inputs = slice(0, 2)

    def make_node(self, x: Any, y: Any, indexes: Any) -> Apply:
        """Return the node for two arrays, and the indexes, which stay on the host."""
        return super().make_node(*of_one_dtype(x, y), indexes)

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        dtype = node.inputs[0].type.dtype
        return [_change_kernel(dtype, self.set_instead_of_inc), *copying(node.inputs[0].type).kernels()]

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, y, indexes = inputs
        # Indexes of rows without elements are not looked at, as on the host.
        named = host_indexes(indexes, x.shape[0], self) if size_of(x.shape[1:]) else None
        out = x
        if not self.inplace:
            out = empty(context, x.shape, x.dtype)
            copying(node.inputs[0].type).launch(kernels, context, x.shape, [x, out])
        outputs[0][0] = out
        if out.size and named.size:
            y = _full(y, (named.shape[0], *x.shape[1:]), node, kernels, context)
            self._change(node, out, y, named, kernels, context)

    def _change(self, node: Apply, out: Array, y: Array, named: np.ndarray, kernels: Kernels, context: Context) -> None:
        flat = out
        if not is_contiguous(out):  # only where it works in place
            flat = contiguous(out, node.inputs[0].type, kernels, context)
        tables = [computed(name, named) for name in ("distinct", "mentions", "begins")]
        columns = size_of(out.shape[1:])
        on_device = [from_host(context, table, constant=True) for table in tables]
        launch_each(kernels["change"], context, tables[0].shape[0] * columns, columns, flat, columns, 1, y, *on_device)
        if flat is not out:
            copying(node.inputs[0].type).launch(kernels, context, out.shape, [flat, out])


def _full(y: Array, shape: Sequence[int], node: Apply, kernels: Kernels, context: Context) -> Array:
    """Return `y`, broadcast to `shape`, in C order."""
    seen = broadcast_view(y, shape, node.op)
    if tuple(seen.shape) == tuple(shape) and is_contiguous(seen):
        return seen
    result = empty(context, tuple(shape), y.dtype)
    x = node.inputs[0].type
    ElementKernels.copying(x.dtype, x.ndim).launch(kernels, context, shape, [seen, result])
    return view(result, shape, result.strides)


def _change_kernel(dtype: str, setting: bool) -> Kernel:
    code = scalar_code(scalars.second if setting else scalars.add, [dtype, dtype], ["old", "by"], ["old"])
    text = _CHANGE.format(
        helpers=code.helpers,
        stored=ctype(dtype),
        computed=c_type(dtype),
        load=load_w(dtype),
        store=write_w(dtype),
        first="starts[group + 1] - 1" if setting else "starts[group]",
        statements=code.statements,
    )
    params = [SIZE, SIZE, ARRAY, SSIZE, SSIZE, ARRAY, ARRAY, ARRAY, ARRAY]
    return Kernel(text, "change", params, Kernel.get_flags(dtype))


def launch_each(kernel: CompiledKernel, context: Context, n: int, *args: Any) -> None:
    """Launch a kernel that goes over `n` elements by the number of all items."""
    items = smallest(n, context.profile.compute_units * 64) if context.profile.runs_items_serially else n
    kernel.scall(items, n, *args)
