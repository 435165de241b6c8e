"""Theano's ops on the device that join, tile or split arrays, or change parts of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optdb.codegen.operation import Kernels, Operation, Outputs
from optdb.codegen.parts import ChangeSlice, JoinArrays, Pad, SplitArray, TileArray
from optdb.host.api import ops as host
from optdb.host.api.graph import Apply, Variable
from optdb.opencl.lifting import cast_unsupported_reason, register_counterparts
from optdb.opencl.ops.counterpart import Counterpart
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
    """An array in which a part is set to another array or incremented by it."""

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
    """An array of zeros with another array in one of its parts; if the part is the whole array, the other array itself.

    The inputs are the array, the lengths of the result (its type is `kind`), and the numbers in the index. Slices in
    `entries` are tuples of their bounds, which are hashable in all versions of Python.
    """

    __props__ = ("kind", "entries")
    view_map = {0: [0]}  # noqa: RUF012  (the host's protocol)
    #: A part with the wrong lengths is broadcast or rejected like any other array.
    checks_lengths = True
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
