"""Theano's ops that join, repeat and split arrays, and change parts of arrays, on the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optdb.codegen.indexing.slices import ChangeSlice
from optdb.codegen.joining import JoinArrays, SplitArray, TileArray
from optdb.codegen.operation import Kernels, Operation, Outputs
from optdb.host.api import ops as host
from optdb.host.api.graph import Apply
from optdb.opencl.lifting import cast_unsupported_reason, register_counterparts
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.shell import Shell, spec_of
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

    def operation(self, node: Apply) -> Operation:
        return SplitArray(self.get_context(node), spec_of(node.inputs[0]), self.len_splits)


class OpenCLTile(Counterpart, Shell, host.Tile):
    """An array repeated along each axis of the result; the host gives the numbers of repeats."""

    device_inputs = slice(0, 1)

    def operation(self, node: Apply) -> Operation:
        return TileArray(self.get_context(node), spec_of(node.inputs[0]), self.ndim)


class OpenCLIncSubtensor(Counterpart, Shell, host.IncSubtensor):
    """An array of which a part is set to, or incremented by, another array."""

    device_inputs = slice(0, 2)
    common_dtype = 0
    parameters = ("idx_list", "inplace", "set_instead_of_inc", "destroyhandler_tolerate_aliased")

    def operation(self, node: Apply) -> Operation:
        return ChangeSlice(self.get_context(node), spec_of(node.inputs[0]), self.set_instead_of_inc, self.inplace)

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, y, *index = inputs
        entries = host.get_idx_list([x, *index], self.idx_list)
        super().run(node, [x, y, entries], outputs, kernels, context)


register_counterparts("lift_tile", 36, [host.Tile])
register_counterparts("lift_join", 40, [host.Join])
register_counterparts("lift_split", 41, [host.Split])
register_counterparts("lift_inc_subtensor", 42, [host.IncSubtensor], cast_unsupported_reason)
