"""Ops that look up, for each row of a distribution, one class, and the gradient there.

The classes come from the host, where they are checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from optdb.codegen.fp16 import load_w, work_dtype, write_w
from optdb.codegen.layout import steps_of
from optdb.host import ops as host
from optdb.host import scalars
from optdb.host.graph import Apply
from optdb.host.variables import as_tensor_variable
from optdb.opencl.kernels import Kernel, Kernels, OpenCLKernelBase, Outputs, ctype, output_array, output_zeros
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.parts import host_indexes
from optdb.opencl.ops.rows import launch_each
from optdb.runtime.arrays import from_host

if TYPE_CHECKING:
    from optdb.runtime.context import Context

_FORWARD = """
KERNEL void lookup(ga_size n, ARRAY {stored} *p, ga_ssize p0, ga_ssize p1, ARRAY ga_long *classes, ARRAY {stored} *y)
{{
for (ga_size i = get_global_id(0); i < n; i += get_global_size(0))
    y[i] = {store}(-log({load}(p[(ga_ssize)i * p0 + classes[i] * p1])));
}}
"""

_GRADIENT = """
KERNEL void gradient(ga_size n, ga_size columns, ARRAY {g_stored} *g, ga_ssize g0,
    ARRAY {stored} *p, ga_ssize p0, ga_ssize p1, ARRAY ga_long *classes, ARRAY {stored} *dp)
{{
for (ga_size i = get_global_id(0); i < n; i += get_global_size(0)) {{
    const {work} by = {g_load}(g[(ga_ssize)i * g0]);
    dp[i * columns + classes[i]] = {store}(-by / {load}(p[(ga_ssize)i * p0 + classes[i] * p1]));
}}
}}
"""


class OpenCLCrossentropyCategorical1Hot(Counterpart, OpenCLKernelBase, host.CrossentropyCategorical1Hot):
    """For each row of a distribution, how unlikely its class is."""

    host = host.CrossentropyCategorical1Hot
    device_inputs = slice(0, 1)

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        dtype = node.inputs[0].type.dtype
        code = _FORWARD.format(stored=ctype(dtype), load=load_w(dtype), store=write_w(dtype))
        return [Kernel(code)]

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        p, classes = inputs
        named = _classes(classes, p.shape[0], p.shape, self)
        y = output_array(outputs[0], context, p.shape[:1], p.dtype)
        if y.size:
            launch_each(
                kernels["lookup"], context, y.size, p, *steps_of(p), from_host(context, named, constant=True), y
            )


class OpenCLCrossentropyCategorical1HotGrad(Counterpart, OpenCLKernelBase, host.CrossentropyCategorical1HotGrad):
    """The gradient of the cross entropy: zeros, but for the class of each row."""

    host = host.CrossentropyCategorical1HotGrad
    device_inputs = slice(0, 2)

    def make_node(self, g: Any, p: Any, classes: Any) -> Apply:
        """Return the node for the gradients, the distribution, and the classes, which stay on the host."""
        return super().make_node(g, p, as_tensor_variable(classes))

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        g, dtype = (x.type.dtype for x in node.inputs[:2])
        work = work_dtype(scalars.upcast(g, dtype))
        code = _GRADIENT.format(
            g_stored=ctype(g),
            g_load=load_w(g),
            work=ctype(work),
            stored=ctype(dtype),
            load=load_w(dtype),
            store=write_w(dtype),
        )
        return [Kernel(code)]

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        g, p, classes = inputs
        rows = g.shape[0]
        if rows > p.shape[0]:
            raise IndexError(f"{self} has {rows} gradients for {p.shape[0]} rows")
        named = _classes(classes, rows, p.shape, self)
        dp = output_zeros(outputs[0], context, p.shape, p.dtype)
        if rows:
            args = [p.shape[1], g, *steps_of(g), p, *steps_of(p), from_host(context, named, constant=True), dp]
            launch_each(kernels["gradient"], context, rows, *args)


def _classes(classes: np.ndarray, rows: int, shape: Sequence[int], op: Any) -> np.ndarray:
    """Return the class of each row, counted from the front."""
    if classes.shape[0] < rows:
        raise IndexError(f"{op} has {classes.shape[0]} classes for {rows} rows")
    return host_indexes(classes if classes.shape[0] == rows else classes[:rows], shape[1], op, axis=1)
