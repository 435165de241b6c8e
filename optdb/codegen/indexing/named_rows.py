"""Taking, setting and incrementing rows of an array, selected by a vector of indexes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optdb.codegen.elements import RAW, contiguous, copied, copying
from optdb.codegen.indexing.index_layout import check_by_numpy, host_indexes
from optdb.codegen.kernels import Kernel
from optdb.codegen.layout import launch_each, size_of
from optdb.codegen.operation import ArraySpec, Kernels, Operation, Outputs, output_array
from optdb.codegen.scalars.code import scalar_code
from optdb.codegen.scalars.program import Scalar, ScalarProgram
from optdb.codegen.source import ROUND_EACH_STEP, filled, functions, typed
from optdb.codegen.views import broadcast_view
from optdb.numpy_types import HostArray
from optdb.runtime.deferred import DeferredArray
from optdb.runtime.tables import computed, table_on_device

_KERNELS = functions("indexing/named_rows.cl")


@dataclass(eq=False)
class TakeRows(Operation):
    """The rows of an array that a host vector of indexes selects."""

    x: ArraySpec

    reads_tables_alone = True

    def kernels(self) -> list[Kernel]:
        raw = RAW[np.dtype(self.x.dtype).itemsize]
        return [Kernel(filled(_KERNELS["take"], RAW=raw)), *copying(self.x).kernels()]

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        x, indexes = inputs
        rows = host_indexes(indexes, x.shape[0], self)
        out = output_array(outputs[0], self.context, (rows.shape[0], *x.shape[1:]), x.dtype)
        x = contiguous(x, self.x, kernels, self.context)
        args = [size_of(x.shape[1:]), x, table_on_device(self.context, rows), out]
        launch_each(kernels["take"], self.context, out.size, *args)


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
        scalar = Scalar("Second" if self.setting else "Add", dtype)
        change = scalar_code(ScalarProgram.of(scalar, [dtype, dtype]), ["old", "by"], ["old"])
        first = "starts[group + 1] - 1" if self.setting else "starts[group]"
        code = typed(_KERNELS["change_rows"], dtype, CHANGE=change.statements, FIRST=first)
        return [Kernel(ROUND_EACH_STEP + change.helpers + code), *self._copying.kernels()]

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
            self._check_rows(x.shape)
            return
        y = contiguous(y, self.x, kernels, context, shape=shape)
        flat = contiguous(out, self.x, kernels, context)  # a copy is needed only when working in place
        tables = [computed(name, named) for name in ("distinct", "mentions", "begins")]
        columns = size_of(out.shape[1:])
        on_device = [table_on_device(context, table) for table in tables]
        launch_each(kernels["change_rows"], context, tables[0].shape[0] * columns, columns, flat, y, *on_device)
        if flat is not out:
            self._copying.launch(kernels, context, out.shape, [flat, out])

    def _named(self, shape: Sequence[int], indexes: HostArray) -> HostArray | DeferredArray:
        if size_of(shape[1:]):
            return host_indexes(indexes, shape[0], self)
        check_by_numpy(shape, [indexes])
        return indexes  # the rows have no elements

    def _check_rows(self, shape: Sequence[int]) -> None:
        """Raise IndexError if there are no rows but a row would have elements; in a trace, nothing else does."""
        if size_of(shape[1:]):
            raise IndexError(f"{self}: an index is out of bounds for axis 0 with size 0")
