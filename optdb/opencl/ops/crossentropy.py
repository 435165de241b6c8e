"""The cross entropy of a softmax and classes given as numbers, in one pass, and its gradient.

The classes come from the host, where they are checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from optdb.codegen.fp16 import load_w, work_dtype, write_w
from optdb.codegen.layout import launch_striding
from optdb.host import ops as host
from optdb.host.graph import Apply, Variable
from optdb.opencl.contexts import infer_context_name
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
from optdb.opencl.ops.elemwise import cast
from optdb.opencl.transfers import as_opencl_variable
from optdb.runtime.arrays import Array, from_host
from optdb.runtime.tables import computed

if TYPE_CHECKING:
    from optdb.runtime.context import Context


_FORWARD = """
OUTLINED_KERNEL void crossentropy(ga_size rows, ga_size columns,
    GLOBAL_MEM {stored} *x, ga_size x_off, ga_ssize x0, ga_ssize x1,
    GLOBAL_MEM {stored} *b, ga_size b_off, ga_ssize b0,
    GLOBAL_MEM ga_long *y, ga_size y_off,
    GLOBAL_MEM {stored} *nll, ga_size nll_off,
    GLOBAL_MEM {stored} *sm, ga_size sm_off,
    GLOBAL_MEM {index} *am, ga_size am_off)
{{
x = (GLOBAL_MEM {stored} *)((GLOBAL_MEM char *)x + x_off);
b = (GLOBAL_MEM {stored} *)((GLOBAL_MEM char *)b + b_off);
y = (GLOBAL_MEM ga_long *)((GLOBAL_MEM char *)y + y_off);
nll = (GLOBAL_MEM {stored} *)((GLOBAL_MEM char *)nll + nll_off);
sm = (GLOBAL_MEM {stored} *)((GLOBAL_MEM char *)sm + sm_off);
am = (GLOBAL_MEM {index} *)((GLOBAL_MEM char *)am + am_off);
#define AT(j) ({load}(x[(ga_ssize)i * x0 + (ga_ssize)(j) * x1]) + {load}(b[(ga_ssize)(j) * b0]))
for (ga_size i = get_global_id(0); i < rows; i += get_global_size(0)) {{
    {work} largest = AT(0);
    ga_size place = 0;
    for (ga_size j = 1; j < columns; ++j) {{
        const {work} v = AT(j);
        if (v > largest || (isnan(v) && !isnan(largest))) {{
            largest = v;
            place = j;
        }}
    }}
    {work} sum = 0;
    for (ga_size j = 0; j < columns; ++j)
        sum += exp(AT(j) - largest);
    for (ga_size j = 0; j < columns; ++j)
        sm[i * columns + j] = {store}(exp(AT(j) - largest) / sum);
    nll[i] = {store}(largest - AT(y[i]) + log(sum));
    am[i] = ({index})place;
}}
}}
"""

_GRADIENT = """
OUTLINED_KERNEL void gradient(ga_size rows, ga_size columns,
    GLOBAL_MEM {stored} *dy, ga_size dy_off, ga_ssize dy0,
    GLOBAL_MEM {stored} *sm, ga_size sm_off, ga_ssize sm0, ga_ssize sm1,
    GLOBAL_MEM ga_long *y, ga_size y_off,
    GLOBAL_MEM {stored} *dx, ga_size dx_off)
{{
dy = (GLOBAL_MEM {stored} *)((GLOBAL_MEM char *)dy + dy_off);
sm = (GLOBAL_MEM {stored} *)((GLOBAL_MEM char *)sm + sm_off);
y = (GLOBAL_MEM ga_long *)((GLOBAL_MEM char *)y + y_off);
dx = (GLOBAL_MEM {stored} *)((GLOBAL_MEM char *)dx + dx_off);
for (ga_size i = get_global_id(0); i < rows; i += get_global_size(0)) {{
    const {work} by = {load}(dy[(ga_ssize)i * dy0]);
    for (ga_size j = 0; j < columns; ++j) {{
        const {work} part = by * {load}(sm[(ga_ssize)i * sm0 + (ga_ssize)j * sm1]);
        dx[i * columns + j] = {store}(j == (ga_size)y[i] ? part - by : part);
    }}
}}
}}
"""


class _OfClasses(Counterpart, OpenCLKernelBase):
    """What the ops of this module share: two arrays on the device and the classes of the host."""

    device_inputs = slice(0, 2)
    #: Which of the two says what dtype is computed.
    leader: int

    def make_node(self, *inputs: Any) -> Apply:
        """Return the node for two arrays of floats, which get one dtype, and the classes."""
        context_name = infer_context_name(*[x for x in inputs[:2] if isinstance(x, Variable)])
        arrays = [as_opencl_variable(x, context_name) for x in inputs[:2]]
        dtype = arrays[self.leader].type.dtype
        return super().make_node(*[cast(x, dtype) for x in arrays], *inputs[2:])

    def _words(self, node: Apply) -> dict[str, str]:
        dtype = node.inputs[self.leader].type.dtype
        return {
            "stored": ctype(dtype),
            "work": ctype(work_dtype(dtype)),
            "load": load_w(dtype),
            "store": write_w(dtype),
        }

    def _classes(self, y: np.ndarray, shape: Sequence[int], context: Context) -> Array:
        """Return the classes on the device, if there is one for each row, and a column for each of them."""
        rows, columns = shape
        if y.shape[0] != rows:
            raise ValueError(f"{self} has {y.shape[0]} classes for {rows} rows")
        try:
            classes = computed("classes", y, columns)
        except ValueError as error:
            raise ValueError(f"{self}: {error}") from None
        return from_host(context, classes, constant=True)

    def _launch(self, kernel: CompiledKernel, context: Context, rows: int, *args: Any) -> None:
        launch_striding(kernel, context, rows, 8, rows, *args)


class OpenCLCrossentropySoftmaxArgmax1HotWithBias(_OfClasses, host.CrossentropySoftmaxArgmax1HotWithBias):
    """For each row: how unlikely its class is, the softmax, and the likeliest class."""

    host = host.CrossentropySoftmaxArgmax1HotWithBias
    leader = 0

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        dtype, index = node.inputs[0].type.dtype, node.outputs[2].type.dtype
        code = _FORWARD.format(index=ctype(index), **self._words(node))
        params = [SIZE, SIZE, ARRAY, SSIZE, SSIZE, ARRAY, SSIZE, ARRAY, ARRAY, ARRAY, ARRAY]
        return [Kernel(code, "crossentropy", params, Kernel.get_flags(dtype, index))]

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, b, y = inputs
        rows, columns = x.shape
        if b.shape[0] != columns:
            raise ValueError(f"{self} has a bias of {b.shape[0]} numbers for {columns} columns")
        classes = self._classes(y, x.shape, context)
        results = [
            output_array(storage, context, shape, out.type.dtype)
            for storage, shape, out in zip(outputs, [(rows,), x.shape, (rows,)], node.outputs, strict=True)
        ]
        if x.size:
            item = x.dtype.itemsize
            steps = [step // item for step in x.strides]
            args = [columns, x, *steps, b, b.strides[0] // item, classes, *results]
            self._launch(kernels["crossentropy"], context, rows, *args)


class OpenCLCrossentropySoftmax1HotWithBiasDx(_OfClasses, host.CrossentropySoftmax1HotWithBiasDx):
    """The gradient of the cross entropy, from the softmax."""

    host = host.CrossentropySoftmax1HotWithBiasDx
    leader = 1

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        code = _GRADIENT.format(**self._words(node))
        params = [SIZE, SIZE, ARRAY, SSIZE, ARRAY, SSIZE, SSIZE, ARRAY, ARRAY]
        return [Kernel(code, "gradient", params, Kernel.get_flags(node.inputs[1].type.dtype))]

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        dy, sm, y = inputs
        rows, columns = sm.shape
        if dy.ndim and dy.shape[0] not in (1, rows):
            raise ValueError(f"{self} has {dy.shape[0]} gradients for {rows} rows")
        classes = self._classes(y, sm.shape, context)
        dx = output_array(outputs[0], context, sm.shape, sm.dtype)
        if sm.size:
            item = sm.dtype.itemsize
            dy_step = dy.strides[0] // item if dy.ndim and dy.shape[0] > 1 else 0
            args = [columns, dy, dy_step, sm, *[step // item for step in sm.strides], classes, dx]
            self._launch(kernels["gradient"], context, rows, *args)
