"""Setting and incrementing parts of arrays selected by slices and integers. Reading such a part is a view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from optdb.codegen.elements import ElementKernels, copied, copying, in_quads
from optdb.codegen.elementwise_programs import program_elements
from optdb.codegen.kernels import Kernel
from optdb.codegen.operation import ArraySpec, Kernels, Operation, Outputs
from optdb.codegen.scalars.program import Program, Scalar
from optdb.codegen.views import broadcast_view, subtensor
from optdb.runtime.arrays import may_share_memory


@dataclass(eq=False)
class ChangeSlice(Operation):
    """An array with a part set or incremented.

    The inputs are the array, the values, which broadcast to the part, and the index of the part, a sequence of slices
    and integers.
    """

    #: Spec of the array; the values have the same dtype.
    x: ArraySpec
    #: Whether to set the part; else it is incremented.
    setting: bool = False
    #: Whether to modify the array itself; else a copy.
    inplace: bool = False

    def __post_init__(self) -> None:
        dtype, ndim = self.x.dtype, self.x.ndim
        self._copying = copying(self.x, context=self.context)
        if self.setting:
            self._changing = ElementKernels.copying(dtype, ndim, "set", context=self.context)
        else:
            added = Program.of(Scalar("Add", dtype), [dtype, dtype])
            self._changing = program_elements(added, [False, False], ndim, "inc", in_quads(self.context))

    def kernels(self) -> list[Kernel]:
        return [*self._copying.kernels(), *self._changing.kernels()]

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        x, y, index = inputs
        out = outputs[0][0] = x if self.inplace else copied(x, self._copying, kernels, self.context)
        part = subtensor(out, index)
        y = broadcast_view(y, part.shape, self)
        if self.inplace and may_share_memory(y, part):
            y = copied(y, self._copying, kernels, self.context)
        arrays = [y, part] if self.setting else [part, y, part]
        self._changing.launch(kernels, self.context, part.shape, arrays)
