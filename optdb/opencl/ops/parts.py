"""Device versions of Theano's ops that join, tile and split arrays, and that take or change parts of arrays.

Indices stay on the host; an index that was computed on the device is copied to the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from optdb.codegen.indexing.index_layout import EntryKind
from optdb.codegen.indexing.named_elements import ChangeElements, ChangeRows, TakeElements, TakeRows
from optdb.codegen.operation import Kernels, Operation, Outputs
from optdb.codegen.parts import ChangeSlice, JoinArrays, Pad, SplitArray, TileArray
from optdb.host.api import ops as host
from optdb.host.api import scalars
from optdb.host.api.graph import Apply, Variable
from optdb.opencl.lifting import Inputs, cast_unsupported_reason, register_counterparts, scalar_unsupported_reason
from optdb.opencl.ops.counterpart import Counterpart, cast_to_common
from optdb.opencl.ops.counterpart_base import on_one_device
from optdb.opencl.ops.shell import Shell, spec_of
from optdb.opencl.type import OpenCLArrayType
from optdb.runtime.context import Context


class OpenCLJoin(Counterpart, Shell, host.Join):
    """The concatenation of arrays along an axis."""

    device_inputs = slice(1, None)
    common_dtype = "upcast"

    def operation(self, node: Apply) -> Operation:
        return JoinArrays(self.get_context(node), spec_of(node.outputs[0]))


class OpenCLSplit(Counterpart, Shell, host.Split):
    """An array cut into pieces along an axis."""

    device_inputs = slice(0, 1)
    computed_by = SplitArray
    settings = ("len_splits",)


class OpenCLTile(Counterpart, Shell, host.Tile):
    """An array repeated along each axis of the result; the repeat counts are on the host."""

    device_inputs = slice(0, 1)
    computed_by = TileArray
    settings = ("ndim",)


class OpenCLIncSubtensor(Counterpart, Shell, host.IncSubtensor):
    """An array in which one part is set to another array, or incremented by another array."""

    device_inputs = slice(0, 2)
    common_dtype = 0
    parameters = ("idx_list", "inplace", "set_instead_of_inc", "destroyhandler_tolerate_aliased")
    computed_by = ChangeSlice
    settings = ("set_instead_of_inc", "inplace")

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, y, *index = inputs
        entries = host.get_idx_list([x, *index], self.idx_list)
        super().run(node, [x, y, entries], outputs, kernels, context)


class OpenCLPad(Shell):
    """An array of zeros with one part set to the input array; the input array itself if that part is the whole result.

    The inputs are the array, the lengths of the result and the numbers in the index; `kind` is the result's type.
    `entries` stores slices as tuples of bounds, because slices are not hashable in all versions of Python.
    """

    __props__ = ("kind", "entries")
    view_map = {0: [0]}  # noqa: RUF012  (the host's protocol)
    computed_by = Pad

    def __init__(self, kind: OpenCLArrayType, entries: tuple[Any, ...]) -> None:
        self.kind, self.entries = kind, entries

    @classmethod
    def of_part(cls, kind: OpenCLArrayType, idx_list: Sequence[Any]) -> OpenCLPad:
        """Return the op for an index given in the form of the host op's `idx_list`."""
        slices = [(entry.start, entry.stop, entry.step) if isinstance(entry, slice) else entry for entry in idx_list]
        return cls(kind, tuple(slices))

    def make_node(self, *inputs: Variable) -> Apply:
        return Apply(self, list(inputs), [self.kind()])

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> Sequence[Any]:
        return [tuple(node.inputs[1 : 1 + self.kind.ndim])]

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, *numbers = inputs
        lengths, index = numbers[: self.kind.ndim], numbers[self.kind.ndim :]
        idx_list = [slice(*entry) if isinstance(entry, tuple) else entry for entry in self.entries]
        super().run(node, [x, lengths, host.get_idx_list([x, *index], idx_list)], outputs, kernels, context)


register_counterparts("lift_tile", 36, [host.Tile])
register_counterparts("lift_join", 40, [host.Join])
register_counterparts("lift_split", 41, [host.Split])
register_counterparts("lift_inc_subtensor", 42, [host.IncSubtensor], cast_unsupported_reason)


def entry_kind(entry: Variable) -> EntryKind:
    """Return the kind of index entry for a variable: an array's spec, ``slice``, or None for a new axis."""
    if hasattr(entry.type, "dtype"):
        return spec_of(entry)
    return slice if isinstance(entry.type, host.SliceType) else None


class _Take(Counterpart, Shell):
    """Base class of the two ops that take elements."""

    device_inputs = slice(0, 1)

    def operation(self, node: Apply) -> Operation:
        x, *index = node.inputs
        return TakeElements(self.get_context(node), spec_of(x), [*map(entry_kind, index)])


class OpenCLAdvancedSubtensor(_Take, host.AdvancedSubtensor):
    """The elements of an array at the indices given by integer arrays."""


class OpenCLAdvancedBooleanSubtensor(_Take, host.AdvancedBooleanSubtensor):
    """The elements of an array selected by an index with boolean masks."""


class _Change(Counterpart, Shell):
    """Base class of the two ops that set or increment elements; `inplace` overwrites the first input."""

    device_inputs = slice(0, 2)

    def __init__(self, inplace: bool = False, set_instead_of_inc: bool = False) -> None:
        # Skip the host's constructor, which rejects `inplace`.
        self.inplace = inplace
        self.set_instead_of_inc = set_instead_of_inc
        if inplace:
            self.destroy_map = {0: [0]}

    def make_node(self, x: Any, y: Any, *index: Any) -> Apply:
        """Return a node for two arrays and an index, which stays on the host."""
        arrays = on_one_device([x, y])
        return super().make_node(*(cast_to_common(arrays, 0) if self.set_instead_of_inc else arrays), *index)

    def operation(self, node: Apply) -> Operation:
        x, y, *index = node.inputs
        sum_dtype = None if self.set_instead_of_inc else scalars.upcast(x.type.dtype, y.type.dtype)
        arrays = spec_of(x), spec_of(y)
        return ChangeElements(self.get_context(node), *arrays, [*map(entry_kind, index)], sum_dtype, self.inplace)


class OpenCLAdvancedIncSubtensor(_Change, host.AdvancedIncSubtensor):
    """The result of setting or incrementing an array's elements at the indices in integer arrays."""


class OpenCLAdvancedBooleanIncSubtensor(_Change, host.AdvancedBooleanIncSubtensor):
    """The result of setting or incrementing the elements of an array that boolean masks select."""


class OpenCLAdvancedSubtensor1(Counterpart, Shell, host.AdvancedSubtensor1):
    """The rows of an array at the indices given by a vector."""

    device_inputs = slice(0, 1)
    parameters = ("sparse_grad",)
    computed_by = TakeRows


class OpenCLAdvancedIncSubtensor1(Counterpart, Shell, host.AdvancedIncSubtensor1):
    """The result of setting or incrementing an array's rows at the indices in a vector."""

    device_inputs = slice(0, 2)
    common_dtype = 0
    computed_by = ChangeRows
    settings = ("set_instead_of_inc", "inplace")


def adding_unsupported_reason(dtype: str, by: str) -> str | None:
    """Return why NumPy cannot add `by` to elements of `dtype` in place; None if it can."""
    wide = scalars.upcast(dtype, by)
    return None if np.can_cast(wide, dtype, "same_kind") else f"{by} cannot be added to {dtype}, as on the host"


_Changing: TypeAlias = "host.AdvancedIncSubtensor | host.AdvancedBooleanIncSubtensor"


def _change_unsupported_reason(op: _Changing, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    x, y = (var.type.dtype for var in inputs[:2])
    if op.set_instead_of_inc:
        return cast_unsupported_reason(op, context_name, inputs, outputs)
    return adding_unsupported_reason(x, y) or scalar_unsupported_reason(scalars.add, context_name, [x, y])


register_counterparts("lift_take", 43, [host.AdvancedSubtensor1])
register_counterparts("lift_change_of_rows", 44, [host.AdvancedIncSubtensor1], cast_unsupported_reason)
register_counterparts("lift_advanced", 45, [host.AdvancedSubtensor])
register_counterparts("lift_masked", 46, [host.AdvancedBooleanSubtensor])
_CHANGES: Sequence[type[_Changing]] = (host.AdvancedIncSubtensor, host.AdvancedBooleanIncSubtensor)
register_counterparts("lift_change", 47, _CHANGES, _change_unsupported_reason)
