"""The base class of device ops that are equivalent to a host op and may need to cast their inputs.

The last base class of a counterpart is the host op's class, which provides parameters, types, shapes and gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from optdb.host.api.graph import Variable
from optdb.host.api.scalars import upcast
from optdb.opencl.ops.counterpart_base import CounterpartBase, on_one_device
from optdb.opencl.ops.elemwise import cast


class Counterpart(CounterpartBase):
    """Base class of counterparts that run kernels. Subclasses list `Counterpart` before the host op's class."""

    #: The dtype to which arrays are cast: an index into `device_inputs` selects that array's dtype, 'upcast' selects
    #: the dtype that all arrays upcast to, and None leaves each array's dtype unchanged.
    common_dtype: ClassVar[int | str | None] = None

    def move_arrays(self, arrays: Sequence[Any]) -> list[Variable]:
        moved = on_one_device(arrays)
        return moved if self.common_dtype is None else cast_to_common(moved, self.common_dtype)


def cast_to_common(arrays: Sequence[Variable], common_dtype: int | str) -> list[Variable]:
    """Cast arrays to the dtype of the array at an index, or to the dtype that all arrays upcast to ('upcast')."""
    dtypes = [x.type.dtype for x in arrays]
    dtype = dtypes[common_dtype] if isinstance(common_dtype, int) else upcast(*dtypes)
    return [cast(x, dtype) for x in arrays]
