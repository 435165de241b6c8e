"""Taking, setting and incrementing the elements selected by arrays and masks, or the rows selected by one vector.

The host computes the positions of the elements (:mod:`optdb.codegen.indexing.index_layout`). If an element is selected
several times, one work item applies all changes in order, so results are deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optdb.codegen.elements import RAW, ElementKernels, contiguous, copied, copying
from optdb.codegen.indexing.index_layout import (
    EntryKind,
    IndexLayout,
    Pattern,
    check_by_numpy,
    find,
    grouped,
    host_indexes,
    last_mentions,
    pattern_of,
)
from optdb.codegen.kernels import Kernel
from optdb.codegen.layout import broadcast_strides, collapse, launch_chunks, size_of, steps_of
from optdb.codegen.operation import ArraySpec, Kernels, Operation, Outputs, output_array
from optdb.codegen.scalars.code import scalar_code
from optdb.codegen.scalars.program import Scalar, ScalarProgram
from optdb.codegen.scalars.types import convert
from optdb.codegen.source import ROUND_EACH_STEP, filled, type_words, typed
from optdb.codegen.views import broadcast_view
from optdb.numpy_types import HostArray
from optdb.runtime.arrays import Array, from_host
from optdb.runtime.deferred import DeferredArray
from optdb.runtime.tables import computed, table_on_device


@dataclass(eq=False)
class TakeElements(Operation):
    """The elements of an array that an index selects; the inputs are the array and the index entries (on the host)."""

    x: ArraySpec
    index: Sequence[EntryKind]

    def __post_init__(self) -> None:
        self._pattern = pattern_of(self.x.ndim, self.index)

    def kernels(self) -> list[Kernel]:
        return [_taking(self.x.dtype, self._pattern)]

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        x, *index = inputs
        grid = find(self._pattern, x.shape, steps_of(x), index)
        out = output_array(outputs[0], self.context, grid.result, x.dtype)
        lengths, steps = _stepped_axes(self._pattern, grid.lengths, [grid.steps], grid.count)
        offsets = from_host(self.context, grid.offsets(), constant=True)
        launch_chunks(kernels["take"], self.context, out.size, *lengths, x, offsets, out, 1, *steps)


@dataclass(eq=False)
class ChangeElements(Operation):
    """An array in which the elements that an index selects are set or incremented.

    The inputs are the array, the values (broadcast to the elements), and the index entries (on the host). An element
    that is selected several times gets the last value, or is incremented by all values in order.
    """

    #: Specs of the array and of the values; to set elements, both must have the same dtype.
    x: ArraySpec
    y: ArraySpec
    index: Sequence[EntryKind]
    #: The dtype used to add values; None to set elements.
    sum_dtype: str | None = None
    #: Whether to modify the array itself instead of a copy.
    inplace: bool = False

    def __post_init__(self) -> None:
        self._pattern = pattern_of(self.x.ndim, self.index)
        self._copying = copying(self.x)
        self._spreading = ElementKernels.copying(self.y.dtype, self._pattern.axes - 1 + self._pattern.ndim, "spread")

    def kernels(self) -> list[Kernel]:
        if self.sum_dtype is None:
            change = _setting(self.x.dtype, self._pattern)
        else:
            change = _incrementing(self.x.dtype, self.y.dtype, self.sum_dtype, self._pattern)
        return [change, *self._copying.kernels(), *self._spreading.kernels()]

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        x, y, *index = inputs
        out = x if self.inplace else copied(x, self._copying, kernels, self.context)
        grid = find(self._pattern, out.shape, steps_of(out), index)
        y, mentions, y_steps = self._value(y, grid, kernels)
        outputs[0][0] = out
        if not size_of(grid.result):
            return
        tables = self._tables(grid)
        lengths, steps = _stepped_axes(self._pattern, grid.lengths, [grid.steps, y_steps], len(tables[0]))
        on_device = [from_host(self.context, table, constant=True) for table in tables]
        arrays = [out, y, *on_device, 1, mentions]
        launch_chunks(kernels["change"], self.context, size_of(lengths), *lengths, *arrays, *steps)

    def _tables(self, grid: IndexLayout) -> list[HostArray]:
        """Return the tables that the kernel reads.

        To set elements, the tables are the offsets of the distinct elements, and the position of each element's last
        value. To increment elements, the tables are the elements' offsets, the positions of all values (grouped by
        element), and the start of each group.
        """
        offsets = grid.offsets()
        names, total = grid.names()
        last = last_mentions(names, total)
        if self.sum_dtype is None:
            return [offsets[last], last]
        if len(last) == len(names):
            return [offsets, last, np.arange(len(names) + 1)]
        order, first = grouped(names)
        return [offsets[order[first]], order, np.append(first, len(order))]

    def _value(self, y: Array, grid: IndexLayout, kernels: Kernels) -> tuple[Array, int, tuple[int, ...]]:
        """Return `y`, the distance between its values for consecutive positions, and its other strides.

        If this distance is not constant, `y` is copied first.
        """
        seen = broadcast_view(y, grid.result, self)
        before, axes = grid.pattern.before, grid.pattern.ndim
        steps = broadcast_strides(seen)
        _, (mention_steps,) = collapse(grid.shape, [steps[before : before + axes]])
        if len(mention_steps) > 1 and size_of(grid.result):
            return self._value(copied(seen, self._spreading, kernels, self.context, grid.result), grid, kernels)
        return seen, mention_steps[0] if mention_steps else 0, (*steps[:before], *steps[before + axes :])


def _taking(dtype: str, pattern: Pattern) -> Kernel:
    """Return the kernel that copies the elements of a grid bitwise.

    The kernel's arguments are: n; the chunk size; the length of each axis; x; the offsets; the result; the unit of the
    offsets; and x's strides along all axes except the axis of positions.
    """
    arrays = ["ARRAY RAW *x", "ARRAY ga_long *offsets", "ARRAY RAW *z", "ga_ssize unit"]
    body = f"z[i] = x[offsets[at{pattern.before}] * unit{_steps('x', pattern)}];"
    return Kernel(filled(_walk("take", pattern, arrays, ["x"], body), RAW=RAW[np.dtype(dtype).itemsize]))


def _setting(dtype: str, pattern: Pattern) -> Kernel:
    """Return the kernel that sets the elements of a grid by copying their bits.

    The kernel's arguments are: n; the chunk size; the length of each axis; x; y; the offsets; the positions whose
    values are written; the unit of the offsets; y's stride along positions; and the strides of x and y along the other
    axes.
    """
    tables = ["ARRAY ga_long *offsets", "ARRAY ga_long *order"]
    arrays = ["ARRAY RAW *x", "ARRAY RAW *y", *tables, "ga_ssize unit", "ga_ssize y_mention"]
    x, y = f"offsets[at{pattern.before}] * unit", f"order[at{pattern.before}] * y_mention"
    body = f"x[{x}{_steps('x', pattern)}] = y[{y}{_steps('y', pattern)}];"
    return Kernel(filled(_walk("change", pattern, arrays, ["x", "y"], body), RAW=RAW[np.dtype(dtype).itemsize]))


def _incrementing(dtype: str, by: str, wide: str, pattern: Pattern, setting: bool = False) -> Kernel:
    """Return the kernel that adds values of dtype `by` to the elements of a grid; sums have the dtype `wide`.

    With `setting`, the kernel sets each element to the last value instead. The kernel has the same arguments as the
    kernel from `_setting`, except that two tables replace the positions: the positions grouped by element, and each
    group's start.
    """
    scalar = Scalar("Second" if setting else "Add", wide)
    code = scalar_code(ScalarProgram.of(scalar, [dtype, by]), ["old", "by"], ["result"])
    tables = [f"ARRAY ga_long *{name}" for name in ("offsets", "order", "starts")]
    arrays = ["ARRAY T *x", "ARRAY BY_T *y", *tables, "ga_ssize unit", "ga_ssize y_mention"]
    position = f"at{pattern.before}"
    first = f"starts[{position} + 1] - 1" if setting else f"starts[{position}]"
    # If a table is longer than the number of elements, its last groups are empty.
    body = f"""
if (starts[{position}] == starts[{position} + 1])
    continue;
const ga_size p = offsets[{position}] * unit{_steps("x", pattern)}, q = 0{_steps("y", pattern)};
W old = LOAD(x[p]);
for (ga_long m = {first}; m < starts[{position} + 1]; ++m) {{
    const BY_W by = BY_LOAD(y[q + order[m] * y_mention]);
    RESULT_W result;
    {code.statements}
    old = {convert("result", wide, dtype)};
}}
x[p] = STORE(old);"""
    words = {**type_words(by, "BY_"), **type_words(wide, "RESULT_")}
    text = typed(_walk("change", pattern, arrays, ["x", "y"], body), dtype, **words)
    return Kernel(ROUND_EACH_STEP + code.helpers + text)


def _steps(name: str, pattern: Pattern) -> str:
    return "".join(f" + (ga_ssize)at{d} * {name}_s{d}" for d in range(pattern.axes) if d != pattern.before)


def _walk(name: str, pattern: Pattern, arrays: Sequence[str], stepped: Sequence[str], body: str) -> str:
    """Return a kernel whose items process consecutive chunks of a grid, row by row."""
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
    pattern: Pattern, lengths: Sequence[int], steps: Sequence[Sequence[int]], positions: int
) -> tuple[list[int], list[int]]:
    """Return a grid's lengths after merging axes, and the arrays' strides along all axes except the axis of positions.

    Axes of length 1 replace merged axes, because the kernels have a fixed number of axes.
    """
    cut = pattern.before
    front, front_steps = collapse(lengths[:cut], [array_steps[:cut] for array_steps in steps], cut)
    back, back_steps = collapse(lengths[cut:], [array_steps[cut:] for array_steps in steps], len(lengths) - cut)
    flat = [step for before, behind in zip(front_steps, back_steps, strict=True) for step in (*before, *behind)]
    return [*front, positions, *back], flat


#: The pattern of an index that selects rows of an array with two axes.
_ROWS = Pattern(0, 1, 1)


@dataclass(eq=False)
class TakeRows(Operation):
    """The rows of an array at the indexes in a host vector."""

    x: ArraySpec

    reads_tables_alone = True

    def kernels(self) -> list[Kernel]:
        return [_taking(self.x.dtype, _ROWS), *copying(self.x).kernels()]

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        x, indexes = inputs
        rows = host_indexes(indexes, x.shape[0], self)
        out = output_array(outputs[0], self.context, (rows.shape[0], *x.shape[1:]), x.dtype)
        x = contiguous(x, self.x, kernels, self.context)
        columns = size_of(x.shape[1:])
        args = [rows.shape[0], columns, x, table_on_device(self.context, rows), out, columns, 1]
        launch_chunks(kernels["take"], self.context, out.size, *args)


@dataclass(eq=False)
class ChangeRows(Operation):
    """An array in which the rows selected by a host vector of indexes are set or incremented.

    The inputs are the array, the values (broadcast to the rows), and the indexes. A row that is selected several times
    gets the last value, or is incremented by all values in order.
    """

    #: Spec of the array; the values have the same dtype.
    x: ArraySpec
    #: Whether rows are set instead of incremented.
    setting: bool = False
    #: Whether to modify the array itself instead of a copy.
    inplace: bool = False

    reads_tables_alone = True

    def __post_init__(self) -> None:
        self._copying = copying(self.x)

    def kernels(self) -> list[Kernel]:
        dtype = self.x.dtype
        return [_incrementing(dtype, dtype, dtype, _ROWS, self.setting), *self._copying.kernels()]

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        x, y, indexes = inputs
        context = self.context
        named = self._named(x.shape, indexes)
        shape = (indexes.shape[0], *x.shape[1:])
        y = broadcast_view(y, shape, self)
        out = outputs[0][0] = x if self.inplace else copied(x, self._copying, kernels, context)
        if not named.size:
            return
        if not out.size:
            if size_of(x.shape[1:]):  # reached only if `x` has no rows; in a trace, only this line raises the error
                raise IndexError(f"{self}: an index is out of bounds for axis 0 with size 0")
            return
        y = contiguous(y, self.x, kernels, context, shape=shape)
        flat = contiguous(out, self.x, kernels, context)  # a copy of `x` is contiguous already
        tables = [computed(name, named) for name in ("distinct", "mentions", "begins")]
        columns = size_of(out.shape[1:])
        on_device = [table_on_device(context, table) for table in tables]
        groups = tables[0].shape[0]
        args = [groups, columns, flat, y, *on_device, columns, columns, 1, 1]
        launch_chunks(kernels["change"], context, groups * columns, *args)
        if flat is not out:
            self._copying.launch(kernels, context, out.shape, [flat, out])

    def _named(self, shape: Sequence[int], indexes: HostArray) -> HostArray | DeferredArray:
        if size_of(shape[1:]):
            return host_indexes(indexes, shape[0], self)
        check_by_numpy(shape, [indexes])
        return indexes  # the rows have no elements
