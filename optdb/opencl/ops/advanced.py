"""Ops that take, set and increment what arrays of indexes and masks name, mixed with slices and new axes, or rows.

The host checks the index and turns it into places; an index that was computed on the device is copied to the host for
that. One work item changes an element that is named several times, in the order of its mentions, so results are
deterministic.

The named elements are a grid: it has strided axes and one axis of places (see :mod:`optdb.opencl.ops.index_layout`),
whose offsets are in a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optdb.codegen.elements import RAW, ElementKernels, contiguous, copied, copying
from optdb.codegen.layout import collapse, launch_chunks, launch_each, size_of, steps_of, strides_of
from optdb.codegen.scalars.code import scalar_code
from optdb.codegen.scalars.program import Program, Scalar
from optdb.codegen.scalars.types import convert
from optdb.codegen.source import ROUND_EACH_STEP, filled, functions, type_words, typed
from optdb.host.api import ops as host
from optdb.host.api import scalars
from optdb.host.api.graph import Apply
from optdb.opencl.kernels import Context, Kernel, Kernels, OpenCLKernelBase, Outputs, output_array
from optdb.opencl.ops.counterpart import Counterpart, on_one_device
from optdb.opencl.ops.index_layout import IndexLayout, Pattern, check_by_numpy, find, grouped, pattern_of
from optdb.opencl.ops.parts import broadcast_view, host_indexes
from optdb.opencl.ops.shell import once_per_node
from optdb.opencl.ops.views import overwritable
from optdb.runtime.arrays import Array, from_host
from optdb.runtime.tables import computed

_ROWS = functions("indexing.cl")


class _Indexed(Counterpart, OpenCLKernelBase):
    """The base of ops with an index of any kind, which follows the arrays."""

    @once_per_node
    def _pattern(self, node: Apply) -> Pattern:
        return pattern_of(node.inputs[0].type.ndim, node.inputs[self.device_inputs.stop :])


class _Take(_Indexed):
    """The base of both ops that take elements."""

    device_inputs = slice(0, 1)

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        return [_taking(node.inputs[0].type.dtype, self._pattern(node))]

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, *index = inputs
        pattern = self._pattern(node)
        grid = find(pattern, x.shape, steps_of(x), index)
        out = output_array(outputs[0], context, grid.result, x.dtype)
        lengths, steps = _stepped_axes(pattern, grid.lengths, [grid.steps], grid.count)
        places = from_host(context, grid.offsets(), constant=True)
        launch_chunks(kernels["take"], context, out.size, *lengths, x, places, out, *steps)


class OpenCLAdvancedSubtensor(_Take, host.AdvancedSubtensor):
    """The elements that arrays of whole numbers name."""


class OpenCLAdvancedBooleanSubtensor(_Take, host.AdvancedBooleanSubtensor):
    """The elements that an index with masks names."""


class _Change(_Indexed):
    """The base of both ops that set or increment; `inplace` overwrites the first input."""

    device_inputs = slice(0, 2)

    def __init__(self, inplace: bool = False, set_instead_of_inc: bool = False) -> None:
        # Skip the host's constructor, which rejects `inplace`.
        self.inplace = inplace
        self.set_instead_of_inc = set_instead_of_inc
        if inplace:
            self.destroy_map = {0: [0]}

    def make_node(self, x: Any, y: Any, *index: Any) -> Apply:
        """Return the node for two arrays and the index, which stays on the host."""
        return super().make_node(*on_one_device([x, y], 0 if self.set_instead_of_inc else None), *index)

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        x, y = (v.type.dtype for v in node.inputs[:2])
        pattern = self._pattern(node)
        change = _setting(x, pattern) if self.set_instead_of_inc else _incrementing(x, y, pattern)
        return [change, *copying(node.inputs[0].type).kernels(), *self._spread(node).kernels()]

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, y, *index = inputs
        pattern = self._pattern(node)
        out = overwritable(self, x, node.inputs[0].type, kernels, context)
        grid = find(pattern, out.shape, steps_of(out), index)
        y, mentions, y_steps = self._value(node, y, grid, kernels, context)
        outputs[0][0] = out
        if not size_of(grid.result):
            return
        tables = self._tables(grid)
        lengths, steps = _stepped_axes(pattern, grid.lengths, [grid.steps, y_steps], len(tables[0]))
        on_device = [from_host(context, table, constant=True) for table in tables]
        launch_chunks(kernels["change"], context, size_of(lengths), *lengths, out, y, *on_device, mentions, *steps)

    def _tables(self, grid: IndexLayout) -> list[np.ndarray]:
        """Return the distinct places, and the mentions of each: the last one, or all and where they begin."""
        offsets = grid.offsets()
        names, total = grid.names()
        last = last_mentions(names, total)
        if self.set_instead_of_inc or len(last) == len(names):
            return [offsets[last], last] if self.set_instead_of_inc else [offsets, last, np.arange(len(names) + 1)]
        order, first = grouped(names, total)
        return [offsets[order[first]], order, np.append(first, len(order))]

    def _value(
        self, node: Apply, y: Array, grid: IndexLayout, kernels: Kernels, context: Context
    ) -> tuple[Array, int, tuple[int, ...]]:
        """Return `y`, its step along mentions and those along the other axes; a copy where no one step will do."""
        seen = broadcast_view(y, grid.result, self)
        before, axes = grid.pattern.before, grid.pattern.ndim
        steps = strides_of(seen, grid.result)
        _, (mention_steps,) = collapse(grid.shape, [steps[before : before + axes]])
        if len(mention_steps) > 1 and size_of(grid.result):
            spread = copied(seen, self._spread(node), kernels, context, grid.result)
            return self._value(node, spread, grid, kernels, context)
        return seen, mention_steps[0] if mention_steps else 0, (*steps[:before], *steps[before + axes :])

    @once_per_node
    def _spread(self, node: Apply) -> ElementKernels:
        pattern = self._pattern(node)
        return ElementKernels.copying(node.inputs[1].type.dtype, pattern.axes - 1 + pattern.ndim, "spread")


class OpenCLAdvancedIncSubtensor(_Change, host.AdvancedIncSubtensor):
    """An array of which the elements that arrays of whole numbers name are set or incremented."""


class OpenCLAdvancedBooleanIncSubtensor(_Change, host.AdvancedBooleanIncSubtensor):
    """An array of which the elements that an index with masks names are set or incremented."""


class OpenCLAdvancedSubtensor1(Counterpart, OpenCLKernelBase, host.AdvancedSubtensor1):
    """The rows of an array that a vector of indexes names."""

    device_inputs = slice(0, 1)
    parameters = ("sparse_grad",)

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        x = node.inputs[0].type
        return [Kernel(filled(_ROWS["take"], RAW=RAW[np.dtype(x.dtype).itemsize])), *copying(x).kernels()]

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, indexes = inputs
        rows = host_indexes(indexes, x.shape[0], self)
        out = output_array(outputs[0], context, (rows.shape[0], *x.shape[1:]), x.dtype)
        x = contiguous(x, node.inputs[0].type, kernels, context)
        args = [size_of(x.shape[1:]), x, from_host(context, rows, constant=True), out]
        launch_each(kernels["take"], context, out.size, *args)


class OpenCLAdvancedIncSubtensor1(Counterpart, OpenCLKernelBase, host.AdvancedIncSubtensor1):
    """An array of which the rows that a vector of indexes names are set or incremented."""

    device_inputs = slice(0, 2)
    common_dtype = 0

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        x = node.inputs[0].type
        scalar = Scalar("Second" if self.set_instead_of_inc else "Add", x.dtype)
        change = scalar_code(Program.of(scalar, [x.dtype, x.dtype]), ["old", "by"], ["old"])
        first = "starts[group + 1] - 1" if self.set_instead_of_inc else "starts[group]"
        code = typed(_ROWS["change_rows"], x.dtype, CHANGE=change.statements, FIRST=first)
        return [Kernel(ROUND_EACH_STEP + change.helpers + code), *copying(x).kernels()]

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, y, indexes = inputs
        named = self._named(x.shape, indexes)
        shape = (indexes.shape[0], *x.shape[1:])
        y = broadcast_view(y, shape, self)
        out = outputs[0][0] = overwritable(self, x, node.inputs[0].type, kernels, context)
        if not (out.size and named.size):
            return
        y = contiguous(y, node.inputs[0].type, kernels, context, shape=shape)
        flat = contiguous(out, node.inputs[0].type, kernels, context)  # a copy only where it works in place
        tables = [computed(name, named) for name in ("distinct", "mentions", "begins")]
        columns = size_of(out.shape[1:])
        on_device = [from_host(context, table, constant=True) for table in tables]
        launch_each(kernels["change_rows"], context, tables[0].shape[0] * columns, columns, flat, y, *on_device)
        if flat is not out:
            copying(node.inputs[0].type).launch(kernels, context, out.shape, [flat, out])

    def _named(self, shape: Sequence[int], indexes: np.ndarray) -> np.ndarray:
        """Return the indexes of the rows from the front; an index out of bounds raises as the host's NumPy does."""
        if size_of(shape[1:]):
            return host_indexes(indexes, shape[0], self)
        check_by_numpy(shape, [indexes])
        return indexes  # the rows have no elements


def last_mentions(names: np.ndarray, total: int) -> np.ndarray:
    """Return where each name, a whole number below `total`, stands for the last time, in the order of these places."""
    mentions = np.arange(len(names))
    if total > 64 * max(len(names), 1024):  # a table would be mostly empty
        _, from_behind = np.unique(names[::-1], return_index=True)
        return np.sort(len(names) - 1 - from_behind)
    table = np.empty(total, np.int64)
    table[names] = mentions
    return np.flatnonzero(table[names] == mentions)


def adding_unsupported_reason(dtype: str, by: str) -> str | None:
    """Return why NumPy adds no `by` to elements of `dtype` in place; None if it does."""
    wide = scalars.upcast(dtype, by)
    return None if np.can_cast(wide, dtype, "same_kind") else f"{by} is not added to {dtype}: the host says so, too"


def _taking(dtype: str, pattern: Pattern) -> Kernel:
    """Return the kernel that takes the elements of a grid from an array of any dtype, bit by bit.

    Its arguments: n, chunk, the length of each axis, x, the table of places, the result, in C order, and x's step for
    each axis but that of places.
    """
    arrays = ["ARRAY RAW *x", "ARRAY ga_long *places", "ARRAY RAW *z"]
    body = f"z[i] = x[places[at{pattern.before}]{_steps('x', pattern)}];"
    return Kernel(filled(_walk("take", pattern, arrays, ["x"], body), RAW=RAW[np.dtype(dtype).itemsize]))


def _setting(dtype: str, pattern: Pattern) -> Kernel:
    """Return the kernel that sets the elements of a grid, bit by bit.

    Its arguments: n, chunk, the length of each axis, x, y, the table of places, that of the mention whose value each
    place gets, y's step along mentions, and x's and y's steps for each axis but that of places.
    """
    arrays = ["ARRAY RAW *x", "ARRAY RAW *y", "ARRAY ga_long *places", "ARRAY ga_long *order", "ga_ssize y_place"]
    place = f"at{pattern.before}"
    body = f"x[places[{place}]{_steps('x', pattern)}] = y[order[{place}] * y_place{_steps('y', pattern)}];"
    return Kernel(filled(_walk("change", pattern, arrays, ["x", "y"], body), RAW=RAW[np.dtype(dtype).itemsize]))


def _incrementing(dtype: str, by: str, pattern: Pattern) -> Kernel:
    """Return the kernel that adds to the elements of a grid, in the dtype that NumPy adds in.

    Its arguments: n, chunk, the length of each axis, x, y, the table of places, that of the mentions in the order of
    the places they name, that of where each place's mentions begin in it, and the rest as for `_setting`.
    """
    wide = scalars.upcast(dtype, by)
    code = scalar_code(Program.of(Scalar("Add", wide), [dtype, by]), ["old", "by"], ["sum"])
    tables = [f"ARRAY ga_long *{name}" for name in ("places", "order", "starts")]
    arrays = ["ARRAY T *x", "ARRAY BY_T *y", *tables, "ga_ssize y_place"]
    place = f"at{pattern.before}"
    body = f"""
const ga_ssize p = places[{place}]{_steps("x", pattern)}, q = 0{_steps("y", pattern)};
W old = LOAD(x[p]);
for (ga_long m = starts[{place}]; m < starts[{place} + 1]; ++m) {{
    const BY_W by = BY_LOAD(y[q + order[m] * y_place]);
    SUM_W sum;
    {code.statements}
    old = {convert("sum", wide, dtype)};
}}
x[p] = STORE(old);"""
    words = {**type_words(by, "BY_"), **type_words(wide, "SUM_")}
    text = typed(_walk("change", pattern, arrays, ["x", "y"], body), dtype, **words)
    return Kernel(ROUND_EACH_STEP + code.helpers + text)


def _steps(name: str, pattern: Pattern) -> str:
    """Return what the stepped axes add to the place of an element."""
    return "".join(f" + (ga_ssize)at{d} * {name}_s{d}" for d in range(pattern.axes) if d != pattern.before)


def _walk(name: str, pattern: Pattern, arrays: Sequence[str], stepped: Sequence[str], body: str) -> str:
    """Return a kernel whose items take pieces of a grid, one after the other, and walk them row by row."""
    axes, last = range(pattern.axes), pattern.axes - 1
    lengths = [f"ga_size len{d}" for d in axes]
    steps = [f"ga_ssize {array}_s{d}" for array in stepped for d in axes if d != pattern.before]
    outer = "\n".join(f"ga_size at{d} = rest % len{d}; rest /= len{d};" for d in reversed(axes))
    return f"""
OUTLINED_KERNEL void {name}({", ".join(["ga_size n", "ga_size chunk", *lengths, *arrays, *steps])})
{{
ga_size i = get_global_id(0) * chunk;
const ga_size end = min(i + chunk, n);
while (i < end) {{
ga_size rest = i;
{outer}
const ga_size stop = min(end, i + (len{last} - at{last}));
for (; i < stop; ++i, ++at{last}) {{
{body}
}}
}}
}}
"""


def _stepped_axes(
    pattern: Pattern, lengths: Sequence[int], steps: Sequence[Sequence[int]], places: int
) -> tuple[list[int], list[int]]:
    """Return the lengths of a grid's axes, places among them, and the steps of the others, in as few axes as will do.

    Axes that are saved have length 1: the kernels are written for a fixed number. The axis of places has `places`.
    """
    cut = pattern.before
    front, front_steps = collapse(lengths[:cut], [array_steps[:cut] for array_steps in steps], cut)
    back, back_steps = collapse(lengths[cut:], [array_steps[cut:] for array_steps in steps], len(lengths) - cut)
    flat = [step for before, behind in zip(front_steps, back_steps, strict=True) for step in (*before, *behind)]
    return [*front, places, *back], flat
