"""Theano's images2neibs on the device."""

from __future__ import annotations

from optdb.codegen.image_patches import ImagePatches
from optdb.codegen.operation import Operation
from optdb.host.api.graph import Apply, PureOp
from optdb.host.api.ops import Images2Neibs
from optdb.opencl.lifting import Inputs, register_counterparts
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.shell import Shell, spec_of


class OpenCLImages2Neibs(Counterpart, Shell, Images2Neibs):
    """The patches of images, as rows of a matrix."""

    device_inputs = slice(0, 1)

    def operation(self, node: Apply) -> Operation:
        return ImagePatches(self.get_context(node), spec_of(node.inputs[0]), self.mode)


def _patches_unsupported_reason(op: PureOp, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    whole = all("int" in x.type.dtype for x in inputs[1:])
    return None if whole else "the shape and step of patches are not integers"


register_counterparts("lift_images2neibs", 62, [Images2Neibs], _patches_unsupported_reason)
