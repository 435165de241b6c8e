"""Gradients of pooling: what each element of an array gets from the windows that cover it.

On a processor a work item fills rows: it goes over the windows that reach a row, and adds to
the row what each gives. Elsewhere each item asks for one element which windows reach it. Both
add in the order of the windows, and so does the host's C code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optdb.codegen.fp16 import load_w, work_dtype, write_w
from optdb.codegen.layout import check_shapes, launch_chunks, size_of
from optdb.codegen.windows import Windows, numbers, params, place
from optdb.host import layers as host
from optdb.host.graph import Apply
from optdb.opencl.kernels import Context, Kernel, Kernels, OpenCLKernelBase, Outputs, ctype, output_array
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.pooling import checked_dtypes
from optdb.opencl.ops.views import contiguous, copying
from optdb.runtime.arrays import Array


def _reaching(d: int) -> str:
    """Return code that says which windows (`from` up to `to`) reach place `i` of an axis."""
    return (
        f"const ga_ssize over{d} = i{d} + pad{d};\n"
        f"const ga_ssize from{d} = over{d} < size{d} ? 0 : (over{d} - size{d}) / step{d} + 1;\n"
        f"const ga_ssize to{d} = min(over{d} / step{d} + 1, count{d});"
    )


def _loops(ndim: int) -> str:
    return "\n".join(f"for (ga_ssize at{d} = from{d}; at{d} < to{d}; ++at{d}) {{" for d in range(ndim))


def _decode(ndim: int) -> str:
    return "\n".join(
        f"const ga_ssize i{d} = rest % len{d}; rest /= len{d};\n{_reaching(d)}" for d in reversed(range(ndim))
    )


def _rows(ndim: int, add: str, zero: str) -> str:
    """Return code by which an item fills rows, in pieces of `chunk` of all `n`.

    The last elements of all windows of a row come first, then those before them, and so on: that way, too, each
    element gets what it gets in the order of the windows. Windows of 2 that do not overlap are common, and their
    elements can be filled in pairs.
    """
    last = ndim - 1
    at = f"const ga_ssize at{last} = j, o = windows + j;"

    def along(step: object) -> str:
        return f"for (ga_ssize j = first; j < end; ++j) {{\n{at}\nconst ga_ssize q = begin + j * {step};\n{add}\n}}"

    return f"""
const ga_size end_row = min((ga_size)get_global_id(0) * chunk + chunk, n);
const bool in_pairs = size{last} == 2 && step{last} == 2 && pad{last} == 0 && 2 * count{last} <= len{last};
for (ga_size row = get_global_id(0) * chunk; row < end_row; ++row) {{
const ga_ssize row_start = row * len{last};
for (ga_ssize q = row_start; q < row_start + len{last}; ++q)
    gx[q] = {zero};
ga_size rest = row;
{_decode(last)}
{_loops(last)}
const ga_ssize windows = {place("at", last, "(ga_ssize)rest", "count")} * count{last};
if (in_pairs) {{
for (ga_ssize j = 0; j < count{last}; ++j) {{
{at}
{{ const ga_ssize q = row_start + 2 * j; {add} }}
{{ const ga_ssize q = row_start + 2 * j + 1; {add} }}
}}
continue;
}}
for (ga_ssize e = size{last} - 1; e >= 0; --e) {{
const ga_ssize off = e - pad{last}, begin = row_start + off;
const ga_ssize first = off >= 0 ? 0 : (-off + step{last} - 1) / step{last};
const ga_ssize end = off >= len{last} ? 0 : min(count{last}, (len{last} - off - 1) / step{last} + 1);
if (step{last} == 2) {{ {along(2)} }}
else if (step{last} == 1) {{ {along(1)} }}
else {{ {along(f"step{last}")} }}
}}
{"}" * last}
}}"""


def _elements(ndim: int, add: str, zero: str) -> str:
    """Return code by which an item fills single elements, `chunk` of all `n`."""
    return f"""
const ga_size end = min((ga_size)get_global_id(0) * chunk + chunk, n);
for (ga_size q = get_global_id(0) * chunk; q < end; ++q) {{
gx[q] = {zero};
ga_size rest = q;
{_decode(ndim)}
{_loops(ndim)}
const ga_ssize o = {place("at", ndim, "(ga_ssize)rest", "count")};
{add}
{"}" * ndim}
}}"""


class _Gradient(Counterpart, OpenCLKernelBase):
    """What the ops of this module share: arrays in C order, the last of which is the windows' gradient."""

    #: What the kernel calls the input arrays.
    names: tuple[str, ...]

    def make_node(self, *inputs: Any) -> Apply:
        """Return the node for arrays of one dtype, and numbers of the host."""
        return checked_dtypes(super().make_node(*inputs), self.device_inputs)

    def given(self, dtype: str) -> str:
        """Return what a window, ``o``, gives to an element of it, ``q``, in OpenCL C."""
        raise NotImplementedError

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        out = node.outputs[0].type
        stored, load, write = ctype(out.dtype), load_w(out.dtype), write_w(out.dtype)
        arrays = [(array, stored) for array in (*self.names, "gx")]
        # What was added so far is kept as it is stored, on the host, too.
        add = f"gx[q] = {write}({load}(gx[q]) + ({self.given(out.dtype)}));"
        body = _rows if self.get_context(node).profile.runs_items_serially else _elements
        code = f"""
#pragma OPENCL FP_CONTRACT OFF
OUTLINED_KERNEL void gradient(ga_size n, ga_size chunk, {numbers(self.ndim)}, {params(arrays)})
{{
{_whole(self.ndim)}
{body(self.ndim, add, f"{write}(0)")}
}}
"""
        return [Kernel(code), *copying(out).kernels()]

    def _compute(
        self,
        node: Apply,
        shape: Sequence[int],
        windows: Windows,
        arrays: Sequence[Array],
        storage: list[Any],
        kernels: Kernels,
        context: Context,
    ) -> None:
        gx = output_array(storage, context, shape, node.outputs[0].type.dtype)
        if not gx.size:
            return
        ready = [contiguous(array, node.outputs[0].type, kernels, context) for array in arrays]
        if context.profile.runs_items_serially:
            rows = size_of(shape[:-1])
            chunk = max(1, -(-rows // (context.profile.compute_units * 8)))
            kernels["gradient"].call(-(-rows // chunk), 1, rows, chunk, *windows.args, *ready, gx)
        else:
            launch_chunks(kernels["gradient"], context, gx.size, *windows.args, *ready, gx)


def _whole(ndim: int) -> str:
    """Return code that says of each axis whether all windows end before the padding does."""
    return "\n".join(
        f"const bool whole{d} = (count{d} - 1) * step{d} + size{d} <= len{d} + 2 * pad{d};" for d in range(ndim)
    )


class OpenCLMaxPoolGrad(_Gradient, host.MaxPoolGrad):
    """What each element of an array gets from the windows whose largest it equals."""

    device_inputs = slice(0, 3)
    names = ("x", "top", "gz")

    def given(self, dtype: str) -> str:
        # Adding nothing is quicker than a branch that nobody can foresee.
        load = load_w(dtype)
        return f"{load}(x[q]) == {load}(top[o]) ? {load}(gz[o]) : 0"

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, top, gz, *sizes = inputs
        check_shapes(self, x.shape[: -self.ndim], top.shape[: -self.ndim])
        check_shapes(self, top.shape, gz.shape)
        windows = Windows.read(self, x.shape[-self.ndim :], sizes, top.shape[-self.ndim :])
        self._compute(node, x.shape, windows, [x, top, gz], outputs[0], kernels, context)


class OpenCLAveragePoolGrad(_Gradient, host.AveragePoolGrad):
    """What each element of an array gets from the windows that it is summed or averaged in."""

    device_inputs = slice(0, 2)
    names = ("gz",)

    def given(self, dtype: str) -> str:
        value = f"{load_w(dtype)}(gz[o])"
        if self.mode == "sum":
            return value
        # Windows are cut at the end of the padding; what of them is padding counts, too.
        sides = [
            f"(whole{d} ? size{d} : min(at{d} * step{d} + size{d}, len{d} + 2 * pad{d}) - at{d} * step{d})"
            for d in range(self.ndim)
        ]
        # The host rounds what a window gives before it is added.
        quotient = f"{value} / ({ctype(work_dtype(dtype))})({' * '.join(sides)})"
        return f"{load_w(dtype)}({write_w(dtype)}({quotient}))"

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, gz, *sizes = inputs
        check_shapes(self, x.shape[: -self.ndim], gz.shape[: -self.ndim])
        windows = Windows.read(self, x.shape[-self.ndim :], sizes, gz.shape[-self.ndim :])
        if self.mode == "average_exc_pad" and any(windows.pads):
            raise ValueError(f"{self}: padding must be zero for average_exc_pad, not {windows.pads}")
        self._compute(node, x.shape, windows, [gz], outputs[0], kernels, context)
