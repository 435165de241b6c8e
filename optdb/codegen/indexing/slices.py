"""Parts of arrays that slices and single numbers name, set and incremented. Such a part itself is a view."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optdb.codegen.elements import ElementKernels, copied, copying
from optdb.codegen.elementwise_programs import program_elements
from optdb.codegen.kernels import Kernel
from optdb.codegen.operation import ArraySpec, Kernels, Operation, Outputs
from optdb.codegen.scalars.program import Program, Scalar
from optdb.codegen.views import broadcast_view, subtensor
from optdb.runtime.arrays import may_share_memory
from optdb.runtime.context import Context


class ChangeSlice(Operation):
    """An array of which a part is set or incremented.

    The inputs are the array, the values, which broadcast to the part, and the slices and whole numbers that name it, a
    sequence.

    Parameters
    ----------
    context : Context
        Where it runs.
    x : ArraySpec
        The array; the values have its dtype.
    setting : bool
        Whether the part is set, else incremented.
    inplace : bool
        Whether the array itself is changed, else a copy.
    """

    def __init__(self, context: Context, x: ArraySpec, setting: bool = False, inplace: bool = False) -> None:
        super().__init__(context)
        self.setting = setting
        self.inplace = inplace
        self._copying = copying(x)
        if setting:
            self._changing = ElementKernels.copying(x.dtype, x.ndim, "set")
        else:
            added = Program.of(Scalar("Add", x.dtype), [x.dtype, x.dtype])
            self._changing = program_elements(added, [False, False], x.ndim, "inc")

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
